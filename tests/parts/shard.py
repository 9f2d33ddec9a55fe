"""A shard of one server, whose looks a test writes, swept by a real schedule, by hand.

Nothing here waits for an interval: between two sweeps pass as many seconds as the readings say.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from activities.guards import GuardActivities
from activities.record import RecordActivities
from activities.storms import STORM_GUARD_UNREACHABLE
from fleet.contracts.alerts import AlertMessage
from fleet.contracts.fleet import Pause, StormTerms
from fleet.contracts.names import HEALTH_SWEEP, health_id
from fleet.contracts.record import KeepRequest
from fleet.contracts.storm import ShareReport
from fleet.contracts.sweep import (
    Report,
    ReportBatch,
    ReportResult,
    SweepReadings,
    SweepRequest,
    SweepResult,
)
from fleet.policy import Policy
from fleet.readings import Reading, WorkState, missing
from tests.parts.people import People
from workflows.alert import Alert
from workflows.guard import ServerGuard
from workflows.health import HealthSweep
from workflows.host_guard import HostGuard
from workflows.record import ReadingRecord

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EVERY = timedelta(seconds=30)


def busy(seconds: float) -> Reading:
    """What is seen ``seconds`` after T0 of a server whose last heartbeat is 100 s old."""
    return Reading(
        server="gpu-1",
        at=T0 + timedelta(seconds=seconds),
        state=WorkState.PROCESSING,
        heartbeat=T0 + timedelta(seconds=seconds - 100),
        job="render-7",
    )


def hung(seconds: float, last: float = 0) -> Reading:
    """What is seen of a server whose heartbeat stands still since the look at ``last``."""
    return replace(busy(last), at=T0 + timedelta(seconds=seconds))


def gone(seconds: float) -> Reading:
    return missing("gpu-1", T0 + timedelta(seconds=seconds), "connection refused")


class Shard:
    """``reports`` and ``told`` are what its sweeps passed on; ``unsent`` is what they could not."""

    workflow = HEALTH_SWEEP

    def __init__(self, client: Client, number: int = 0, policy: Policy | None = None) -> None:
        self.client, self.number = client, number
        self.server = f"gpu-{number}"
        self.queue = f"sweeps-{uuid.uuid4().hex[:8]}"
        self.policy = policy or Policy()
        self.paused: dict[str, Pause] = {}
        self.follows_up = False
        self.storm: StormTerms | None = None
        self.storm_guard_hears = True
        self.shares: list[ShareReport] = []
        self.keep_for: timedelta | None = None
        self.record_fails = False
        #: With its machine where steady may restart the server: starts of its process are booked.
        self.guarded: dict[str, str] = {}
        self.looks: list[Reading | Exception] = []
        self.takes = timedelta(0)
        self.reports: list[Report] = []
        self.unsent: dict[str, str] = {}
        self.people = People()

    @property
    def name(self) -> str:
        return health_id(self.number)

    @property
    def schedule(self) -> ScheduleHandle:
        return self.client.get_schedule_handle(self.name)

    async def sweep(self, *looks: Reading | Exception) -> SweepResult:
        """Run one sweep for each look; return what the last one left.

        Raises:
            WorkflowFailureError: it failed; whoever expects that sees why in its cause.
        """
        results = [await (await self.start(look)).result() for look in looks]
        return results[-1]

    async def start(self, look: Reading | Exception) -> WorkflowHandle[Any, SweepResult]:
        """Set one sweep off, once the schedule knows that the one before has ended."""
        self.looks.append(look)
        before = await self._until(lambda info: not info.running_actions)
        await self.schedule.trigger()
        info = await self._until(lambda info: info.num_actions > before.num_actions)
        run = info.recent_actions[-1].action
        assert isinstance(run, ScheduleActionExecutionStartWorkflow)
        return self.client.get_workflow_handle(
            run.workflow_id, run_id=run.first_execution_run_id, result_type=SweepResult
        )

    async def _until(self, met: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(60):
            while not met(info := (await self.schedule.describe()).info):
                await asyncio.sleep(0.05)
        return info

    # --- the activities ---------------------------------------------------------------------------

    @activity.defn
    async def read_shard(self, request: SweepRequest) -> SweepReadings:
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        if self.takes:
            await asyncio.sleep(self.takes.total_seconds())
        return SweepReadings(
            interval=EVERY,
            version=1,
            readings=[replace(look, server=self.server)],
            policies=[self.policy],
            policy_of={self.server: 0},
            paused=self.paused,
            follows_up=self.follows_up,
            storm=self.storm,
            keep_for=self.keep_for,
            guarded=self.guarded,
        )

    @activity.defn
    async def report(self, batch: ReportBatch) -> ReportResult:
        self.reports += batch.reports
        return ReportResult(unsent=self.unsent)

    @activity.defn
    async def report_share(self, report: ShareReport) -> None:
        if not self.storm_guard_hears:
            raise ApplicationError("Temporal is away", type=STORM_GUARD_UNREACHABLE)
        self.shares.append(report)

    @activity.defn
    async def keep_readings(self, request: KeepRequest) -> None:
        if self.record_fails:
            raise ApplicationError("Temporal is out of reach", type="Unreachable")
        await RecordActivities(self.client).keep_readings(request)

    @property
    def told(self) -> list[AlertMessage]:
        return self.people.told

    def worker(self) -> Worker:
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=[HealthSweep, Alert, ReadingRecord, ServerGuard, HostGuard],
            activities=[
                *(self.read_shard, self.report, self.report_share, self.keep_readings),
                GuardActivities(self.client).report_starts,
                *self.people.activities,
            ],
        )


def broken() -> ApplicationError:
    """A look that fails for good, as one of a fleet that can't be asked."""
    return ApplicationError("no fleet is applied", type="NoFleet", non_retryable=True)


@asynccontextmanager
async def shard(
    client: Client, number: int = 0, policy: Policy | None = None, every: timedelta | None = None
) -> AsyncIterator[Shard]:
    """A shard with its schedule, and no worker yet. ``every``: it is set off by itself too."""
    made = Shard(client, number, policy)
    async with scheduled(made, every):
        yield made


@asynccontextmanager
async def scheduled(made: Shard, every: timedelta | None = None) -> AsyncIterator[None]:
    await made.client.create_schedule(
        made.name,
        Schedule(
            action=ScheduleActionStartWorkflow(
                made.workflow,
                SweepRequest(shard=made.number),
                id=made.name,
                task_queue=made.queue,
                run_timeout=timedelta(seconds=60),
            ),
            spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every or timedelta(days=9))]),
            policy=SchedulePolicy(
                overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(minutes=1)
            ),
        ),
    )
    try:
        yield
    finally:
        await made.schedule.delete()
