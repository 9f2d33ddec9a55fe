"""Many servers turn bad, one ``storm-guard``: who is restarted when, and when nobody is."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.storms import STORM_GUARD_UNREACHABLE
from fleet.contracts.alerts import AlertAction, Severity
from fleet.contracts.names import TASK_QUEUE, remediation_id
from fleet.contracts.remediation import Outcome, Phase, RemediationSignal, RemediationStatus
from fleet.contracts.storm import OpenByHand, Opened, SlotAsk, StormSignal, StormUpdate
from fleet.policy import Mode, Policy, RollingBudget, Storm
from fleet.verdicts import Verdict
from tests.parts.town import Town
from tests.parts.world import MINUTE
from tests.workflows.test_incurable import OFF_THE_BUS
from workflows.guard import ServerGuard
from workflows.remediation import Remediation
from workflows.storm import StormGuard

pytestmark = pytest.mark.anyio

Enter = Callable[..., AbstractAsyncContextManager[Town]]
Handle = WorkflowHandle[Any, RemediationStatus]

NAMES = ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
STORM = Storm(restarts_at_once=1, window=10 * MINUTE, cooldown=10 * MINUTE, page_after=30 * MINUTE)


@pytest.fixture
def town(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Enter a town of four servers, all of them hung, with their guards and a worker."""

    @asynccontextmanager
    async def enter(
        storm: Storm = STORM, policy: Policy | None = None, **instead: Callable[..., Any]
    ) -> AsyncIterator[Town]:
        made = Town(env, NAMES, policy or Policy(), storm)
        for world in made.worlds.values():
            await world.freeze()
        monkeypatch.setattr("workflows.case.raise_alert", made.write_down)
        monkeypatch.setattr("workflows.alerting.raise_alert", made.write_down)
        used = [instead.pop(each.__name__, each) for each in made.activities]
        async with Worker(
            env.client,
            task_queue=TASK_QUEUE,
            workflows=[Remediation, ServerGuard, StormGuard],
            activities=used,
        ):
            await made.found()
            yield made

    return enter


async def status_of(handle: Handle) -> RemediationStatus:
    return await handle.query(Remediation.status)


async def until_phase(t: Town, handle: Handle, phase: Phase) -> RemediationStatus:
    status = await status_of(handle)
    for _ in range(120):
        if status.phase is phase:
            return status
        await t.env.sleep(timedelta(seconds=20))
        status = await status_of(handle)
    raise AssertionError(f"it never came to {phase}: {status}")


async def waits_behind(t: Town, holder: str, other: str) -> tuple[Handle, Handle]:
    """The first holds the only slot and was restarted; the other waits for it."""
    first = await t[holder].report()
    await until_phase(t, first, Phase.COOLING)
    second = await t[other].report()
    await until_phase(t, second, Phase.WAITING)
    return first, second


# --- so many at once -----------------------------------------------------------------------------


async def test_a_second_server_waits_for_the_first_and_says_what_blocks_it_and_until_when(
    town: Enter,
) -> None:
    async with town() as t:
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        waiting = await status_of(second)
        assert waiting.next_step.startswith("blocked by the limit of 1 at once (gpu-1 now)")
        assert " until about " in waiting.next_step
        assert waiting.next_at is not None
        began = t["gpu-1"].restarts[0]
        assert abs(waiting.next_at - began - 10 * MINUTE) < MINUTE
        assert any("blocked by the limit" in moment.text for moment in waiting.timeline)
        ends = [await t["gpu-1"].end(first), await t["gpu-2"].end(second)]
        assert [end.outcome for end in ends] == [Outcome.RESOLVED] * 2
        assert t["gpu-2"].restarts[0] - began >= 10 * MINUTE
        state = await t.state()
        assert (state.holders, state.waiting) == ([], [])


async def test_those_that_wait_have_their_turn_in_the_order_in_which_they_asked(
    town: Enter,
) -> None:
    async with town(STORM.model_copy(update={"page_after": 60 * MINUTE})) as t:
        handles = dict(zip(NAMES, [await t[name].report() for name in NAMES], strict=True))
        ends = [await t[name].end(handle) for name, handle in handles.items()]
        assert [end.outcome for end in ends] == [Outcome.RESOLVED] * 4
        moments = sorted(t[name].restarts[0] for name in NAMES)
        gaps = [after - before for before, after in pairwise(moments)]
        assert min(gaps) >= 10 * MINUTE
        assert max(gaps) < 12 * MINUTE
        assert t.told == []


