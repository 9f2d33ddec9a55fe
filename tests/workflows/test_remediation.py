"""The story of one hung server on virtual time: hours and days pass in a second."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities
from fleet.contracts.alerts import AlertAction
from fleet.contracts.fleet import Pause
from fleet.contracts.guard import GuardInput, Hold
from fleet.contracts.host import Effect, HostStatus
from fleet.contracts.names import SERVER_GUARD, TASK_QUEUE, guard_id, remediation_id
from fleet.contracts.remediation import Outcome, Phase, RemediationSignal, RemediationStatus
from fleet.policy import Mode, Policy, RollingBudget
from fleet.readings import WorkState
from fleet.sweep import may_open
from fleet.verdicts import Verdict
from tests.parts.entered import guard_of
from tests.parts.world import MINUTE, World
from workflows.guard import ServerGuard
from workflows.host_guard import HostGuard
from workflows.remediation import Remediation

pytestmark = pytest.mark.anyio

PROMPT = Policy(budget=RollingBudget(limit=3, window=timedelta(hours=24)))

Enter = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def world(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Enter a world with a hung server, its guard and a worker.

    The time-skipping server stops skipping for good once a child outlives its parent, so here
    alerts are only written down; tests/integration sends them as the workflows that they are.
    """
    name = "gpu-1"

    @asynccontextmanager
    async def enter(policy: Policy = PROMPT) -> AsyncIterator[World]:
        client = env.client
        a_world = World(env, name, policy)
        await a_world.freeze()
        monkeypatch.setattr("workflows.case.raise_alert", a_world.write_down)
        guards = GuardActivities(client)
        worker = Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[Remediation, ServerGuard, HostGuard],
            activities=[
                *a_world.activities,
                guards.open_incident,
                guards.take_budget,
                guards.give_back,
                guards.close_incident,
                guards.report_starts,
            ],
        )
        async with worker:
            await client.start_workflow(
                SERVER_GUARD,
                GuardInput(server=name, founding=True),
                id=guard_id(name),
                task_queue=TASK_QUEUE,
            )
            yield a_world

    return enter


async def budget_used(world: World) -> int:
    handle = world.env.client.get_workflow_handle(guard_id(world.server))
    state = await handle.query(ServerGuard.state)
    return len(state.takes)


async def test_a_hung_server_is_restarted_once_and_ends_resolved(world: Enter) -> None:
    async with world() as w:
        began = await w.now()
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1
        assert await budget_used(w) == 1
        assert w.pages == []
        assert w.causes == ["confirmed", "restarting", "resolved"]
        assert len(w.evidence) == 1
        waited = w.restarts[0] - began
        assert timedelta(minutes=2) < waited < timedelta(minutes=4)


async def test_the_old_record_starts_nothing_while_the_server_boots(world: Enter) -> None:
    async with world() as w:
        w.boot = timedelta(minutes=9)
        handle = await w.report()
        for n in range(2, 13):
            await w.env.sleep(MINUTE)
            await w.report(key=f"sweep-{n}")
        status = await w.end(handle)
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1


async def test_a_server_that_recovers_within_the_delay_is_never_touched(world: Enter) -> None:
    async with world() as w:
        w.recovers_at = await w.now() + MINUTE
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RECOVERED
        assert w.restarts == []
        assert await budget_used(w) == 0
        assert w.evidence == []


async def test_a_recovery_that_a_sweep_reports_ends_the_incident_at_once(world: Enter) -> None:
    async with world() as w:
        handle = await w.report()
        w.frozen_at = None
        await w.report(Verdict.BUSY, key="sweep-2")
        began = await w.now()
        assert (await w.end(handle)).outcome is Outcome.RECOVERED
        assert await w.now() - began < MINUTE


async def test_a_recovery_one_moment_before_the_command_stops_it(world: Enter) -> None:
    async with world() as w:

        async def recover() -> None:
            w.frozen_at = None

        w.before("collect_evidence", recover)
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RECOVERED
        assert w.restarts == []
        assert await budget_used(w) == 0


async def test_fifty_reports_of_one_hang_make_one_workflow_and_one_restart(world: Enter) -> None:
    async with world() as w:
        handles = await asyncio.gather(*(w.report(key=f"sweep-{n}") for n in range(50)))
        await w.end(handles[0])
        assert len({handle.first_execution_run_id for handle in handles}) == 1
        assert len(w.restarts) == 1


