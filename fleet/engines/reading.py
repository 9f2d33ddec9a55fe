"""What was seen of an engine: its page in a small form, and what a short request came to."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fleet.limits import check_lengths

#: Engines of one page; more share no server.
MOST_ENGINES = 64


class Page(StrEnum):
    """What became of the one GET.

    ``BARE`` is a page without the engine's own counters. ``LISTED``: it has none, lists its models,
    and may be asked. ``ALIVE`` is a load balancer that answers. ``DIED``: it says itself that its
    engine died.
    """

    OK = "ok"
    BARE = "bare"
    LISTED = "listed"
    ALIVE = "alive"
    DIED = "died"
    REFUSED = "refused"
    SLOW = "slow"
    UNAVAILABLE = "unavailable"
    FAILING = "failing"
    UNREADABLE = "unreadable"


class Came(StrEnum):
    """What became of one short request, or why none was sent.

    ``GIVEN``: answered. ``MOVED``: a witness moved meanwhile. ``BUSY``: work is in flight.
    ``FULL``: its front end turned the request away, since it has enough. ``ELSEWHERE``: another
    engine of the same server answered. ``NONE``: no answer within the deadline. ``FAILED``: an
    error of the server's own. ``REFUSED``: the request itself was not taken, which says nothing of
    the engine. ``ASLEEP``: never asked. ``LOADING``: it is on its way up or down. ``DIED``: never
    asked, since it says itself that its engine died.
    """

    GIVEN = "given"
    MOVED = "moved"
    BUSY = "busy"
    FULL = "full"
    ELSEWHERE = "elsewhere"
    NONE = "none"
    FAILED = "failed"
    REFUSED = "refused"
    ASLEEP = "asleep"
    LOADING = "loading"
    DIED = "died"


@dataclass(frozen=True)
class Answer:
    """``took`` is in seconds, ``sent`` the number of requests that left for the engine. ``rank`` is
    the label of the engine that was meant, where a page has several.
    """

    came: Came
    detail: str = ""
    took: float | None = None
    sent: int = 0
    rank: str = ""

    def __post_init__(self) -> None:
        check_lengths(self, detail=200, rank=120)


@dataclass(frozen=True)
class EngineState:
    """One engine of a page, a rank of a data-parallel server say. Witnesses go by short names.

    ``open`` are requests that its front end has taken in, where its own gauges show none.
    """

    label: str = ""
    running: float = 0
    waiting: float = 0
    open: float = 0
    steps: float | None = None
    witnesses: dict[str, float] = field(default_factory=dict)
    asleep: bool = False

    def __post_init__(self) -> None:
        check_lengths(self, label=120)

    @property
    def in_flight(self) -> bool:
        return self.running + self.waiting + self.open > 0

    def numbers(self) -> str:
        """The numbers that a verdict rests on, in one phrase."""
        parts = [f"{self.running:g} running", f"{self.waiting:g} waiting"]
        if self.open:
            parts.append(f"{self.open:g} open at its front end")
        if self.steps is not None:
            parts.append(f"step {self.steps:.15g}")
        if (kv := self.witnesses.get("kv")) is not None:
            parts.append(f"KV cache {kv:.2%}")
        return ", ".join(parts)


@dataclass(frozen=True)
class EngineReading:
    """One look at an engine server's page.

    ``profile`` is the engine that the page was read as. ``started`` is opaque, whatever the page
    says of its process's start. ``counters`` are no witnesses, and of the whole page: they fall
    where the engine was started anew. ``restarted_at`` is when steady itself last restarted the
    server, where that was asked for. ``answer`` is there where a short request was to be sent.

    ``named``: whether a request is sure to reach the engine of several that it names. Readings of
    before that was looked for don't say.
    """

    profile: str
    page: Page = Page.OK
    started: str | None = None
    engines: tuple[EngineState, ...] = ()
    counters: dict[str, float] = field(default_factory=dict)
    restarted_at: datetime | None = None
    answer: Answer | None = None
    named: bool | None = None

    def __post_init__(self) -> None:
        check_lengths(self, started=40, engines=MOST_ENGINES)

    @property
    def in_flight(self) -> bool:
        return any(engine.in_flight for engine in self.engines)

    @property
    def asleep(self) -> bool:
        return bool(self.engines) and all(engine.asleep for engine in self.engines)

    @property
    def telling(self) -> tuple[EngineState, ...]:
        """By whom it is told what becomes of a request that names none: those that count steps, if
        some do. A tokenizer before a model that hangs goes on with whatever comes in.
        """
        return tuple(each for each in self.engines if each.steps is not None) or self.engines

    def numbers(self) -> str:
        if len(self.engines) == 1:
            return self.engines[0].numbers()
        return "; ".join(f"engine {each.label}: {each.numbers()}" for each in self.engines)