async def test_a_server_that_recovers_while_it_waits_costs_nothing(town: Enter) -> None:
    async with town() as t:
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        t["gpu-2"].frozen_at = None
        await t["gpu-2"].report(Verdict.BUSY, key="sweep-2")
        end = await t["gpu-2"].end(second)
        assert end.outcome is Outcome.RECOVERED
        assert t["gpu-2"].restarts == []
        assert await t.budget_used("gpu-2") == 0
        assert (await t.state()).waiting == []
        assert (await t["gpu-1"].end(first)).outcome is Outcome.RESOLVED


async def test_what_is_seen_of_a_server_while_it_waits_is_looked_for_without_a_sweep_too(
    town: Enter,
) -> None:
    async with town() as t:
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        t["gpu-2"].frozen_at = None
        assert (await t["gpu-2"].end(second)).outcome is Outcome.RECOVERED
        assert (await status_of(first)).outcome is None


@pytest.mark.parametrize("word", [RemediationSignal.CANCEL, RemediationSignal.SNOOZE])
async def test_a_person_is_heard_while_it_waits_and_the_queue_moves_up(
    town: Enter, word: RemediationSignal
) -> None:
    async with town() as t:
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        third = await t["gpu-3"].report()
        await until_phase(t, third, Phase.WAITING)
        await second.signal(word, {"who": "ann", "for": "2h"})
        assert (await t["gpu-1"].end(first)).outcome is Outcome.RESOLVED
        assert (await t["gpu-3"].end(third)).outcome is Outcome.RESOLVED
        assert t["gpu-2"].restarts == []
        assert "gpu-2" not in [lease.server for lease in (await t.state()).waiting]
        if word is RemediationSignal.CANCEL:
            assert (await t["gpu-2"].end(second)).outcome is Outcome.CANCELLED
        else:
            await t["gpu-2"].end(second)
            assert t["gpu-2"].restarts[0] - t["gpu-3"].restarts[0] > 60 * MINUTE


async def test_the_slot_of_a_run_that_was_terminated_is_freed_for_who_waits(town: Enter) -> None:
    async with town() as t:
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        at = await t.now()
        await first.terminate("by hand")
        assert (await t["gpu-2"].end(second)).outcome is Outcome.RESOLVED
        assert t["gpu-2"].restarts[0] - at <= 3 * MINUTE


async def test_the_next_restart_of_an_incident_keeps_its_slot(town: Enter) -> None:
    async with town() as t:
        t["gpu-1"].cure_works = False

        def works_next_time() -> None:
            def cure() -> None:
                t["gpu-1"].cure_works = True

            t["gpu-1"].before("restart_server", cure)

        t["gpu-1"].before("restart_server", works_next_time)
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        assert (await t["gpu-1"].end(first)).outcome is Outcome.RESOLVED
        assert (await t["gpu-2"].end(second)).outcome is Outcome.RESOLVED
        assert len(t["gpu-1"].restarts) == 2
        assert t["gpu-2"].restarts[0] > t["gpu-1"].restarts[1]


async def test_who_is_given_up_gives_the_slot_back(town: Enter) -> None:
    async with town(policy=Policy(budget=RollingBudget(limit=1))) as t:
        t["gpu-1"].cure_works = False
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        assert (await t["gpu-2"].end(second)).outcome is Outcome.RESOLVED
        assert (await status_of(first)).phase is Phase.ESCALATED
        assert (await t.state()).holders == []


async def test_a_persons_order_does_not_wait_but_others_wait_for_it(town: Enter) -> None:
    async with town() as t:
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        await second.signal(RemediationSignal.RESTART_NOW, {"who": "ann", "id": "1"})
        await until_phase(t, second, Phase.COOLING)
        assert (await status_of(second)).answers["1"].startswith("accepted")
        assert [lease.by_hand for lease in (await t.state()).holders] == [False, True]
        third = await t["gpu-3"].report()
        waiting = await until_phase(t, third, Phase.WAITING)
        assert "gpu-1, gpu-2 now" in waiting.next_step
        for name, handle in (("gpu-1", first), ("gpu-2", second), ("gpu-3", third)):
            assert (await t[name].end(handle)).outcome is Outcome.RESOLVED
        assert t["gpu-3"].restarts[0] - t["gpu-2"].restarts[0] >= 10 * MINUTE