async def test_the_clock_of_an_incident_starts_at_the_first_observation(world: Enter) -> None:
    async with world() as w:
        began = await w.now()
        handle = await w.report(since=began - timedelta(seconds=170))
        for n in range(2, 6):
            await w.report(since=began, key=f"sweep-{n}")
        await w.end(handle)
        assert w.restarts[0] - began < MINUTE


async def test_a_cure_that_does_not_help_pages_once_and_stops_at_the_budget(world: Enter) -> None:
    async with world() as w:
        w.cure_works = False
        handle = await w.report()
        await w.env.sleep(timedelta(hours=3))
        status: RemediationStatus = await handle.query(Remediation.status)
        assert status.phase is Phase.ESCALATED
        assert status.outcome is Outcome.BUDGET_EXHAUSTED
        assert len(w.restarts) == 3
        assert w.pages == ["not_recovered", "budget_exhausted"]
        w.frozen_at = None
        assert (await w.end(handle)).outcome is Outcome.BUDGET_EXHAUSTED
        assert w.causes[-1] == "recovered_later"
        first, *others, last = [alert.action for alert in w.told]
        assert (first, last) == (AlertAction.TRIGGER, AlertAction.RESOLVE)
        assert set(others) == {AlertAction.UPDATE}
        assert len({alert.incident for alert in w.told}) == 1


async def test_the_fourth_hang_within_a_day_is_not_restarted(world: Enter) -> None:
    async with world() as w:
        for n in range(3):
            status = await w.end(await w.report(key=f"hang-{n}"))
            assert status.outcome is Outcome.RESOLVED
            await w.freeze()
            w.recovers_at = None
        handle = await w.report(key="hang-4")
        await w.env.sleep(timedelta(minutes=30))
        status = await handle.query(Remediation.status)
        assert status.outcome is Outcome.BUDGET_EXHAUSTED
        assert len(w.restarts) == 3
        assert "budget_exhausted" in w.pages


@pytest.mark.parametrize(("recovers_after", "restarts"), [(29, 0), (None, 1)])
async def test_an_explicit_error_has_thirty_minutes(
    world: Enter, recovers_after: int | None, restarts: int
) -> None:
    async with world() as w:
        began = await w.now()
        w.state = WorkState.ERROR
        w.frozen_at = None

        async def work_again() -> None:
            w.state = WorkState.PROCESSING

        handle = await w.report(Verdict.ERROR, since=began)
        if recovers_after is not None:
            await w.env.sleep(timedelta(minutes=recovers_after))
            await work_again()
        else:
            w.before("restart_server", work_again)
        await w.end(handle)
        assert len(w.restarts) == restarts
        if restarts:
            assert timedelta(minutes=30) <= w.restarts[0] - began < timedelta(minutes=32)


async def test_an_error_that_becomes_a_hang_gets_the_clock_of_the_hang(world: Enter) -> None:
    async with world() as w:
        began = await w.now()
        w.state, w.frozen_at = WorkState.ERROR, None
        handle = await w.report(Verdict.ERROR, since=began)
        await w.env.sleep(5 * MINUTE)
        w.state = WorkState.PROCESSING
        await w.freeze()
        hung = await w.now()
        await w.report(Verdict.HUNG, since=hung, key="sweep-2")
        status = await w.end(handle)
        assert status.outcome is Outcome.RESOLVED
        assert 2 * MINUTE < w.restarts[0] - hung < 5 * MINUTE


async def test_a_host_that_cannot_be_reached_is_an_outcome_and_a_page_and_costs_nothing(
    world: Enter,
) -> None:
    async with world() as w:
        w.unreachable = True
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESTART_FAILED
        assert w.pages == ["restart_failed"]
        assert await budget_used(w) == 0
        w.unreachable = False
        status = await w.end(await w.report(key="sweep-2"))
        assert status.outcome is Outcome.RESOLVED
        assert status.incident is not None


async def test_a_connection_that_failed_before_the_command_gives_its_take_back(
    world: Enter,
) -> None:
    async with world() as w:

        def cut() -> None:
            w.unreachable = True

        w.before("restart_server", cut)
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESTART_FAILED
        assert await budget_used(w) == 0


