"""What is counted while requests pass: plain numbers, since a library's counters would cost more
than the rest of a request. ``metrics.py`` shows them.
"""

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

#: The buckets that the OpenTelemetry conventions for generative AI give: for durations, the time to
#: the first token, and the time for each token after it, in seconds; for tokens.
DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0),
)
PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(4**power for power in range(14))


class Histogram:
    """Counts by upper bound; the last one is of what is over every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Tokens:
    """Tokens that were booked; ``whole`` are those of each answer that came to its end."""

    __slots__ = ("total", "whole")

    def __init__(self) -> None:
        self.total = 0
        self.whole = Histogram(TOKENS)

    def book(self, count: int, *, whole: bool) -> None:
        self.total += count
        if whole:
            histogram = self.whole
            histogram.counts[bisect_left(TOKENS, count)] += 1
            histogram.total += count


class Generation:
    """What a server generated for one operation, like ``chat``.

    Output tokens, and the time for each, are told by the answer, or counted in its stream.
    ``unread`` are answers by why nothing is known of their tokens.
    """

    __slots__ = (
        "counted",
        "failed",
        "first_token",
        "gaps",
        "input",
        "per_counted",
        "per_told",
        "told",
        "unread",
        "whole",
    )

    def __init__(self) -> None:
        self.first_token = Histogram(FIRST_TOKEN)
        self.gaps = Histogram(DURATION)
        self.per_told = Histogram(PER_TOKEN)
        self.per_counted = Histogram(PER_TOKEN)
        self.whole = Histogram(DURATION)
        self.input = Tokens()
        self.told = Tokens()
        self.counted = Tokens()
        self.unread: Counter[str] = Counter()
        self.failed = 0


class Who(NamedTuple):
    """The labels under which a request is counted; ``server`` is a backend or a candidate, and
    empty where a request came to none.
    """

    endpoint: str
    server: str
    role: str


#: So many names of models are told apart; a server may echo whatever a client invents.
MOST_MODELS = 32
#: What the rest is called.
OTHER_MODELS = "other"


class Models:
    """The names of models, as answers say them; empty where one says none."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names = {b"": ""}

    def name(self, told: bytes) -> str:
        found = self._names.get(told)
        if found is None:
            if len(self._names) > MOST_MODELS:
                return OTHER_MODELS
            found = self._names[told] = told.decode(errors="replace")
        return found


class Asked(NamedTuple):
    """What a server was asked for, like ``chat``, and the model that answered."""

    operation: str
    model: str


class Series:
    """Requests of one endpoint to one server in one role; ``statuses`` by hundreds."""

    __slots__ = ("_latest", "first", "generations", "models", "statuses", "whole")

    def __init__(self, models: Models) -> None:
        self.models = models
        self.statuses: Counter[int] = Counter()
        self.first = Histogram(DURATION)
        self.whole = Histogram(DURATION)
        self.generations: dict[Asked, Generation] = {}
        self._latest: tuple[str, bytes, Generation] | None = None

    def generation(self, operation: str, model: bytes) -> Generation:
        """What is counted of answers of a model, by the name that it tells."""
        latest = self._latest
        if latest is not None and latest[0] == operation and latest[1] == model:
            return latest[2]  # nearly all are as the one before
        asked = Asked(operation, self.models.name(model))
        found = self.generations.get(asked)
        if found is None:
            found = self.generations[asked] = Generation()
        self._latest = operation, model, found
        return found

    def ended(self, status: int, first: float | None, whole: float) -> None:
        """An answer was passed on to its end; ``first`` is none where it had no body."""
        self.statuses[status // 100] += 1
        if first is not None:
            self.first.add(first)
        self.whole.add(whole)


class Tally:
    """All counts of one process. ``providers`` are what servers run, by endpoint and name."""

    def __init__(self) -> None:
        self.models = Models()
        self.providers: dict[tuple[str, str], str] = {}
        self.series: dict[Who, Series] = {}
        self.faults: Counter[tuple[Who, str]] = Counter()  # by kind
        self.moved: Counter[tuple[str, str]] = Counter()  # endpoint, server that it left
        self.results: Counter[tuple[str, str, str]] = Counter()  # endpoint, candidate, result
        self.unmirrored: Counter[tuple[str, str]] = Counter()  # endpoint, reason

    def of(self, who: Who) -> Series:
        found = self.series.get(who)
        if found is None:
            found = self.series[who] = Series(self.models)
        return found