async def test_a_dry_run_waits_for_its_turn_as_well(town: Enter) -> None:
    async with town(policy=Policy(mode=Mode.DRY_RUN)) as t:
        await t.sweep(*NAMES)
        handle = await t["gpu-1"].report()
        await until_phase(t, handle, Phase.WAITING)
        await t.sweep()
        assert (await t["gpu-1"].end(handle)).outcome is Outcome.DRY_RUN
        assert (await t.state()).holders == []


async def test_a_restart_that_waits_for_its_turn_for_too_long_pages_and_again(town: Enter) -> None:
    storm = STORM.model_copy(update={"page_after": 5 * MINUTE})
    async with town(storm) as t:
        handles = {name: await t[name].report() for name in NAMES[:3]}
        for name, handle in handles.items():
            assert (await t[name].end(handle)).outcome is Outcome.RESOLVED
        assert t.causes == ["slots_awaited-1", "slots_awaited-2", "slots_awaited-3"]
        assert {alert.severity for alert in t.told} == {Severity.PAGE}
        assert [alert.action for alert in t.told[:2]] == [AlertAction.TRIGGER, AlertAction.UPDATE]
        assert " wait; at once may be restarted 1: now gpu-" in t.told[0].detail


# --- a fleet-wide suspicion ----------------------------------------------------------------------


async def test_nothing_is_restarted_while_much_of_a_shard_is_bad_and_then_all_is_judged_anew(
    town: Enter,
) -> None:
    async with town() as t:
        await t.sweep(*NAMES[:3])
        handles = [await t[name].report() for name in NAMES[:3]]
        for handle in handles:
            waiting = await until_phase(t, handle, Phase.WAITING)
            assert waiting.next_step.startswith("blocked by fleet-wide suspicion (3 of 4 servers")
            assert " until about " in waiting.next_step
        await t.pass_time(15 * MINUTE)
        assert all(t[name].restarts == [] for name in NAMES)
        assert all(len(t[name].evidence) == 1 for name in NAMES[:3])
        assert t.causes == ["fleet_suspicion"]
        assert t.told[0].severity is Severity.PAGE
        t["gpu-3"].frozen_at = None
        at = await t.now()
        await t.sweep("gpu-1")
        ends = [await t[n].end(h) for n, h in zip(NAMES[:3], handles, strict=True)]
        outcomes = [end.outcome for end in ends]
        assert outcomes == [Outcome.RESOLVED, Outcome.RESOLVED, Outcome.RECOVERED]
        restarts = sorted(each for n in NAMES for each in t[n].restarts)
        assert restarts[0] - at >= 10 * MINUTE
        assert t.causes == ["fleet_suspicion", "suspicion_over"]
        assert t.told[1].action is AlertAction.RESOLVE
        assert t.told[0].incident == t.told[1].incident


async def test_it_blocks_acts_only_evidence_closing_and_paging_go_on(town: Enter) -> None:
    async with town() as t:
        await t.sweep(*NAMES)
        t["gpu-2"].faults = [OFF_THE_BUS]
        handles = {name: await t[name].report() for name in NAMES[:3]}
        for name in ("gpu-1", "gpu-3"):
            await until_phase(t, handles[name], Phase.WAITING)
        t["gpu-3"].frozen_at = None
        assert (await t["gpu-3"].end(handles["gpu-3"])).outcome is Outcome.RECOVERED
        assert (await t["gpu-2"].end(handles["gpu-2"])).outcome is Outcome.HANDED_OVER
        assert (await t.state()).suspicion is not None
        assert (await status_of(handles["gpu-1"])).phase is Phase.WAITING
        assert [len(t[name].evidence) for name in NAMES[:3]] == [1, 1, 1]
        assert t["gpu-2"].causes == ["confirmed", "handed_over"]
        assert t["gpu-2"].told[-1].severity is Severity.PAGE
        assert all(t[name].restarts == [] for name in NAMES)
        assert [await t.budget_used(name) for name in NAMES] == [0, 0, 0, 0]