async def test_a_lost_connection_is_settled_by_the_host_and_not_called_failed(
    world: Enter,
) -> None:
    async with world() as w:
        w.effect = Effect.UNKNOWN
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1
        assert await budget_used(w) == 1


async def test_a_lost_command_without_effect_is_told_and_keeps_its_take(world: Enter) -> None:
    async with world() as w:
        w.effect, w.takes_effect = Effect.UNKNOWN, False
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESTART_FAILED
        assert await budget_used(w) == 1
        assert w.pages == ["restart_failed"]


async def test_a_command_that_fails_tells_a_person_at_once(world: Enter) -> None:
    async with world() as w:
        w.effect = Effect.FAILED
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESTART_FAILED
        assert w.pages == ["restart_failed"]
        assert w.restarts == []


@pytest.mark.parametrize("status", [HostStatus.STOPPED, HostStatus.PAUSED, HostStatus.GONE])
async def test_what_somebody_stopped_is_never_started_by_us(
    world: Enter, status: HostStatus
) -> None:
    async with world() as w:

        def stop() -> None:
            w.status = status

        w.before("collect_evidence", stop)
        ended = await w.end(await w.report())
        assert ended.outcome is Outcome.HANDED_OVER
        assert w.restarts == []
        assert w.pages == ["handed_over"]


async def test_a_container_that_was_replaced_goes_to_a_person(world: Enter) -> None:
    async with world() as w:

        def replace() -> None:
            w.container = "container-2"

        w.before("collect_evidence", replace)
        assert (await w.end(await w.report())).outcome is Outcome.HANDED_OVER
        assert w.restarts == []


async def test_a_process_that_somebody_else_just_started_may_load(world: Enter) -> None:
    async with world() as w:

        async def restarted_by_somebody() -> None:
            w.generation += 1
            w.started_at = await w.now()
            w.recovers_at = w.started_at + 5 * MINUTE

        w.before("collect_evidence", restarted_by_somebody)
        assert (await w.end(await w.report())).outcome is Outcome.RECOVERED
        assert w.restarts == []
        assert await budget_used(w) == 1, "that start counts, though steady did not order it"


async def test_a_process_that_never_gets_through_its_boot_is_restarted_in_the_end(
    world: Enter,
) -> None:
    async with world() as w:

        async def restarted_by_somebody() -> None:
            w.generation += 1
            w.started_at = await w.now()

        w.before("collect_evidence", restarted_by_somebody)
        began = await w.now()
        assert (await w.end(await w.report())).outcome is Outcome.RESOLVED
        assert w.restarts[0] - began > 10 * MINUTE


async def test_facts_that_went_stale_are_read_again_before_the_command(world: Enter) -> None:
    async with world(Policy(reading_max_age=timedelta(seconds=20))) as w:

        async def outage() -> None:
            await w.env.sleep(timedelta(minutes=20))

        def at_the_last_look() -> None:
            w.before("inspect_host", outage)

        w.before("collect_evidence", at_the_last_look)
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1
        assert await budget_used(w) == 1
        assert any("went stale" in moment.text for moment in status.timeline)


async def test_dry_run_does_everything_but_the_command(world: Enter) -> None:
    async with world(Policy(mode=Mode.DRY_RUN)) as w:
        status = await w.end(await w.report())
        assert status.outcome is Outcome.DRY_RUN
        assert (w.restarts, len(w.evidence), await budget_used(w)) == ([], 1, 0)


async def test_alert_only_tells_and_prepares_nothing(world: Enter) -> None:
    async with world(Policy(mode=Mode.ALERT_ONLY)) as w:
        status = await w.end(await w.report())
        assert status.outcome is Outcome.ALERT_ONLY
        assert (w.restarts, w.evidence) == ([], [])
        assert w.pages == ["alert_only"]


