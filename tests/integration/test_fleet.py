"""The fleet, its guards and its schedules on the real server."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleOverlapPolicy,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WithStartWorkflowOperation,
)
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.guards import GuardActivities
from activities.ledgers import GuardReader
from activities.policies import PolicyReader
from activities.schedules import ScheduleActivities
from fleet.config import Fleet
from fleet.contracts.fleet import (
    ApplyRequest,
    ApplyResult,
    FleetState,
    FleetUpdate,
    Pause,
    PauseRequest,
)
from fleet.contracts.guard import TakeRequest, TakeResult
from fleet.contracts.names import FLEET, FLEET_ID, HEALTH_SWEEP, guard_id, health_id
from fleet.contracts.sweep import SweepRequest
from fleet.ledger import local_day
from fleet.policy import DailyBudget, RollingBudget
from tests.parts.temporal import QUICK_TIMERS, DevServer, dev_server
from workflows.fleet import FleetWorkflow
from workflows.guard import ServerGuard

pytestmark = pytest.mark.anyio

QUEUE = "steady-under-test"


@workflow.defn(name=HEALTH_SWEEP, sandboxed=False)
class Sweep:
    """Stands for the real sweep: says which shard it was started for."""

    @workflow.run
    async def run(self, request: SweepRequest) -> int:
        return request.shard


@workflow.defn(sandboxed=False)
class Asker:
    @workflow.run
    async def run(self, request: TakeRequest) -> TakeResult:
        return await workflow.execute_activity_method(
            GuardActivities.take_budget,
            request,
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(maximum_attempts=20),
        )


def fleet(*names: str, **section: Any) -> Fleet:
    servers = {n: {"source": {"kind": "status", "url": f"http://127.0.0.1/{n}"}} for n in names}
    return Fleet.model_validate({"servers": servers, "fleet": {"sweep_every": "1h", **section}})


def crowd(shards: int, **section: Any) -> Fleet:
    return fleet(*(f"gpu-{number}" for number in range(shards)), shard_size=1, **section)


class Desk:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.reader = PolicyReader(client)

    async def apply(self, a_fleet: Fleet) -> ApplyResult:
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            FLEET,
            FleetState(),
            id=FLEET_ID,
            task_queue=QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        result: ApplyResult = await self.client.execute_update_with_start_workflow(
            FleetUpdate.APPLY,
            ApplyRequest(fleet=a_fleet),
            start_workflow_operation=start,
            result_type=ApplyResult,
        )
        return result

    async def pause(self, span: timedelta) -> Pause:
        pause: Pause = await self.client.get_workflow_handle(FLEET_ID).execute_update(
            FleetUpdate.PAUSE, PauseRequest(span=span), result_type=Pause
        )
        return pause

    async def take(self, key: str, **facts: Any) -> TakeResult:
        base = {"server": "gpu-0", "incident": "", "key": key, "cooldown": timedelta(minutes=10)}
        return await self.client.execute_workflow(
            Asker.run,
            TakeRequest.model_validate({**base, "budget": RollingBudget(limit=3), **facts}),
            id=str(uuid.uuid4()),
            task_queue=QUEUE,
        )

    def schedule(self, shard: int) -> ScheduleHandle:
        return self.client.get_schedule_handle(health_id(shard))

    async def schedules(self) -> list[str]:
        """The schedules that exist, asked for one by one: the list lags behind."""
        found = []
        for shard in range(12):
            try:
                await self.schedule(shard).describe()
            except RPCError:
                continue
            found.append(health_id(shard))
        return found

    async def listed(self) -> set[str]:
        return {entry.id async for entry in await self.client.list_schedules()}


@asynccontextmanager
async def working(server: DevServer) -> AsyncIterator[Desk]:
    client = await server.client()
    guards = GuardActivities(client)
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[FleetWorkflow, ServerGuard, Sweep, Asker],
        activities=[
            ScheduleActivities(client).reconcile,
            guards.found_guards,
            guards.take_budget,
        ],
    ):
        yield Desk(client)


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    async with dev_server(tmp_path_factory.mktemp("temporal")) as running:
        yield running


@pytest.fixture
async def desk(server: DevServer) -> AsyncIterator[Desk]:
    async with working(server) as desk:
        yield desk


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await met():
            await asyncio.sleep(0.1)


class TestSchedules:
    async def test_are_as_the_design_says(self, desk: Desk) -> None:
        await desk.apply(crowd(2, sweep_every="30s"))

        found = await desk.schedule(1).describe()

        action = found.schedule.action
        assert isinstance(action, ScheduleActionStartWorkflow)
        assert (action.workflow, action.task_queue) == (HEALTH_SWEEP, QUEUE)
        assert action.run_timeout == timedelta(minutes=1)
        assert [each.every for each in found.schedule.spec.intervals] == [timedelta(seconds=30)]
        assert found.schedule.policy.overlap is ScheduleOverlapPolicy.SKIP
        assert found.schedule.policy.catchup_window == timedelta(minutes=1)

    async def test_start_the_sweep_of_their_shard(self, desk: Desk) -> None:
        await desk.apply(crowd(2, sweep_every="1s"))

        async def has_run() -> bool:
            return bool((await desk.schedule(1).describe()).info.recent_actions)

        await until(has_run)
        run = (await desk.schedule(1).describe()).info.recent_actions[0].action

        workflow_id = getattr(run, "workflow_id", "")
        assert workflow_id.startswith("health/1-")
        assert await desk.client.get_workflow_handle(workflow_id).result() == 1

    async def test_are_deleted_with_their_shards_at_once(self, desk: Desk) -> None:
        await desk.apply(crowd(6))
        grown = await desk.schedules()

        result = await desk.apply(crowd(2))

        assert grown == [health_id(number) for number in range(6)]
        assert result.schedules == await desk.schedules() == ["health/0", "health/1"]

    async def test_are_found_beyond_a_gap_that_somebody_left(self, desk: Desk) -> None:
        await desk.apply(crowd(5))
        await desk.schedule(2).delete()

        async def shows() -> bool:
            return {"health/3", "health/4"} <= await desk.listed()

        await until(shows)
        await desk.apply(crowd(1))

        assert await desk.schedules() == ["health/0"]

    async def test_of_others_are_left_alone(self, desk: Desk) -> None:
        await desk.apply(crowd(1))
        mine = (await desk.schedule(0).describe()).schedule
        others = ("health/report", "health-7", "backup/7")
        for other in others:
            await desk.client.create_schedule(other, mine)

        async def shows() -> bool:
            return set(others) <= await desk.listed()

        await until(shows)
        await desk.apply(crowd(1))

        for other in others:
            handle = desk.client.get_schedule_handle(other)
            assert (await handle.describe()).id == other
            await handle.delete()

    async def test_stay_paused_where_a_person_paused_them_also_when_they_change(
        self, desk: Desk
    ) -> None:
        await desk.apply(crowd(1))
        await desk.schedule(0).pause(note="moving the rack")

        await desk.apply(crowd(1))
        await desk.apply(crowd(1, sweep_every="30m"))

        found = (await desk.schedule(0).describe()).schedule
        assert found.spec.intervals[0].every == timedelta(minutes=30)
        assert (found.state.paused, found.state.note) == (True, "moving the rack")
        await desk.schedule(0).unpause()

    async def test_that_nothing_changed_for_are_not_written(self, desk: Desk) -> None:
        await desk.apply(crowd(1))
        before = await desk.schedule(0).describe()

        await desk.apply(crowd(1))

        assert _written(await desk.schedule(0).describe()) == _written(before)
        await desk.apply(crowd(1, sweep_every="30m"))
        assert _written(await desk.schedule(0).describe()) != _written(before)

    async def test_that_somebody_changed_are_mended(self, desk: Desk) -> None:
        await desk.apply(crowd(1))

        def spoil(now: ScheduleUpdateInput) -> ScheduleUpdate:
            spoiled: Schedule = now.description.schedule
            spoiled.policy.overlap = ScheduleOverlapPolicy.ALLOW_ALL
            return ScheduleUpdate(schedule=spoiled)

        await desk.schedule(0).update(spoil)
        await desk.apply(crowd(1))

        found = (await desk.schedule(0).describe()).schedule
        assert found.policy.overlap is ScheduleOverlapPolicy.SKIP


def _written(description: ScheduleDescription) -> datetime | None:
    return description.info.last_updated_at


async def test_a_pause_that_ran_out_while_the_fleet_slept_is_not_passed_on(desk: Desk) -> None:
    """A query does not move the workflow's clock, so the reader looks at its own."""
    await desk.apply(crowd(1))

    pause = await desk.pause(timedelta(milliseconds=300))
    during = (await desk.reader.present("gpu-0")).pause
    await asyncio.sleep(max(0, (pause.until - datetime.now(UTC)).total_seconds()))

    assert during in (pause, None)
    assert (await desk.reader.state()).fleet_pause == pause
    assert (await desk.reader.present("gpu-0")).pause is None
    assert (await desk.reader.shard(0)).paused == {}


