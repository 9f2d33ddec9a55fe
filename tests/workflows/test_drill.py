"""A drill on virtual time: what is frozen on purpose is found, healed, or let go on."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities
from fleet.config import Drill as Mark
from fleet.contracts.drill import DrillOutcome, DrillPhase, DrillSignal
from fleet.contracts.fleet import Pause
from fleet.contracts.guard import GuardInput, GuardUpdate, TakeRequest
from fleet.contracts.host import Effect, HostStatus
from fleet.contracts.names import SERVER_GUARD, TASK_QUEUE, guard_id, remediation_id
from fleet.contracts.remediation import Outcome, RemediationStatus
from fleet.policy import Mode, Policy, RollingBudget
from fleet.readings import WorkState
from tests.parts.drilled import DrillWorld
from tests.parts.world import MINUTE
from worker.runner import PunctualRunner
from workflows.drill import Drill
from workflows.guard import ServerGuard
from workflows.remediation import Remediation

pytestmark = pytest.mark.anyio

PROMPT = Policy(budget=RollingBudget(limit=3, window=timedelta(hours=24)))

Enter = Callable[..., AbstractAsyncContextManager[DrillWorld]]


@pytest.fixture
def world(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Enter a world with a server that works and is marked for drills, its guard and a worker."""

    @asynccontextmanager
    async def enter(policy: Policy = PROMPT) -> AsyncIterator[DrillWorld]:
        client = env.client
        a_world = DrillWorld(env, "gpu-1", policy)
        for place in ("workflows.case.raise_alert", "workflows.drill_book.raise_alert"):
            monkeypatch.setattr(place, a_world.write_down)
        guards = GuardActivities(client)
        worker = Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[Remediation, ServerGuard, Drill],
            activities=[
                *a_world.activities,
                guards.open_incident,
                guards.take_budget,
                guards.give_back,
                guards.close_incident,
            ],
            workflow_runner=PunctualRunner(),
        )
        async with worker:
            await client.start_workflow(
                SERVER_GUARD,
                GuardInput(server="gpu-1", founding=True),
                id=guard_id("gpu-1"),
                task_queue=TASK_QUEUE,
            )
            yield a_world

    return enter


async def take(world: DrillWorld, key: str) -> None:
    await world.env.client.get_workflow_handle(guard_id(world.server)).execute_update(
        GuardUpdate.TAKE,
        TakeRequest(
            server=world.server,
            incident="",
            key=key,
            budget=PROMPT.budget,
            cooldown=timedelta(seconds=1),
        ),
    )


async def test_what_is_frozen_is_found_restarted_once_and_healed_in_the_times_expected(
    world: Enter,
) -> None:
    async with world() as w:
        status = await w.drilled(await w.begin(why="after the update"))
        assert status.outcome is DrillOutcome.HEALED, status
        assert (len(w.freezes), len(w.restarts), w.thaws) == (1, 1, [])
        assert (status.restarts, status.is_frozen) == (1, False)
        frozen, goal = status.frozen_at, status.expected
        assert frozen is not None
        assert goal is not None
        assert status.found_at is not None
        assert status.restarted_at is not None
        assert status.works_at is not None
        assert status.healed_at is not None
        assert frozen < status.found_at < status.restarted_at <= status.works_at < status.healed_at
        assert goal.found == timedelta(minutes=3)
        assert goal.restarted == timedelta(minutes=5, seconds=40)
        assert goal.healed == timedelta(minutes=15, seconds=40)
        assert status.found_at - frozen < goal.found + MINUTE
        assert status.healed_at - frozen < goal.healed + 2 * MINUTE
        assert w.causes == ["frozen", "confirmed", "restarting", "resolved", "ended"]
        assert w.pages == []


async def test_what_was_seen_healed_needs_no_thaw(world: Enter) -> None:
    async with world() as w:
        w.thaw_fails = 99
        status = await w.drilled(await w.begin())
        assert (status.outcome, status.is_frozen) == (DrillOutcome.HEALED, False)
        assert w.pages == []


async def test_a_server_at_rest_is_waited_for_until_it_works(world: Enter) -> None:
    async with world() as w:
        w.state = WorkState.IDLE
        handle = await w.begin()
        await w.env.sleep(MINUTE)
        assert w.freezes == []
        w.state = WorkState.PROCESSING
        status = await w.drilled(handle)
        assert status.outcome is DrillOutcome.HEALED
        assert len(w.freezes) == 1


async def test_one_that_never_works_is_left_alone_and_nobody_is_bothered(world: Enter) -> None:
    async with world() as w:
        w.state = WorkState.IDLE
        status = await w.drilled(await w.begin())
        assert status.outcome is DrillOutcome.NEVER_BUSY
        assert "within 10m" in status.why
        assert (w.freezes, w.causes) == ([], [])