async def test_alert_only_leaves_the_incident_closed_to_every_report_that_follows(
    world: Enter,
) -> None:
    """Until the mode is another one: else each sweep would begin a remediation anew."""
    async with world(Policy(mode=Mode.ALERT_ONLY)) as w:
        await w.end(await w.report())
        guard, now = await guard_of(w), await w.env.get_current_time()
        assert guard.incident is not None
        assert (guard.incident.hold, guard.incident.hold_mode) == (Hold.ALERT_ONLY, Mode.ALERT_ONLY)
        assert not may_open(guard, Mode.ALERT_ONLY, now)
        assert may_open(guard, Mode.ACT, now)


async def test_approve_waits_for_a_person(world: Enter) -> None:
    async with world(Policy(mode=Mode.APPROVE)) as w:
        handle = await w.report()
        await w.env.sleep(30 * MINUTE)
        assert (await handle.query(Remediation.status)).phase is Phase.APPROVING
        assert w.restarts == []
        await handle.signal(RemediationSignal.APPROVE, {"who": "ann", "why": "seen", "id": "a"})
        status = await w.end(handle)
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1
        assert status.answers["a"] == "approved"


async def test_nobody_who_approves_is_an_outcome_too(world: Enter) -> None:
    async with world(Policy(mode=Mode.APPROVE)) as w:
        status = await w.end(await w.report())
        assert status.outcome is Outcome.NOT_APPROVED
        assert w.restarts == []
        assert w.pages == ["approval", "not_approved"]


@pytest.mark.parametrize("change", ["pause", "remove", "mode"])
async def test_what_the_present_policy_forbids_at_the_last_moment_is_not_done(
    world: Enter, change: str
) -> None:
    async with world() as w:

        async def forbid() -> None:
            w.pause = Pause(until=await w.now() + 60 * MINUTE) if change == "pause" else None
            w.in_fleet = change != "remove"
            if change == "mode":
                w.policy = Policy(mode=Mode.ALERT_ONLY)

        w.before("collect_evidence", forbid)
        status = await w.end(await w.report())
        expected = {
            "pause": Outcome.PAUSED,
            "remove": Outcome.REMOVED,
            "mode": Outcome.ALERT_ONLY,
        }
        assert status.outcome is expected[change]
        assert w.restarts == []
        assert await budget_used(w) == 0


BEFORE_THE_COMMAND = ["present_policy", "read_server", "inspect_host", "collect_evidence"]


@pytest.mark.parametrize("step", BEFORE_THE_COMMAND)
async def test_cancel_before_the_command_ends_it_untouched(world: Enter, step: str) -> None:
    async with world() as w:
        sent = asyncio.Event()

        async def cancel() -> None:
            handle = w.env.client.get_workflow_handle(remediation_id(w.server))
            await handle.signal(RemediationSignal.CANCEL, {"who": "ann", "id": "c"})
            sent.set()
            await asyncio.sleep(1)  # under way still when the workflow gives the step up

        w.before(step, cancel)
        handle = await w.report()
        status = await w.end_of_given_up(handle, sent)
        assert status.outcome is Outcome.CANCELLED
        assert status.answers["c"] == "cancelled"
        assert (w.restarts, await budget_used(w)) == ([], 0)


async def test_cancel_after_the_command_is_too_late_and_stops_further_restarts(
    world: Enter,
) -> None:
    async with world() as w:
        w.cure_works = False
        handle = w.env.client.get_workflow_handle(remediation_id(w.server))

        async def cancel() -> None:
            await handle.signal(RemediationSignal.CANCEL, {"who": "ann", "id": "c"})

        w.before("restart_server", cancel)
        await w.report()
        await w.env.sleep(timedelta(hours=2))
        status = await handle.query(Remediation.status)
        assert status.answers["c"].startswith("too late, the command was sent")
        assert status.outcome is Outcome.ESCALATED
        assert len(w.restarts) == 1


async def test_a_cancellation_from_temporal_cleans_up_like_the_signal(world: Enter) -> None:
    async with world() as w:
        handle = await w.report()
        await w.env.sleep(timedelta(seconds=30))
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await w.end(handle)
        status = await handle.query(Remediation.status)
        assert status.outcome is Outcome.CANCELLED
        assert w.restarts == []
        guard = await w.env.client.get_workflow_handle(guard_id(w.server)).query(ServerGuard.state)
        assert guard.incident is not None
        assert guard.incident.hold == "cancelled"


