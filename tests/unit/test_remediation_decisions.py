"""What a remediation decides at the last moment before a command, and after it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fleet.actions import CommandRestart, DockerRestart, Host, Restart
from fleet.config import ServerSpec
from fleet.contracts.fleet import Pause, PresentPolicy
from fleet.contracts.guard import Hold
from fleet.contracts.host import HostState, HostStatus
from fleet.contracts.remediation import Outcome
from fleet.findings import Finding
from fleet.policy import Mode, Policy
from fleet.readings import Reading
from fleet.remediation import (
    HELD,
    HOLDS,
    MEANING,
    OVER,
    PAGES,
    QUIET,
    TRY_AGAIN,
    Decision,
    Next,
    Standing,
    by_host,
    by_policy,
    by_reading,
    deadline,
    is_old_record,
    last_word,
    verified,
)
from fleet.sources import RedisSource
from fleet.verdicts import ACTIONABLE, GOOD, Verdict

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DOCKER = DockerRestart(kind="docker", host="box", name="vllm")
NAMELESS = CommandRestart(kind="command", host="box", argv=("restart-it",))
TOLD_APART = CommandRestart(kind="command", host="box", argv=("restart-it",), identity=("pid",))

STANDING = Standing(
    now=NOW, by_hand=False, approved=False, not_before=None, seen=None, waited_for=""
)
BY_HAND = replace(STANDING, by_hand=True)


def present(
    mode: Mode = Mode.ACT, restart: Restart | None = DOCKER, pause: Pause | None = None
) -> PresentPolicy:
    spec = ServerSpec(
        name="gpu-1",
        source=RedisSource(key="k"),
        store=None,
        restart=restart,
        host=Host(address="10.0.0.1", user="steady", key="key"),
        policy=Policy(mode=mode),
    )
    return PresentPolicy(version=1, spec=spec, pause=pause)


def paused(minutes: float) -> Pause:
    return Pause(until=NOW + minutes * MINUTE, who="ann")


def shows(
    status: HostStatus = HostStatus.RUNNING,
    identity: str = "c-1",
    started: str = "s-1",
    started_at: datetime | None = None,
) -> HostState:
    return HostState(status=status, identity=identity, started=started, started_at=started_at)


def found(verdict: Verdict) -> Finding:
    return Finding(verdict=verdict, why="so it seems")


BEAT = NOW - 5 * MINUTE
READING = Reading(server="gpu-1", at=NOW, heartbeat=BEAT)


def outcome(decision: Decision | None) -> Outcome | None:
    assert decision is not None
    assert decision.next is Next.END
    return decision.outcome


# --- the present policy --------------------------------------------------------------------------


def test_nothing_forbids_the_restart_of_a_server_that_steady_may_act_on() -> None:
    assert by_policy(present(), STANDING) is None


@pytest.mark.parametrize("standing", [STANDING, BY_HAND])
def test_a_server_that_left_the_fleet_is_removed_also_for_a_person(standing: Standing) -> None:
    assert outcome(by_policy(PresentPolicy(version=2), standing)) is Outcome.REMOVED


@pytest.mark.parametrize("standing", [STANDING, BY_HAND])
def test_without_a_way_to_restart_a_person_has_to_act(standing: Standing) -> None:
    assert outcome(by_policy(present(restart=None), standing)) is Outcome.ALERT_ONLY


def test_a_pause_ends_it_until_its_moment_has_come() -> None:
    decision = by_policy(present(pause=paused(1)), STANDING)
    assert outcome(decision) is Outcome.PAUSED
    assert decision is not None
    assert decision.why == "paused until 12:01:00 by ann"
    assert by_policy(present(pause=paused(0)), STANDING) is None


def test_a_pause_by_nobody_in_particular_reads_well() -> None:
    decision = by_policy(present(pause=Pause(until=NOW + MINUTE)), STANDING)
    assert decision is not None
    assert decision.why == "paused until 12:01:00"


def test_a_person_who_orders_a_restart_outranks_pause_mode_and_snooze() -> None:
    for mode in Mode:
        ordered = replace(BY_HAND, not_before=NOW + MINUTE)
        assert by_policy(present(mode, pause=paused(60)), ordered) is None


def test_alert_only_leaves_it_to_a_person() -> None:
    assert outcome(by_policy(present(Mode.ALERT_ONLY), STANDING)) is Outcome.ALERT_ONLY


@pytest.mark.parametrize("mode", [Mode.ACT, Mode.APPROVE, Mode.DRY_RUN])
def test_a_snooze_waits_in_every_mode_until_its_moment_has_come(mode: Mode) -> None:
    decision = by_policy(present(mode), replace(STANDING, not_before=NOW + MINUTE, approved=True))
    assert decision == Decision(Next.WAIT, "snoozed until 12:01:00")
    assert by_policy(present(mode), replace(STANDING, not_before=NOW, approved=True)) is None


def test_approve_asks_until_a_person_has_approved() -> None:
    decision = by_policy(present(Mode.APPROVE), STANDING)
    assert decision is not None
    assert decision.next is Next.APPROVAL
    assert by_policy(present(Mode.APPROVE), replace(STANDING, approved=True)) is None


def test_dry_run_goes_on_to_the_command_which_its_caller_leaves_out() -> None:
    assert by_policy(present(Mode.DRY_RUN), STANDING) is None


# --- the last reading ----------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", sorted(GOOD))
def test_a_server_that_is_well_has_recovered(verdict: Verdict) -> None:
    assert outcome(by_reading(found(verdict), STANDING)) is Outcome.RECOVERED


@pytest.mark.parametrize("verdict", sorted(ACTIONABLE))
def test_what_proves_it_stuck_forbids_nothing(verdict: Verdict) -> None:
    assert by_reading(found(verdict), STANDING) is None


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - GOOD - ACTIONABLE))
def test_what_proves_nothing_waits(verdict: Verdict) -> None:
    decision = by_reading(found(verdict), STANDING)
    assert decision == Decision(Next.WAIT, f"{verdict}: so it seems")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_person_needs_no_reading(verdict: Verdict) -> None:
    assert by_reading(found(verdict), BY_HAND) is None


# --- the host ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [HostStatus.STOPPED, HostStatus.PAUSED, HostStatus.GONE])
@pytest.mark.parametrize("standing", [STANDING, BY_HAND])
def test_what_somebody_stopped_paused_or_removed_goes_to_a_person(
    status: HostStatus, standing: Standing
) -> None:
    decision = by_host(shows(status), present(), READING, standing)
    assert outcome(decision) is Outcome.HANDED_OVER
    assert decision is not None
    assert decision.why == f"on the host it is {status}: somebody did that, not steady"


def test_what_the_host_is_restarting_itself_is_left_to_boot() -> None:
    decision = by_host(shows(HostStatus.RESTARTING), present(), READING, STANDING)
    assert decision is not None
    assert decision.next is Next.BOOTING


def test_a_running_process_is_no_reason_not_to_restart_it() -> None:
    standing = replace(STANDING, seen=shows())
    assert by_host(shows(), present(), READING, standing) is None
    assert by_host(shows(), present(), READING, STANDING) is None


def test_another_container_under_the_same_name_goes_to_a_person() -> None:
    standing = replace(STANDING, seen=shows())
    decision = by_host(shows(identity="c-2"), present(), READING, standing)
    assert outcome(decision) is Outcome.HANDED_OVER


def test_another_process_in_the_same_container_was_not_replaced() -> None:
    standing = replace(STANDING, seen=shows())
    assert by_host(shows(started="s-2"), present(), READING, standing) is None


@pytest.mark.parametrize("restart", [TOLD_APART, DOCKER])
def test_a_host_that_does_not_say_what_runs_goes_to_a_person(restart: Restart) -> None:
    decision = by_host(
        shows(HostStatus.UNKNOWN, "", ""), present(restart=restart), READING, STANDING
    )
    assert outcome(decision) is Outcome.HANDED_OVER


def test_a_command_that_names_no_process_can_be_sent_all_the_same() -> None:
    unknown = shows(HostStatus.UNKNOWN, "", "")
    assert by_host(unknown, present(restart=NAMELESS), READING, STANDING) is None


def test_a_process_started_after_the_last_heartbeat_may_be_booting_and_is_waited_for_once() -> None:
    host = shows(started="s-2", started_at=BEAT + MINUTE)
    decision = by_host(host, present(), READING, STANDING)
    assert decision is not None
    assert decision.next is Next.BOOTING
    assert by_host(host, present(), READING, replace(STANDING, waited_for="s-2")) is None


def test_a_process_that_started_again_is_waited_for_again() -> None:
    host = shows(started="s-3", started_at=BEAT + MINUTE)
    decision = by_host(host, present(), READING, replace(STANDING, waited_for="s-2"))
    assert decision is not None
    assert decision.next is Next.BOOTING


@pytest.mark.parametrize(
    ("started_at", "heartbeat", "standing"),
    [
        (BEAT, BEAT, STANDING),
        (BEAT - MINUTE, BEAT, STANDING),
        (None, BEAT, STANDING),
        (BEAT + MINUTE, None, STANDING),
        (BEAT + MINUTE, BEAT, BY_HAND),
    ],
)
def test_nothing_is_waited_for_where_the_process_wrote_the_record_itself_or_a_person_ordered(
    started_at: datetime | None, heartbeat: datetime | None, standing: Standing
) -> None:
    reading = replace(READING, heartbeat=heartbeat)
    assert by_host(shows(started_at=started_at), present(), reading, standing) is None


# --- when the act is due -------------------------------------------------------------------------


def test_without_a_verdict_nothing_is_due() -> None:
    assert deadline({}, Policy()) is None


def test_a_hang_is_due_after_three_minutes_and_an_error_after_thirty() -> None:
    assert deadline({Verdict.HUNG: NOW}, Policy()) == NOW + 3 * MINUTE
    assert deadline({Verdict.ERROR: NOW}, Policy()) == NOW + 30 * MINUTE


def test_of_several_verdicts_that_are_still_true_the_earliest_deadline_counts() -> None:
    both = {Verdict.ERROR: NOW, Verdict.HUNG: NOW + 5 * MINUTE}
    assert deadline(both, Policy()) == NOW + 8 * MINUTE
    late = {Verdict.ERROR: NOW - 29 * MINUTE, Verdict.HUNG: NOW}
    assert deadline(late, Policy()) == NOW + MINUTE


# --- whether it helped ---------------------------------------------------------------------------

BEFORE, AFTER = shows(), shows(started="s-2")


def test_a_new_process_that_is_healthy_and_still_the_one_that_was_started_is_a_cure() -> None:
    assert verified(BEFORE, AFTER, AFTER, found(Verdict.BUSY)) == (True, "a new process, busy")
    assert verified(BEFORE, None, AFTER, found(Verdict.IDLE))[0]


def test_the_process_from_before_is_no_cure_however_healthy_it_looks() -> None:
    ok, why = verified(BEFORE, None, BEFORE, found(Verdict.HEALTHY))
    assert (ok, why) == (False, "the host still shows the process from before the restart")


def test_a_process_that_was_started_once_more_is_no_cure() -> None:
    ok, why = verified(BEFORE, AFTER, shows(started="s-3"), found(Verdict.HEALTHY))
    assert not ok
    assert "started again" in why


@pytest.mark.parametrize(
    "status", sorted(set(HostStatus) - {HostStatus.RUNNING, HostStatus.UNKNOWN})
)
def test_what_does_not_run_is_no_cure(status: HostStatus) -> None:
    assert verified(BEFORE, AFTER, shows(status), found(Verdict.HEALTHY)) == (
        False,
        f"on the host it is {status}",
    )


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - GOOD))
def test_a_new_process_that_is_not_well_is_no_cure(verdict: Verdict) -> None:
    assert verified(BEFORE, AFTER, AFTER, found(verdict)) == (False, f"{verdict}: so it seems")


@pytest.mark.parametrize(("verdict", "ok"), [(Verdict.BUSY, True), (Verdict.HUNG, False)])
def test_where_the_host_names_no_process_the_reading_alone_decides(
    verdict: Verdict, ok: bool
) -> None:
    unknown = shows(HostStatus.UNKNOWN, "", "")
    assert verified(unknown, unknown, unknown, found(verdict))[0] is ok


def test_a_record_is_the_old_one_while_its_heartbeat_is() -> None:
    assert is_old_record(READING, BEAT)
    assert is_old_record(replace(READING, heartbeat=None), BEAT)
    assert not is_old_record(READING, BEAT - MINUTE)
    assert not is_old_record(READING, None)


# --- outcomes ------------------------------------------------------------------------------------


def test_every_outcome_has_a_meaning_for_a_person() -> None:
    assert set(MEANING) == set(Outcome)
    assert all(MEANING.values())


def test_every_hold_names_the_outcome_that_a_later_run_gives() -> None:
    assert set(HELD) == set(Hold)
    assert {HOLDS[outcome] for outcome in HOLDS} | {Hold.OUT_OF_TRIES} == set(Hold)


def test_an_outcome_is_over_or_held_or_tried_again_and_never_two_of_them() -> None:
    for one, other in [(OVER, set(HOLDS)), (OVER, TRY_AGAIN), (set(HOLDS), TRY_AGAIN)]:
        assert not one & other


def test_nobody_is_paged_for_what_nobody_needs_to_hear_of() -> None:
    assert not PAGES & QUIET
    assert not PAGES & OVER


def test_what_was_given_up_and_recovered_after_all_waits_for_nobody() -> None:
    for outcome in (Outcome.BUDGET_EXHAUSTED, Outcome.ESCALATED):
        assert last_word(outcome, recovered=False) == MEANING[outcome]
        assert "waits" not in last_word(outcome, recovered=True)
        assert last_word(outcome, recovered=True).endswith("it recovered later")
