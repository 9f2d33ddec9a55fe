"""Whether this worker works: stamps of what it did, and the diagnosis that ``/health`` gives.

A process that is there, and a server that lists it, prove nothing: workers have been alive without
polling for hours. So a worker is well only while Temporal answers it, sees it poll for both kinds
of tasks, and the work that is due gets done.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from worker.sweeps import FRESH_INTERVALS, Shard

_BEAT_EVERY = 0.5


@dataclass(frozen=True)
class Limits:
    """How long, in seconds, each sign of life may be missing.

    A poll that finds nothing lasts a minute, so a worker without work is seen that seldom.
    ``margin`` is added to three intervals of the sweeps.
    """

    loop: float = 5
    temporal: float = 30
    polls: float = 150
    margin: float = 30


@dataclass(frozen=True)
class Health:
    """``why`` lists what is wrong; nothing is, where it is empty. Ages are in seconds."""

    why: list[str]
    ages: dict[str, float | None]

    @property
    def is_well(self) -> bool:
        return not self.why

    def document(self) -> dict[str, Any]:
        return {"status": "ok" if self.is_well else "failing", "why": self.why, "ages": self.ages}


@dataclass
class Vitals:
    """Stamps, set in the event loop and read in any thread; ``clock`` is monotonic, in seconds."""

    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._started = self._beat = self.clock()
        self._worked: float | None = None
        self._answered: float | None = None
        self._polled: dict[str, float] = {}
        self._last_polls: dict[str, datetime | None] = {}
        self._shards: tuple[Shard, ...] = ()
        self._finished: Counter[tuple[str, str]] = Counter()

    # --- what happens -----------------------------------------------------------------------------

    def beat(self) -> None:
        """The event loop turns."""
        self._beat = self.clock()

    def finished(self, activity: str, result: str) -> None:
        """An activity came to its end here, a failure included: work flows."""
        with self._lock:
            self._worked = self.clock()
            self._finished[activity, result] += 1

    def answered(self, shards: Sequence[Shard], polls: Mapping[str, datetime | None]) -> None:
        """Temporal answered: with the sweeps, and when it saw this worker poll for each kind.

        A poll counts when it is another one than before, so that no two clocks are compared.
        """
        with self._lock:
            self._answered = self.clock()
            self._shards = tuple(shards)
            for kind, at in polls.items():
                if at is not None and at != self._last_polls.get(kind):
                    self._polled[kind] = self._answered
                self._last_polls[kind] = at

    # --- what is to be said of it -----------------------------------------------------------------

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The sweeps as they were last seen."""
        return self._shards

    def finished_activities(self) -> dict[tuple[str, str], int]:
        """How many activities ended in this process, by name and result."""
        with self._lock:
            return dict(self._finished)

    def diagnose(self) -> Health:
        with self._lock:
            why = [*self._blocked(), *self._unanswered(), *self._unpolled(), *self._undone()]
            ages = {
                "event_loop": self._age(self._beat),
                "temporal": self._age(self._answered),
                "activity": self._age(self._worked),
                "sweep": self._newest_sweep(),
                **{f"{kind}_poll": self._age(at) for kind, at in self._polled.items()},
            }
        return Health(why, {name: _rounded(age) for name, age in ages.items()})

    def _blocked(self) -> list[str]:
        age = self.clock() - self._beat
        return [f"the event loop is blocked for {age:.0f} s"] if age > self.limits.loop else []

    def _unanswered(self) -> list[str]:
        age = self._age(self._answered)
        if age is None:
            return ["Temporal has not answered yet"]
        too_long = age > self.limits.temporal
        return [f"Temporal has not answered for {age:.0f} s"] if too_long else []

    def _unpolled(self) -> list[str]:
        """A worker whose slots are all taken doesn't poll, and works: that counts too."""
        worked = self._age(self._worked)
        if worked is not None and worked <= self.limits.polls:
            return []
        return [said for kind in self._last_polls for said in self._unpolled_for(kind)]

    def _unpolled_for(self, kind: str) -> list[str]:
        age = self._age(self._polled.get(kind))
        if age is None:
            return [f"Temporal has not yet seen this worker poll for {kind} tasks"]
        if age <= self.limits.polls:
            return []
        return [f"Temporal has not seen this worker poll for {kind} tasks for {age:.0f} s"]

    def _undone(self) -> list[str]:
        """Sweeps that are due and that nobody does, while this worker does nothing either."""
        due = [shard for shard in self._shards if not shard.paused]
        if not due:
            return []
        every = min(shard.every for shard in due).total_seconds()
        limit = FRESH_INTERVALS * every + self.limits.margin
        ages = [self.clock() - self._started, self._age(self._worked)]
        ages += [shard.age(self.now()).total_seconds() for shard in due]
        idle = min(age for age in ages if age is not None)
        if idle <= limit:
            return []
        return [f"no work was done for {idle:.0f} s, and a sweep is due every {every:g} s"]

    def _newest_sweep(self) -> float | None:
        ages = [shard.age(self.now()).total_seconds() for shard in self._shards if shard.result]
        return min(ages, default=None)

    def _age(self, at: float | None) -> float | None:
        return None if at is None else self.clock() - at


async def keep_beating(vitals: Vitals) -> None:
    """Stamp the event loop's turns until cancelled."""
    while True:
        vitals.beat()
        await asyncio.sleep(_BEAT_EVERY)


class Stamps(Interceptor):
    """Stamps each activity that ends in this worker."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        return _StampedActivity(next, self._vitals)


class _StampedActivity(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, vitals: Vitals) -> None:
        super().__init__(following)
        self._vitals = vitals

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        name = input.fn.__name__
        try:
            result = await super().execute_activity(input)
        except Exception:
            self._vitals.finished(name, "failed")
            raise
        self._vitals.finished(name, "completed")
        return result


def _rounded(age: float | None) -> float | None:
    return None if age is None else round(age, 1)