async def test_a_calendar_day_is_that_of_the_named_zone(desk: Desk) -> None:
    await desk.apply(fleet("daily"))
    zone = "Australia/Lord_Howe"
    _, end = local_day(zone, datetime.now(UTC))
    budget = DailyBudget(limit=1, per_day_in=zone)

    granted = await desk.take("first", server="daily", budget=budget)
    refused = await desk.take("second", server="daily", budget=budget)

    assert granted.granted
    if local_day(zone, datetime.now(UTC))[1] == end:
        assert (refused.granted, refused.next_at) == (False, end)


async def test_fifty_starters_at_once_share_one_budget(desk: Desk) -> None:
    await desk.apply(fleet("contested"))

    answers = await asyncio.gather(
        *(desk.take(f"incident-{number}", server="contested") for number in range(50))
    )

    assert sum(answer.granted for answer in answers) == 3


async def test_all_is_carried_when_history_has_grown_long(tmp_path: Path) -> None:
    short = "limit.historyCount.suggestContinueAsNew=30"
    settings = (QUICK_TIMERS, short)
    async with dev_server(tmp_path, settings=settings) as server, working(server) as desk:
        await desk.apply(crowd(1))
        first = await _runs(desk.client)
        for number in range(20):
            await desk.take(f"key-{number}")
            await desk.apply(crowd(1))
            await desk.pause(timedelta(hours=1))
        last = await _runs(desk.client)

        guard = await GuardReader(desk.client).state("gpu-0")
        state = await desk.reader.state()
        retried = await desk.take("key-0")

    assert all(before != after for before, after in zip(first, last, strict=True))
    assert guard is not None
    assert [taken.key for taken in guard.takes] == ["key-0", "key-1", "key-2"]
    assert guard.lost_at is None
    assert retried.granted
    assert (state.version, state.fleet) == (1, crowd(1))
    assert state.fleet_pause is not None


async def _runs(client: Client) -> list[str]:
    return [
        (await client.get_workflow_handle(each).describe()).run_id
        for each in (FLEET_ID, guard_id("gpu-0"))
    ]


async def test_all_is_there_after_the_server_was_killed(tmp_path: Path) -> None:
    async with dev_server(tmp_path, in_file=True) as server, working(server) as desk:
        await desk.apply(crowd(2))
        for key in ("first", "second", "third"):
            await desk.take(key)

        server.kill()
        await server.start()
        refused = await desk.take("fourth")

        assert not refused.granted
        assert (await desk.reader.state()).version == 1
        assert await desk.schedules() == ["health/0", "health/1"]
