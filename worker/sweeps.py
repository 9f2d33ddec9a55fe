"""The sweeps as Temporal has them: one schedule a shard, its newest result, and how it is kept.

Nothing here needs a worker to answer, so it also tells of one that does not work.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleDescription,
    WorkflowFailureError,
)
from temporalio.service import RPCError, RPCStatusCode

from fleet.contracts.sweep import SweepResult

T = TypeVar("T")

#: With so many intervals behind it, a sweep is no longer the fleet's present state.
FRESH_INTERVALS = 3

_PATIENCE = timedelta(seconds=3)
_AT_ONCE = 8
_MOST_SHARDS = 100
_HEALTH = "health/"
#: The schedules that ask idle engines; not every shard has one.
PROBES = "probe/"


@dataclass(frozen=True)
class Shard:
    """One shard's schedule, ``every`` so often from ``since`` on, with its newest ``result``.

    ``taken`` sweeps were started since the schedule was made; ``skipped`` were not, because the one
    before still ran or Temporal was away. A ``paused`` schedule starts none.
    """

    number: int
    every: timedelta
    since: datetime
    paused: bool = False
    taken: int = 0
    skipped: int = 0
    result: SweepResult | None = None

    def age(self, now: datetime) -> timedelta:
        """Since the last sweep that ended; where none has, since the schedule was made."""
        return now - (self.result.at if self.result is not None else self.since)

    def is_fresh(self, now: datetime) -> bool:
        return self.result is not None and self.age(now) < FRESH_INTERVALS * self.every


class SweepReader:
    """Looks again and again, and reads a result only once."""

    def __init__(self, client: Client, schedules: str = _HEALTH) -> None:
        self._client = client
        self._schedules = schedules
        self._results: dict[str, SweepResult] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def fetch(self) -> list[Shard]:
        """Every shard that has a schedule, by number.

        Raises:
            RPCError: Temporal is out of reach.
        """
        numbers = await self._numbers()
        found = await asyncio.gather(*(self._bounded(self._shard(each)) for each in numbers))
        self._results = {run: shard.result for run, shard in found if shard and shard.result}
        return [shard for _, shard in found if shard is not None]

    async def _numbers(self) -> list[int]:
        schedules = await self._client.list_schedules(rpc_timeout=_PATIENCE)
        ids = [each.id async for each in first(schedules, _MOST_SHARDS)]
        return sorted(_of(ids, self._schedules))

    async def _shard(self, number: int) -> tuple[str, Shard | None]:
        handle = self._client.get_schedule_handle(f"{self._schedules}{number}")
        try:
            about = await handle.describe(rpc_timeout=_PATIENCE)
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return "", None
            raise
        run, result = await self._last(about)
        intervals, info = about.schedule.spec.intervals, about.info
        return run, Shard(
            number=number,
            every=intervals[0].every if intervals else timedelta(0),
            since=info.last_updated_at or info.created_at,
            paused=about.schedule.state.paused,
            taken=info.num_actions,
            skipped=info.num_actions_skipped_overlap + info.num_actions_missed_catchup_window,
            result=result,
        )

    async def _last(self, about: ScheduleDescription) -> tuple[str, SweepResult | None]:
        """The newest result of a schedule: its newest runs may still be at work, or have failed."""
        for taken in reversed(about.info.recent_actions):
            action = taken.action
            if not isinstance(action, ScheduleActionExecutionStartWorkflow):
                continue
            if action in about.info.running_actions:
                continue
            run = action.first_execution_run_id
            result = self._results.get(run) or await self._result(action.workflow_id, run)
            if result is not None:
                return run, result
        return "", None

    async def _result(self, workflow_id: str, run: str) -> SweepResult | None:
        handle = self._client.get_workflow_handle(workflow_id, run_id=run, result_type=SweepResult)
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                result: SweepResult = await handle.result(rpc_timeout=_PATIENCE)
        except (WorkflowFailureError, TimeoutError):
            return None
        return result

    async def _bounded(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._slots:
            return await work


def stale(shards: Iterable[Shard], expected: int, now: datetime | None = None) -> str:
    """Why not all of the ``expected`` shards were swept lately; empty where all were."""
    now = now or datetime.now(UTC)
    known = {shard.number: shard for shard in shards}
    for number in range(expected):
        shard = known.get(number)
        if shard is None:
            return f"shard {number} has no schedule"
        if not shard.is_fresh(now):
            seconds = shard.age(now).total_seconds()
            return f"the last sweep of shard {number} is {seconds:.0f} s old"
    return ""


def _of(ids: Iterable[str], schedules: str) -> list[int]:
    numbers = (each.removeprefix(schedules) for each in ids if each.startswith(schedules))
    return [int(number) for number in numbers if number.isdecimal()]


async def first(items: AsyncIterator[T], limit: int) -> AsyncIterator[T]:
    count = 0
    async for item in items:
        if count == limit:
            return
        count += 1
        yield item
