"""An engine that looks stuck, on virtual time: what is confirmed, what cleared, what healed."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities
from fleet.contracts.guard import GuardInput, Hold
from fleet.contracts.names import SERVER_GUARD, TASK_QUEUE, ask_id, guard_id
from fleet.contracts.remediation import Outcome, Phase, RemediationSignal
from fleet.engines.reading import Came
from fleet.engines.sglang import SGLANG
from fleet.policy import Policy, RollingBudget
from fleet.verdicts import Verdict
from tests.parts.engine_world import EngineWorld
from tests.parts.world import MINUTE
from worker.runner import PunctualRunner
from workflows.ask import AskEngine
from workflows.guard import ServerGuard
from workflows.remediation import Remediation

pytestmark = pytest.mark.anyio

POLICY = Policy(budget=RollingBudget(limit=3, window=timedelta(hours=24)))


@workflow.defn(name="AskForLong", sandboxed=False)
class AskForLong:
    """Holds the place of a request, as a probe does that waits for an answer."""

    @workflow.run
    async def run(self, minutes: int) -> None:
        await workflow.sleep(minutes * 60)


Enter = Callable[..., AbstractAsyncContextManager[EngineWorld]]


@pytest.fixture
def world(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """As in test_remediation, with an engine."""

    @asynccontextmanager
    async def enter(policy: Policy = POLICY) -> AsyncIterator[EngineWorld]:
        client = env.client
        a_world = EngineWorld(env, "v-1", policy)
        monkeypatch.setattr("workflows.case.raise_alert", a_world.write_down)
        guards = GuardActivities(client)
        worker = Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[Remediation, ServerGuard, AskEngine, AskForLong],
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
                GuardInput(server="v-1", founding=True),
                id=guard_id("v-1"),
                task_queue=TASK_QUEUE,
            )
            yield a_world

    return enter


async def no_incident(world: EngineWorld) -> bool:
    state = await world.env.client.get_workflow_handle(guard_id("v-1")).query(ServerGuard.state)
    return state.incident is None and not state.takes


async def test_a_witness_that_moves_clears_the_suspicion_without_a_request(world: Enter) -> None:
    async with world() as w:
        status = await w.end(await w.doubt())
        assert status.outcome is Outcome.NOT_CONFIRMED
        assert status.phase is Phase.CLOSED
        assert (w.asked, w.restarts, w.told) == ([], [], [])
        assert await no_incident(w)


async def test_one_that_answers_has_stale_gauges_and_was_asked_once(world: Enter) -> None:
    async with world() as w:
        w.stale = True
        began = await w.now()
        status = await w.end(await w.doubt())
        assert status.outcome is Outcome.NOT_CONFIRMED
        assert "its gauges are stale" in status.timeline[-1].text
        assert len(w.asked) == 1
        assert (w.restarts, w.told) == ([], [])
        assert await no_incident(w)
        # Two whole waits come before the request.
        assert w.asked[0] - began >= 2 * POLICY.confirm_wait


async def test_one_whose_page_is_written_rarely_is_watched_for_longer(world: Enter) -> None:
    async with world() as w:
        w.profile = SGLANG.name
        await w.freeze(timedelta(seconds=60))
        began = await w.now()
        status = await w.end(await w.doubt())
        assert (status.outcome, status.verdict) == (Outcome.RESOLVED, Verdict.STUCK)
        assert 2 * POLICY.confirm_wait < SGLANG.window <= w.asked[0] - began


async def test_frozen_under_load_it_is_stuck_and_restarted_once(world: Enter) -> None:
    async with world() as w:
        await w.freeze(timedelta(seconds=60))
        began = await w.now()
        status = await w.end(await w.doubt())
        assert (status.outcome, status.verdict) == (Outcome.RESOLVED, Verdict.STUCK)
        assert len(w.restarts) == 1
        assert w.causes == ["confirmed", "restarting", "resolved"]
        assert w.pages == []
        # It must have held from the first observation on, and the request was not repeated.
        assert w.restarts[0] - began >= POLICY.persist_hung
        assert len([at for at in w.asked if at < w.restarts[0]]) == 1


async def test_frozen_while_idle_it_is_unresponsive_after_two_unanswered_requests(
    world: Enter,
) -> None:
    async with world() as w:
        w.running = 0
        await w.freeze(timedelta(seconds=60))
        status = await w.end(await w.doubt(answer=Came.NONE))
        assert (status.outcome, status.verdict) == (Outcome.RESOLVED, Verdict.UNRESPONSIVE)
        assert len(w.restarts) == 1
        # One to confirm, one before the act, one to verify: each of an engine that shows nothing.
        assert len(w.asked) == 3


async def test_an_idle_one_that_answers_the_second_request_is_left_alone(world: Enter) -> None:
    async with world() as w:
        w.running = 0
        status = await w.end(await w.doubt(answer=Came.NONE))
        assert status.outcome is Outcome.NOT_CONFIRMED
        assert len(w.asked) == 1
        assert w.restarts == []


async def test_a_thaw_while_it_persists_ends_as_recovered(world: Enter) -> None:
    async with world() as w:
        await w.freeze(timedelta(seconds=60))
        handle = await w.doubt()
        while (await handle.query(Remediation.status)).phase is not Phase.PERSISTING:
            await w.env.sleep(timedelta(seconds=5))
        w.frozen_at = None
        assert (await w.end(handle)).outcome is Outcome.RECOVERED
        assert w.restarts == []


async def test_a_thaw_one_moment_before_the_command_stops_it(world: Enter) -> None:
    async with world() as w:
        await w.freeze(timedelta(seconds=60))

        def thaw() -> None:
            w.frozen_at = None

        w.before("collect_evidence", thaw)
        assert (await w.end(await w.doubt())).outcome is Outcome.RECOVERED
        assert w.restarts == []


async def test_a_restart_that_does_not_help_pages_and_stops_at_the_budget(world: Enter) -> None:
    async with world() as w:
        w.cure_works = False
        await w.freeze(timedelta(seconds=60))
        handle = await w.doubt()
        await w.env.sleep(timedelta(hours=3))
        status = await handle.query(Remediation.status)
        assert (status.phase, status.outcome) == (Phase.ESCALATED, Outcome.BUDGET_EXHAUSTED)
        assert len(w.restarts) == 3
        assert w.pages == ["not_recovered", "budget_exhausted"]
        w.frozen_at = None
        assert (await w.end(handle)).outcome is Outcome.BUDGET_EXHAUSTED


async def test_it_may_load_for_long_after_the_restart(world: Enter) -> None:
    async with world() as w:
        w.load = timedelta(minutes=13)
        await w.freeze(timedelta(seconds=60))
        status = await w.end(await w.doubt())
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1
        assert w.pages == []


@pytest.mark.parametrize("came", [Came.FAILED, Came.REFUSED, Came.ELSEWHERE])
async def test_what_proves_no_hang_goes_to_a_person_once(world: Enter, came: Came) -> None:
    async with world() as w:
        await w.freeze(timedelta(seconds=60))
        w.asks_fail = came
        status = await w.end(await w.doubt())
        assert status.outcome is Outcome.HANDED_OVER
        assert w.pages == ["handed_over"]
        assert w.restarts == []
        assert not await no_incident(w)


async def test_an_engine_that_says_itself_that_it_died_is_restarted_as_one_that_says_error(
    world: Enter,
) -> None:
    async with world() as w:
        await w.freeze(timedelta(seconds=60))
        w.asks_fail = Came.DIED
        began = await w.now()
        status = await w.end(await w.doubt())
        assert (status.outcome, status.verdict) == (Outcome.RESOLVED, Verdict.ERROR)
        assert len(w.restarts) == 1
        assert w.started_at is not None
        assert w.started_at - began >= POLICY.persist_error


@pytest.mark.parametrize("came", [Came.BUSY, Came.ASLEEP, Came.MOVED])
async def test_what_speaks_for_it_clears_the_suspicion(world: Enter, came: Came) -> None:
    async with world() as w:
        await w.freeze(timedelta(seconds=60))
        w.asks_fail = came
        assert (await w.end(await w.doubt())).outcome is Outcome.NOT_CONFIRMED
        assert w.told == []


async def test_a_suspicion_that_a_person_cancelled_stays_closed(world: Enter) -> None:
    async with world() as w:
        await w.freeze(timedelta(seconds=60))
        handle = await w.doubt()
        await w.env.sleep(timedelta(seconds=5))
        await handle.signal(RemediationSignal.CANCEL, {"who": "ann"})
        assert (await w.end(handle)).outcome is Outcome.CANCELLED
        state = await w.env.client.get_workflow_handle(guard_id("v-1")).query(ServerGuard.state)
        assert state.incident is not None
        assert state.incident.hold is Hold.CANCELLED
        assert (w.asked, w.restarts) == ([], [])


async def test_while_another_asks_the_remediation_waits_its_turn(world: Enter) -> None:
    async with world() as w:
        w.stale = True
        began = await w.now()
        other = await w.env.client.start_workflow(
            AskForLong.run, 1, id=ask_id("v-1"), task_queue=TASK_QUEUE
        )
        status = await w.end(await w.doubt())
        await other.result()
        assert status.outcome is Outcome.NOT_CONFIRMED
        assert len(w.asked) == 1
        assert w.asked[0] - began >= MINUTE


async def test_a_request_that_never_ends_holds_nothing_up_for_ever(world: Enter) -> None:
    async with world() as w:
        w.stale = True
        other = await w.env.client.start_workflow(
            AskForLong.run, 60, id=ask_id("v-1"), task_queue=TASK_QUEUE
        )
        status = await w.end(await w.doubt())
        assert status.outcome is Outcome.NOT_CONFIRMED
        assert "not known what came of the request" in status.timeline[-1].text
        assert w.asked == []
        await other.terminate()


def worker_dies() -> None:
    """To a workflow it is a request of which nobody ever says what came of it."""
    raise ApplicationError("activity Heartbeat timeout", non_retryable=True)


async def test_where_the_worker_dies_in_the_request_that_confirms_nothing_is_concluded(
    world: Enter,
) -> None:
    async with world() as w:
        await w.freeze(timedelta(seconds=60))
        w.before("ask_engine", worker_dies)
        status = await w.end(await w.doubt())
        assert status.outcome is Outcome.NOT_CONFIRMED
        assert "not known what came of the request" in status.timeline[-1].text
        assert (w.asked, w.restarts, w.told) == ([], [], [])
        assert await no_incident(w)
        # The next sweep that sees the same begins anew, and heals it.
        assert (await w.end(await w.doubt(key="sweep-2"))).outcome is Outcome.RESOLVED


async def test_where_the_worker_dies_in_the_last_request_before_the_act_the_remediation_goes_on(
    world: Enter,
) -> None:
    async with world() as w:
        w.running = 0
        await w.freeze(timedelta(seconds=60))
        handle = await w.doubt(answer=Came.NONE)
        while not w.asked:
            await w.env.sleep(timedelta(seconds=5))
        w.before("ask_engine", worker_dies)
        status = await w.end(handle)
        assert (status.outcome, len(w.restarts)) == (Outcome.RESOLVED, 1)
        assert any("the worker went away" in moment.text for moment in status.timeline)


async def test_where_the_worker_dies_in_the_request_that_verifies_it_is_asked_again(
    world: Enter,
) -> None:
    async with world() as w:
        w.running = 0
        await w.freeze(timedelta(seconds=60))
        handle = await w.doubt(answer=Came.NONE)
        while not w.restarts:
            await w.env.sleep(timedelta(seconds=5))
        before, lost = len(w.asked), []

        async def dies() -> None:
            lost.append(await w.now())
            worker_dies()

        w.before("ask_engine", dies)
        status = await w.end(handle)
        assert (status.outcome, len(w.restarts)) == (Outcome.RESOLVED, 1)
        assert len(w.asked) == before + 1
        assert w.pages == []
        # The lost one may be at the engine until its deadline of 60 s.
        assert w.asked[-1] - lost[0] >= MINUTE


async def test_where_every_request_dies_nothing_is_restarted_and_a_person_hears_of_it(
    world: Enter,
) -> None:
    async with world() as w:
        w.running = 0
        await w.freeze(timedelta(seconds=60))
        handle = await w.doubt(answer=Came.NONE)
        while not w.asked:
            await w.env.sleep(timedelta(seconds=5))
        # The page shows another start: what was proved is gone, and nothing new can be.
        w.generation += 1

        def always() -> None:
            w.before("ask_engine", always)
            worker_dies()

        w.before("ask_engine", always)
        began = await w.now()
        status = await w.end(handle)
        assert status.outcome is Outcome.HANDED_OVER
        assert (w.restarts, w.pages) == ([], ["handed_over"])
        assert await w.now() - began < 2 * POLICY.blind_limit