async def test_one_caught_between_two_jobs_is_let_go_on_and_caught_again(world: Enter) -> None:
    async with world() as w:

        def rests() -> None:
            w.state = WorkState.IDLE

        def works() -> None:
            w.state = WorkState.PROCESSING

        w.before("freeze_server", rests)
        w.before("thaw_server", works)
        status = await w.drilled(await w.begin())
        assert status.outcome is DrillOutcome.HEALED
        assert (len(w.freezes), len(w.thaws), len(w.restarts)) == (2, 1, 1)
        assert w.causes.count("frozen") == 1


class TestRefused:
    async def refused(self, w: DrillWorld) -> str:
        status = await w.drilled(await w.begin())
        assert status.outcome is DrillOutcome.REFUSED, status
        assert (w.freezes, w.thaws, w.restarts, w.causes) == ([], [], [], [])
        return status.why

    async def test_a_server_that_is_not_marked(self, world: Enter) -> None:
        async with world() as w:
            w.drill = None
            assert "[servers.gpu-1.drill]" in await self.refused(w)

    async def test_one_whose_mark_was_taken_off_at_the_last_moment(self, world: Enter) -> None:
        async with world() as w:

            def unmark() -> None:
                w.drill = None

            w.before("freeze_server", unmark)
            assert "not marked" in await self.refused(w)

    @pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.ACT])
    async def test_a_mode_in_which_nothing_would_heal_it(self, world: Enter, mode: Mode) -> None:
        async with world(PROMPT.model_copy(update={"mode": mode})) as w:
            assert f"its mode is {mode}" in await self.refused(w)

    async def test_a_pause(self, world: Enter) -> None:
        async with world() as w:
            w.pause = Pause(until=await w.now() + 60 * MINUTE, who="ann")
            assert "it is paused until" in await self.refused(w)

    async def test_a_budget_without_one_to_spare(self, world: Enter) -> None:
        async with world() as w:
            for number in range(2):
                await take(w, f"take {number}")
            await w.env.sleep(MINUTE)
            assert "1 restarts left" in await self.refused(w)

    async def test_a_cooldown_of_an_earlier_restart(self, world: Enter) -> None:
        async with world() as w:
            w.drill = Mark(spare=0)
            await w.env.client.get_workflow_handle(guard_id("gpu-1")).execute_update(
                GuardUpdate.TAKE,
                TakeRequest(
                    server="gpu-1",
                    incident="",
                    key="by hand",
                    budget=PROMPT.budget,
                    cooldown=60 * MINUTE,
                ),
            )
            assert "the cooldown lasts until" in await self.refused(w)

    async def test_an_open_incident(self, world: Enter) -> None:
        async with world() as w:
            await w.freeze()
            await w.report()
            handle = await w.begin()
            await w.env.sleep(timedelta(seconds=5))
            status = await handle.query(Drill.status)
            assert status.outcome is DrillOutcome.REFUSED
            assert "an incident of it is open: gpu-1@" in status.why
            assert w.freezes == []

    async def test_one_that_is_not_well(self, world: Enter) -> None:
        async with world() as w:
            w.state = WorkState.ERROR
            assert "it is not well: error" in await self.refused(w)

    async def test_a_container_that_does_not_run(self, world: Enter) -> None:
        async with world() as w:
            w.status = HostStatus.STOPPED
            assert "on the host it is stopped" in await self.refused(w)

    async def test_a_host_that_can_not_be_reached(self, world: Enter) -> None:
        async with world() as w:
            w.unreachable = True
            assert "the host can't be asked: connection refused" in await self.refused(w)

    async def test_a_process_that_was_replaced_since_it_was_looked_at(self, world: Enter) -> None:
        async with world() as w:

            def replace() -> None:
                w.generation += 1

            w.before("freeze_server", replace)
            assert "not frozen: another process" in await self.refused(w)