async def test_a_share_that_is_bad_again_within_the_cooldown_begins_it_anew(town: Enter) -> None:
    async with town() as t:
        await t.sweep(*NAMES)
        handle = await t["gpu-1"].report()
        await until_phase(t, handle, Phase.WAITING)
        await t.sweep()
        await t.pass_time(7 * MINUTE)
        await t.sweep(*NAMES)
        await t.pass_time(7 * MINUTE)
        assert (await t.state()).suspicion is not None
        assert t["gpu-1"].restarts == []
        at = await t.now()
        await t.sweep()
        await t["gpu-1"].end(handle)
        assert t["gpu-1"].restarts[0] - at >= 10 * MINUTE
        assert t.causes == ["fleet_suspicion", "suspicion_over"]


async def test_it_lasts_however_long_they_are_bad_and_pages_again_and_again(town: Enter) -> None:
    async with town() as t:
        await t.sweep(*NAMES)
        handle = await t["gpu-1"].report()
        await t.pass_time(timedelta(hours=5), timedelta(minutes=10))
        await t.sweep(*NAMES)
        assert t["gpu-1"].restarts == []
        assert (await status_of(handle)).phase is Phase.WAITING
        assert t.causes[0] == "fleet_suspicion"
        assert t.causes[1:] == ["still_blocked-1", "still_blocked-2", "still_blocked-3"] + (
            ["still_blocked-4"] if len(t.causes) > 4 else []
        )
        assert t.told[1].title == "restarts have been blocked for 30m"
        assert {alert.incident for alert in t.told} == {t.told[0].incident}


async def test_a_person_opens_and_those_that_wait_are_judged_anew(town: Enter) -> None:
    async with town() as t:
        await t.sweep(*NAMES)
        handles = {name: await t[name].report() for name in NAMES[:2]}
        for handle in handles.values():
            await until_phase(t, handle, Phase.WAITING)
        t["gpu-2"].frozen_at = None
        opened = await t.storm_guard.execute_update(
            StormUpdate.OPEN, OpenByHand(who="ann", why="the switch"), result_type=Opened
        )
        assert (opened.waiting, opened.suspicion is not None) == (2, True)
        at = await t.now()
        assert (await t["gpu-1"].end(handles["gpu-1"])).outcome is Outcome.RESOLVED
        assert (await t["gpu-2"].end(handles["gpu-2"])).outcome is Outcome.RECOVERED
        assert t["gpu-1"].restarts[0] - at < MINUTE
        assert t["gpu-2"].restarts == []
        await t.sweep(*NAMES)
        assert (await t.state()).suspicion is None
        assert "ann (the switch)" in t.told[-1].detail
        again = await t.storm_guard.execute_update(
            StormUpdate.OPEN, OpenByHand(who="ann"), result_type=Opened
        )
        assert again.suspicion is None


async def test_a_suspicion_takes_a_slot_back_that_is_not_used_yet(town: Enter) -> None:
    async with town() as t:

        async def suspect() -> None:
            await t.sweep(*NAMES)
            while not all(lease.answered for lease in (await t.state()).holders):
                pass

        t["gpu-1"].before("take_budget", suspect)
        handle = await t["gpu-1"].report()
        waiting = await until_phase(t, handle, Phase.WAITING)
        assert "blocked by fleet-wide suspicion" in waiting.next_step
        assert any("given back, restarts were blocked" in m.text for m in waiting.timeline)
        assert t["gpu-1"].restarts == []
        state = await t.state()
        assert (state.holders, [lease.server for lease in state.waiting]) == ([], ["gpu-1"])
        await t.sweep()
        assert (await t["gpu-1"].end(handle)).outcome is Outcome.RESOLVED
        assert len(t["gpu-1"].restarts) == 1


async def test_a_restart_whose_command_is_out_is_seen_through_a_next_one_is_not_begun(
    town: Enter,
) -> None:
    async with town() as t:
        t["gpu-1"].cure_works = False
        handle = await t["gpu-1"].report()
        await until_phase(t, handle, Phase.COOLING)
        await t.sweep(*NAMES)
        assert [lease.server for lease in (await t.state()).holders] == ["gpu-1"]
        waiting = await until_phase(t, handle, Phase.WAITING)
        assert "blocked by fleet-wide suspicion" in waiting.next_step
        assert len(t["gpu-1"].restarts) == 1
        assert "not_recovered" in t["gpu-1"].causes