async def test_a_cancelled_incident_stays_closed_until_a_person_reopens_it(world: Enter) -> None:
    async with world() as w:
        handle = await w.report()
        await handle.signal(RemediationSignal.CANCEL, "not now")
        assert (await w.end(handle)).outcome is Outcome.CANCELLED
        again = await w.end(await w.report(key="sweep-9"))
        assert again.outcome is Outcome.CANCELLED
        assert w.restarts == []
        by_hand = await w.order(RemediationSignal.RESTART_NOW, {"who": "ann", "id": "r"})
        status = await w.end(by_hand)
        assert status.outcome is Outcome.RESOLVED
        assert status.answers["r"].startswith("accepted")
        assert len(w.restarts) == 1


async def test_restart_now_does_not_wait_but_asks_the_budget(world: Enter) -> None:
    async with world(Policy(budget=RollingBudget(limit=1, window=timedelta(hours=24)))) as w:
        began = await w.now()
        w.frozen_at = None
        status = await w.end(await w.order(RemediationSignal.RESTART_NOW, {"who": "ann"}))
        assert status.outcome is Outcome.RESOLVED
        assert w.restarts[0] - began < MINUTE
        handle = await w.order(RemediationSignal.RESTART_NOW, {"who": "ann", "id": "r"})
        await w.env.sleep(MINUTE)
        status = await handle.query(Remediation.status)
        assert status.answers["r"].startswith("refused")
        assert len(w.restarts) == 1


async def test_a_snooze_puts_the_act_off(world: Enter) -> None:
    async with world() as w:
        handle = await w.report()
        began = await w.now()
        await handle.signal(RemediationSignal.SNOOZE, {"who": "ann", "for": "45m", "id": "s"})
        status = await w.end(handle)
        assert status.outcome is Outcome.RESOLVED
        assert w.restarts[0] - began >= 45 * MINUTE
        assert status.answers["s"].startswith("snoozed until")


async def test_a_signal_that_makes_no_sense_is_answered_and_changes_nothing(world: Enter) -> None:
    async with world() as w:
        handle = await w.report()
        await handle.signal(RemediationSignal.SNOOZE, {"id": "s", "for": "a while"})
        status = await w.end(handle)
        assert status.outcome is Outcome.RESOLVED
        assert "not understood" in status.answers["s"]


async def test_a_store_that_is_gone_for_five_minutes_restarts_nothing_and_then_goes_on(
    world: Enter,
) -> None:
    async with world() as w:
        began = await w.now()
        handle = await w.report()
        w.gone_until = began + 8 * MINUTE
        status = await w.end(handle)
        assert status.outcome is Outcome.RESOLVED
        assert w.restarts[0] >= w.gone_until
        assert w.restarts[0] - w.gone_until < 2 * MINUTE  # the incident's clock was never reset


async def test_a_workflow_terminated_by_hand_is_no_lock_for_the_next_hang(world: Enter) -> None:
    async with world() as w:
        handle = await w.report()
        await w.env.sleep(timedelta(seconds=20))
        await handle.terminate("by hand")
        status = await w.end(await w.report(key="sweep-2"))
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1


async def test_the_fifth_failed_try_is_the_last(world: Enter) -> None:
    async with world() as w:
        w.unreachable = True
        outcomes = [(await w.end(await w.report(key=f"sweep-{n}"))).outcome for n in range(7)]
        assert set(outcomes) == {Outcome.RESTART_FAILED}
        guard = await w.env.client.get_workflow_handle(guard_id(w.server)).query(ServerGuard.state)
        assert guard.incident is not None
        assert guard.incident.failed_tries == 5
        assert w.pages == ["restart_failed", "gave_up"]


