"""What is counted while requests pass: plain numbers, since a library's counters would cost more
than the rest of a request. ``metrics.py`` shows them.
"""

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

#: The buckets that the OpenTelemetry conventions give for durations of generative AI, in seconds.
BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)


class Durations:
    """A histogram; the last count is of what is longer than every bucket."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Who(NamedTuple):
    """The labels under which a request is counted; ``server`` is a backend or a candidate."""

    endpoint: str
    server: str
    role: str


class Series:
    """Requests of one endpoint to one server in one role; ``statuses`` by hundreds."""

    __slots__ = ("first", "statuses", "whole")

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.first = Durations()
        self.whole = Durations()

    def ended(self, status: int, first: float | None, whole: float) -> None:
        """An answer was passed on to its end; ``first`` is none where it had no body."""
        self.statuses[status // 100] += 1
        if first is not None:
            self.first.add(first)
        self.whole.add(whole)


class Tally:
    """All counts of one process."""

    def __init__(self) -> None:
        self.series: dict[Who, Series] = {}
        self.faults: Counter[tuple[str, str]] = Counter()  # endpoint, kind
        self.moved: Counter[str] = Counter()  # by endpoint
        self.results: Counter[tuple[str, str, str]] = Counter()  # endpoint, candidate, result
        self.unmirrored: Counter[tuple[str, str]] = Counter()  # endpoint, reason

    def of(self, who: Who) -> Series:
        found = self.series.get(who)
        if found is None:
            found = self.series[who] = Series()
        return found