class TestNotHealed:
    async def test_what_nobody_finds_is_thawed_in_time_and_pages(self, world: Enter) -> None:
        async with world() as w:
            w.swept = False
            status = await w.drilled(await w.begin())
            assert status.outcome is DrillOutcome.NOT_FOUND
            assert "not found within 7m of the freeze" in status.why
            assert "state processing" in status.why
            assert (len(w.freezes), len(w.thaws), w.restarts) == (1, 1, [])
            assert w.thaws[0] - w.freezes[0] < 8 * MINUTE
            assert w.pages == ["ended"]

    async def test_a_restart_that_does_not_help_is_waited_for_to_its_end(
        self, world: Enter
    ) -> None:
        async with world(PROMPT.model_copy(update={"budget": RollingBudget(limit=2)})) as w:
            w.cure_works = False
            status = await w.drilled(await w.begin())
            assert status.outcome is DrillOutcome.NOT_HEALED
            assert w.thaws == []
            assert "not_recovered" in w.pages
            assert "ended" in w.pages

    async def test_a_restart_that_can_not_be_sent_leaves_it_thawed(self, world: Enter) -> None:
        async with world() as w:
            w.effect = Effect.FAILED
            status = await w.drilled(await w.begin())
            assert status.outcome is DrillOutcome.NOT_HEALED
            assert len(w.thaws) == 1
            assert w.frozen_at is None

    async def test_a_wrapper_that_was_frozen_instead_of_the_worker_is_told_and_thawed(
        self, world: Enter
    ) -> None:
        async with world() as w:
            w.is_wrapper = True
            status = await w.drilled(await w.begin())
            assert status.outcome is DrillOutcome.NOT_FROZEN
            assert "set freeze and thaw" in status.why
            assert (len(w.thaws), w.restarts) == (1, [])

    async def test_a_command_that_fails_freezes_nothing(self, world: Enter) -> None:
        async with world() as w:
            w.freeze_effect = Effect.FAILED
            status = await w.drilled(await w.begin())
            assert status.outcome is DrillOutcome.FAILED
            assert status.is_frozen is False
            assert w.restarts == []

    async def test_a_command_whose_end_was_not_seen_counts_as_frozen(self, world: Enter) -> None:
        async with world() as w:
            w.freeze_effect = Effect.UNKNOWN
            status = await w.drilled(await w.begin())
            assert status.outcome is DrillOutcome.HEALED


class TestCancelled:
    async def until(self, w: DrillWorld, handle: Any, phase: DrillPhase) -> None:
        for _ in range(60):
            if (await handle.query(Drill.status)).phase is phase:
                return
            await w.env.sleep(timedelta(seconds=1))
        raise AssertionError((await handle.query(Drill.status)).phase)

    async def test_by_a_word_it_is_thawed_and_the_incident_recovers(self, world: Enter) -> None:
        async with world() as w:
            handle = await w.begin()
            await self.until(w, handle, DrillPhase.FINDING)
            await handle.signal(DrillSignal.CANCEL, {"who": "ben", "why": "a real load"})
            status = await w.drilled(handle)
            assert status.outcome is DrillOutcome.CANCELLED
            assert status.why == "by ben: a real load"
            assert (len(w.thaws), w.restarts, status.is_frozen) == (1, [], False)

    async def test_by_temporal_it_is_thawed_as_well(self, world: Enter) -> None:
        async with world() as w:
            handle = await w.begin()
            await self.until(w, handle, DrillPhase.FINDING)
            await handle.cancel()
            with pytest.raises(WorkflowFailureError):
                await w.drilled(handle)
            assert len(w.thaws) == 1
            assert (await handle.query(Drill.status)).outcome is DrillOutcome.CANCELLED

    async def test_while_it_is_being_healed_the_remediation_goes_on(self, world: Enter) -> None:
        async with world() as w:
            handle = await w.begin()

            async def cancel() -> None:
                await handle.signal(DrillSignal.CANCEL)

            w.before("restart_server", cancel)
            status = await w.drilled(handle)
            assert status.outcome is DrillOutcome.CANCELLED
            healing: WorkflowHandle[Any, RemediationStatus] = w.env.client.get_workflow_handle(
                remediation_id(w.server), result_type=RemediationStatus
            )
            seen = await w.end(healing)
            assert seen.outcome in (Outcome.RESOLVED, Outcome.RECOVERED)
            assert w.frozen_at is None or len(w.restarts) == 1

    async def test_before_anything_was_frozen_nobody_is_told(self, world: Enter) -> None:
        async with world() as w:
            w.state = WorkState.IDLE
            handle = await w.begin()
            await self.until(w, handle, DrillPhase.WAITING)
            await handle.signal(DrillSignal.CANCEL)
            status = await w.drilled(handle)
            assert (status.outcome, w.freezes, w.causes) == (DrillOutcome.CANCELLED, [], [])


async def test_what_can_not_be_thawed_pages_once_and_is_tried_until_it_can(world: Enter) -> None:
    async with world() as w:
        w.swept, w.thaw_fails = False, 7
        status = await w.drilled(await w.begin())
        assert len(w.thaws) == 1
        assert status.is_frozen is False
        assert w.pages.count("still_frozen") == 1


async def test_a_server_that_leaves_the_fleet_in_a_drill_is_thawed(world: Enter) -> None:
    async with world() as w:

        def remove() -> None:
            w.in_fleet = False

        w.before("collect_evidence", remove)
        status = await w.drilled(await w.begin())
        assert status.outcome is DrillOutcome.NOT_HEALED
        assert (len(w.thaws), w.restarts) == (1, [])