async def test_a_persons_order_passes_a_suspicion(town: Enter) -> None:
    async with town() as t:
        await t.sweep(*NAMES)
        handle = await t["gpu-1"].report()
        await until_phase(t, handle, Phase.WAITING)
        at = await t.now()
        await handle.signal(RemediationSignal.RESTART_NOW, {"who": "ann"})
        assert (await t["gpu-1"].end(handle)).outcome is Outcome.RESOLVED
        assert t["gpu-1"].restarts[0] - at < MINUTE
        assert (await t.state()).suspicion is not None


# --- what may go wrong ---------------------------------------------------------------------------


async def test_where_storm_guard_cannot_be_asked_a_person_is(town: Enter) -> None:
    @activity.defn(name="ask_slot")
    async def fails(request: SlotAsk) -> None:
        raise ApplicationError("Temporal is away", type=STORM_GUARD_UNREACHABLE)

    async with town(ask_slot=fails) as t:
        end = await t["gpu-1"].end(await t["gpu-1"].report())
        assert end.outcome is Outcome.HANDED_OVER
        assert t["gpu-1"].restarts == []
        assert t["gpu-1"].pages == ["handed_over"]
        page = t["gpu-1"].told[-1]
        assert "can't be asked" in page.detail
        assert "Temporal is away" in page.detail


async def test_where_storm_guard_does_not_answer_a_person_is_asked(town: Enter) -> None:
    @activity.defn(name="ask_slot")
    async def is_lost(request: SlotAsk) -> None:
        pass

    async with town(ask_slot=is_lost) as t:
        end = await t["gpu-1"].end(await t["gpu-1"].report())
        assert end.outcome is Outcome.HANDED_OVER
        assert "storm-guard does not answer" in t["gpu-1"].told[-1].detail
        assert t["gpu-1"].restarts == []


async def test_an_order_by_hand_passes_where_storm_guard_cannot_be_asked(town: Enter) -> None:
    @activity.defn(name="ask_slot")
    async def fails(request: SlotAsk) -> None:
        raise ApplicationError("Temporal is away", type=STORM_GUARD_UNREACHABLE)

    async with town(ask_slot=fails) as t:
        handle = await t["gpu-1"].order(RemediationSignal.RESTART_NOW, {"who": "ann"})
        end = await t["gpu-1"].end(handle)
        assert end.outcome is Outcome.RESOLVED
        assert any("storm-guard was not told" in moment.text for moment in end.timeline)


async def test_signals_that_mean_nothing_change_nothing(town: Enter) -> None:
    nonsense: list[list[Any]] = [[], [None], ["free"], [{"server": 3}], [{}, {}, {}]]
    async with town() as t:
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        before = await t.state()
        for signal in StormSignal:
            for words in nonsense:
                await t.storm_guard.signal(signal, args=words)
        await t.storm_guard.signal("open_sesame")
        for words in [*nonsense, [{"granted": True}]]:
            await second.signal("slot", args=words)
        await second.signal("slot", {"run": "another", "number": 1, "granted": True})
        await second.signal(
            "slot", {"run": second.first_execution_run_id, "number": 7, "granted": True}
        )
        assert await t.state() == before
        assert (await status_of(second)).phase is Phase.WAITING
        assert (await t["gpu-1"].end(first)).outcome is Outcome.RESOLVED
        assert (await t["gpu-2"].end(second)).outcome is Outcome.RESOLVED


async def test_a_storm_guard_that_was_lost_is_asked_again_by_who_waits(town: Enter) -> None:
    async with town() as t:
        first, second = await waits_behind(t, "gpu-1", "gpu-2")
        await t.state()
        await t.storm_guard.terminate("by hand")
        assert (await t["gpu-2"].end(second)).outcome is Outcome.RESOLVED
        assert (await t["gpu-1"].end(first)).outcome is Outcome.RESOLVED


async def test_in_peace_storm_guard_sets_no_timer(town: Enter) -> None:
    async with town() as t:
        await t["gpu-1"].end(await t["gpu-1"].report())
        history = await t.storm_guard.fetch_history()
        kinds = [event.WhichOneof("attributes") for event in history.events]
        assert not [kind for kind in kinds if kind and kind.startswith(("timer", "activity"))]
        assert remediation_id("gpu-1") == "remediate/gpu-1"