async def test_an_unexpected_failure_ends_stated_and_pages(
    world: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as w:

        def boom(*_: object) -> None:
            message = "no such thing"
            raise RuntimeError(message)

        monkeypatch.setattr("workflows.decide.by_reading", boom)
        status = await w.end(await w.report())
        assert status.outcome is Outcome.INTERNAL_ERROR
        assert w.restarts == []
        assert w.pages == ["internal_error"]


async def test_evidence_that_cannot_be_collected_blocks_nothing(world: Enter) -> None:
    async with world() as w:

        def fail() -> None:
            message = "disk full"
            raise RuntimeError(message)

        w.before("collect_evidence", fail)
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1


async def test_a_long_load_is_waited_for_within_its_limit(world: Enter) -> None:
    async with world(Policy(load_limit=40 * MINUTE)) as w:
        w.boot = 35 * MINUTE
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1
        assert w.pages == []


async def test_a_load_past_its_limit_is_told_before_anything_else_is_tried(world: Enter) -> None:
    async with world(Policy(load_limit=20 * MINUTE)) as w:
        w.boot = 35 * MINUTE
        began = await w.now()
        await w.end(await w.report())
        assert w.pages[0] == "not_recovered"
        assert w.restarts[1] - w.restarts[0] >= 20 * MINUTE
        assert w.restarts[0] > began


async def test_a_process_that_was_started_yet_again_is_not_called_resolved(world: Enter) -> None:
    async with world() as w:
        w.boot = timedelta(seconds=30)
        handle = await w.report()
        await w.env.sleep(5 * MINUTE)
        assert len(w.restarts) == 1
        w.generation += 1  # it crashed, and the engine's restart policy started it
        status = await w.end(handle)
        assert "not_recovered" in w.pages
        assert status.outcome is Outcome.RECOVERED
        assert status.next_step == "restarted, and recovered later than was waited for"
        assert len(w.restarts) == 1


WORDS = [
    (RemediationSignal.SNOOZE, {"id": "s", "for": "1m"}),
    (RemediationSignal.APPROVE, {"id": "a"}),
    (RemediationSignal.RESTART_NOW, {"id": "r"}),
    (RemediationSignal.CANCEL, {"id": "c"}),
]


@pytest.mark.parametrize(
    "where",
    [
        (Phase.PERSISTING, Mode.ACT, timedelta(seconds=30)),
        (Phase.APPROVING, Mode.APPROVE, 5 * MINUTE),
        (Phase.COOLING, Mode.ACT, 5 * MINUTE),
        (Phase.ESCALATED, Mode.ACT, 60 * MINUTE),
    ],
)
@pytest.mark.parametrize("spoken", WORDS)
async def test_every_word_is_heard_and_answered_in_every_phase(
    world: Enter,
    where: tuple[Phase, Mode, timedelta],
    spoken: tuple[RemediationSignal, dict[str, str]],
) -> None:
    (phase, mode, after), (signal, word) = where, spoken
    async with world(Policy(mode=mode)) as w:
        w.cure_works = False
        handle = await w.report()
        await w.env.sleep(after)
        assert (await handle.query(Remediation.status)).phase is phase
        before = len(w.restarts)
        await handle.signal(signal, word)
        await w.env.sleep(3 * MINUTE)
        status: RemediationStatus = await handle.query(Remediation.status)
        assert word["id"] in status.answers
        if phase is Phase.COOLING:
            assert len(w.restarts) == before
        elif signal is RemediationSignal.CANCEL:
            assert status.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("words", [(), ("text",), (None,), (7, 8), ({"who": ["x"]}, "more")])
async def test_words_of_any_shape_never_harm_the_workflow(
    world: Enter, words: tuple[object, ...]
) -> None:
    async with world() as w:
        handle = await w.report()
        for name in ("observe", "snooze", "approve", "cancel"):
            await handle.signal(name, args=list(words))
        assert (await w.end(handle)).outcome is Outcome.CANCELLED


async def test_a_misspelt_word_leaves_a_trace_and_changes_nothing(world: Enter) -> None:
    async with world() as w:
        handle = await w.report()
        await handle.signal("restart", {"who": "ann"})
        status = await w.end(handle)
        assert status.outcome is Outcome.RESOLVED
        said = [moment.text for moment in status.timeline if "no such word" in moment.text]
        words = "cancel, restart_now, snooze, approve"
        assert said == [f"restart: no such word, nothing was done; there are {words}"]


async def test_a_cause_that_was_told_is_not_started_again(world: Enter) -> None:
    async with world(Policy(mode=Mode.APPROVE)) as w:
        handle = await w.report()
        for _ in range(6):
            await w.env.sleep(10 * MINUTE)
        history = await handle.fetch_history()
        await handle.signal(RemediationSignal.CANCEL)
        await w.end(handle)
        assert w.raised.count("approval") == 1
        assert len(history.events) > 100
