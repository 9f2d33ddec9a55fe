"""A world that is drilled: its process can be frozen, and sweeps that find it."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from activities.drill import DrillActivities
from fleet.config import Drill
from fleet.contracts.drill import (
    DrillErrorType,
    DrillInput,
    DrillOutcome,
    DrillPhase,
    DrillSignal,
    DrillStatus,
    FreezeOrder,
    Thawed,
    ThawOrder,
)
from fleet.contracts.host import Effect, HostErrorType, RestartResult
from fleet.contracts.names import DRILL, TASK_QUEUE, drill_id
from fleet.policy import Policy
from fleet.readings import WorkState
from tests.parts.world import World
from workflows.drill import Drill as DrillWorkflow

SWEEP = timedelta(seconds=30)


class DrillWorld(World):
    """Works, until a drill freezes it. ``swept`` is whether anybody looks."""

    def __init__(self, env: WorkflowEnvironment, name: str, policy: Policy) -> None:
        super().__init__(env, name, policy)
        self.drill = Drill()
        self.swept = True
        self.freezes: list[datetime] = []
        self.thaws: list[datetime] = []
        self.freeze_effect = Effect.DONE
        self.is_wrapper = False
        self.thaw_fails = 0
        self._reported: datetime | None = None

    async def begin(self, **words: Any) -> WorkflowHandle[Any, DrillStatus]:
        return await self.env.client.start_workflow(
            DRILL,
            DrillInput(server=self.server, who="ann", **words),
            id=drill_id(self.server),
            task_queue=TASK_QUEUE,
            result_type=DrillStatus,
        )

    async def drilled(self, handle: WorkflowHandle[Any, DrillStatus]) -> DrillStatus:
        """Let sweeps look, every 30 s, until the drill has ended.

        Raises:
            AssertionError: it is still open after six hours.
        """
        plain: WorkflowHandle[Any, DrillStatus] = self.env.client.get_workflow_handle(
            handle.id, result_type=DrillStatus
        )
        for _ in range(720):
            if (await plain.describe()).status is not WorkflowExecutionStatus.RUNNING:
                return await plain.result()
            await self.env.sleep(SWEEP)
            await self._sweep()
        message = "the drill is still open after six hours"
        raise AssertionError(message)

    async def _sweep(self) -> None:
        """Report a heartbeat that stands still, once, at the second look at it."""
        at = await self.now()
        beat = self._reading(at).heartbeat
        is_still = beat is not None and at - beat > self.policy.stale_after + SWEEP
        if self.swept and is_still and beat != self._reported:
            self._reported = beat
            await self.report(since=at - SWEEP, key=f"sweep-{at}")

    def _restarted(self, at: datetime) -> None:
        super()._restarted(at)
        self.recovers_at = at + self.boot if self.cure_works else None

    # --- the activities ---------------------------------------------------------------------------

    @activity.defn
    async def freeze_server(self, order: FreezeOrder) -> RestartResult:
        await self._answer("freeze_server")
        self._reach()
        if self.drill is None:
            raise ApplicationError(
                "it is not marked", type=DrillErrorType.NOT_MARKED, non_retryable=True
            )
        if not self._host().same_process(order.expected):
            raise ApplicationError(
                "another process", type=HostErrorType.SUPERSEDED, non_retryable=True
            )
        at = await self.now()
        if self.freeze_effect is not Effect.FAILED:
            self.freezes.append(at)
            self.frozen_at = None if self.is_wrapper else at
        return RestartResult(effect=self.freeze_effect)

    @activity.defn
    async def thaw_server(self, order: ThawOrder) -> Thawed:
        await self._answer("thaw_server")
        if self.thaw_fails:
            self.thaw_fails -= 1
            raise ApplicationError(
                "connection refused", type=HostErrorType.UNREACHABLE, non_retryable=True
            )
        if not self._host().same_process(order.frozen):
            return Thawed(needed=False, detail="another process runs there now")
        self.thaws.append(await self.now())
        self.frozen_at = None
        return Thawed(needed=True)

    @property
    def activities(self) -> list[Callable[..., Any]]:
        survey = DrillActivities(self, self.env.client).survey_server
        return [*super().activities, survey, self.freeze_server, self.thaw_server]

    async def present(self, server: str) -> Any:
        raise NotImplementedError


# --- drills to be recorded, in real seconds, by what they come to --------------------------------


async def _in_phase(world: DrillWorld, phase: DrillPhase) -> None:
    handle = world.env.client.get_workflow_handle_for(DrillWorkflow.run, drill_id(world.server))
    while (await handle.query(DrillWorkflow.status)).phase is not phase:
        await asyncio.sleep(0.05)


async def _begin(world: DrillWorld) -> None:
    await world.begin(search_attributes=True, why="to be recorded")


async def _healed(world: DrillWorld) -> None:
    """Caught between two jobs at first, then found."""

    def rests() -> None:
        world.state = WorkState.IDLE

    def works() -> None:
        world.state = WorkState.PROCESSING

    world.before("freeze_server", rests)
    world.before("thaw_server", works)
    await _begin(world)
    await _in_phase(world, DrillPhase.FINDING)
    await asyncio.sleep(2 * world.policy.stale_after.total_seconds())
    await world.report()


async def _cancelled(world: DrillWorld) -> None:
    await _begin(world)
    await _in_phase(world, DrillPhase.FINDING)
    handle = world.env.client.get_workflow_handle(drill_id(world.server))
    await handle.signal(DrillSignal.CANCEL, {"who": "ben"})


async def _never_busy(world: DrillWorld) -> None:
    world.state = WorkState.IDLE
    world.drill = Drill(wait_for_work=timedelta(seconds=2))
    await _begin(world)


async def _refused(world: DrillWorld) -> None:
    world.drill = None
    await _begin(world)


async def _not_frozen(world: DrillWorld) -> None:
    world.is_wrapper = True
    await _begin(world)


DRILLS: dict[DrillOutcome, Callable[[DrillWorld], Coroutine[Any, Any, None]]] = {
    DrillOutcome.HEALED: _healed,
    DrillOutcome.CANCELLED: _cancelled,
    DrillOutcome.NEVER_BUSY: _never_busy,
    DrillOutcome.REFUSED: _refused,
    DrillOutcome.NOT_FROZEN: _not_frozen,
}
