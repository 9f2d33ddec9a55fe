"""What counts as somebody who acts, and what is said where nobody does."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.contracts.fleet import Pause
from fleet.contracts.guard import GuardState, Hold, Incident
from fleet.contracts.remediation import Outcome, Phase
from fleet.judge import Memory
from fleet.policy import Policy
from fleet.unattended import Care, Run, Told, Unattended, longest_blind, looks_bad, unattended
from fleet.verdicts import Verdict

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LONG = NOW - 6 * HOUR
LATELY = NOW - 10 * MINUTE


def bad(verdict: Verdict = Verdict.HUNG, since: datetime = LONG) -> Memory:
    return Memory(at=NOW, verdict=verdict, since=since)


def listed(
    care: Care | None = None, memory: Memory | None = None, policy: Policy | None = None
) -> Unattended | None:
    return unattended("gpu-1", memory or bad(), policy or Policy(), care or Care(), NOW)


def why(care: Care, memory: Memory | None = None) -> str:
    found = listed(care, memory)
    assert found is not None
    return found.why


def guard(hold: Hold | None = None, next_try_at: datetime | None = None) -> GuardState:
    incident = Incident(
        id="gpu-1@x", server="gpu-1", first_observed=LONG, hold=hold, next_try_at=next_try_at
    )
    return GuardState(server="gpu-1", incident=incident)


# --- what is looked at ---------------------------------------------------------------------------


def test_six_hours_hung_that_nobody_was_told_of_are_listed() -> None:
    """The story that steady was written for: eyes and no hands."""
    found = listed()
    assert found is not None
    assert (found.server, found.verdict, found.since) == ("gpu-1", Verdict.HUNG, LONG)
    assert found.acted_at is None
    assert found.why == "no remediation runs; nobody was told"


@pytest.mark.parametrize(
    "memory", [bad(Verdict.BUSY), bad(since=NOW - HOUR), bad(since=LATELY)], ids=str
)
def test_what_is_well_or_was_not_bad_for_that_long_is_not(memory: Memory) -> None:
    assert listed(memory=memory) is None


def test_the_time_is_the_policys() -> None:
    strict = Policy(unattended_after=5 * MINUTE)
    assert listed(memory=bad(since=LATELY), policy=strict) is not None


def test_what_was_never_confirmed_counts_too_as_no_report_may_get_through() -> None:
    waits = Memory(at=NOW, since=NOW, pending=Verdict.HUNG, first=LONG, count=20)
    found = listed(memory=waits)
    assert found is not None
    assert (found.verdict, found.since) == (Verdict.HUNG, LONG)


def test_a_machine_that_is_off_on_purpose_needs_nobody() -> None:
    off = Policy(expected_off=True)
    assert looks_bad(bad(Verdict.MISSING), off, NOW) is None
    assert looks_bad(bad(Verdict.HUNG), off, NOW) is not None


# --- who acts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "care",
    [
        Care(pause=Pause(until=NOW + MINUTE)),
        Care(told=[Told(at=LATELY, delivered=True)]),
        Care(run=Run(Phase.RESTARTING, moved_at=LATELY)),
        Care(run=Run(Phase.PERSISTING, moved_at=LONG, next_at=NOW + HOUR)),
        Care(run=Run(Phase.CLOSED, moved_at=LATELY, outcome=Outcome.CANCELLED)),
        Care(guard=guard(next_try_at=NOW + MINUTE)),
        Care(guard=GuardState(server="gpu-1", cooldown_until=NOW + MINUTE)),
    ],
    ids=["pause", "told", "restarting", "waits", "just cancelled", "next try", "cooldown"],
)
def test_somebody_acts(care: Care) -> None:
    assert listed(care) is None


@pytest.mark.parametrize(
    "care",
    [
        Care(pause=Pause(until=NOW - MINUTE)),
        Care(told=[Told(at=LONG + HOUR, delivered=True)]),
        Care(told=[Told(at=LATELY, delivered=False)]),
        Care(told=[Told(at=LATELY, delivered=None)]),
        Care(run=Run(Phase.ESCALATED, moved_at=NOW, next_at=NOW + HOUR)),
        Care(run=Run(Phase.APPROVING, moved_at=NOW, next_at=NOW + HOUR)),
        Care(run=Run(Phase.TAKING, moved_at=LONG, next_at=NOW + HOUR, trouble="guard")),
        Care(run=Run(Phase.CLOSED, moved_at=NOW - 2 * HOUR, outcome=Outcome.CANCELLED)),
        Care(guard=guard(next_try_at=NOW - 2 * HOUR)),
        Care(guard=guard(hold=Hold.PERSON)),
    ],
    ids=[
        *("pause is over", "told long ago", "not delivered", "on its way", "given up"),
        *("waits for approval", "can't go on", "cancelled long ago", "try overdue", "held"),
    ],
)
def test_nobody_acts(care: Care) -> None:
    assert listed(care) is not None


def test_an_act_before_the_server_turned_bad_is_no_act_on_this() -> None:
    policy = Policy(unattended_after=MINUTE)
    before = Care(told=[Told(at=LATELY - MINUTE, delivered=True)])
    found = listed(before, bad(since=LATELY), policy)
    assert found is not None
    assert found.acted_at is None


def test_the_last_act_is_named() -> None:
    run = Run(Phase.CLOSED, moved_at=LONG + 2 * HOUR)
    found = listed(Care(run=run, told=[Told(at=LONG + HOUR, delivered=True)]))
    assert found is not None
    assert found.acted_at == LONG + 2 * HOUR


# --- what is said --------------------------------------------------------------------------------


def test_who_closed_it_to_automation_is_said() -> None:
    run = Run(Phase.CLOSED, moved_at=LONG, outcome=Outcome.CANCELLED, said="cancelled by ana")
    care = Care(guard=guard(Hold.CANCELLED), run=run, told=[Told(at=LONG, delivered=True)])
    assert why(care) == ("closed to automation: cancelled by ana; told 6h ago, and nothing since")
    forgotten = Care(guard=guard(Hold.OUT_OF_TRIES))
    assert why(forgotten).startswith("closed to automation: every try to restart it failed; ")


@pytest.mark.parametrize(
    ("care", "said"),
    [
        (Care(unasked="no worker answered in time"), "its guard can't be asked: no worker"),
        (
            Care(run=Run(Phase.TAKING, trouble="its workflow task fails (try 9)")),
            "can't go on: its",
        ),
        (Care(run=Run(Phase.APPROVING)), "waits for a person's `steady approve`"),
        (Care(run=Run(Phase.ESCALATED, outcome=Outcome.BUDGET_EXHAUSTED)), "budget_exhausted: w"),
        (Care(run=Run(Phase.RESTARTING, moved_at=LONG)), "stands still in restarting for 6h"),
        (Care(told=[Told(LATELY, None, "try 7: 503")]), "the message is still on its way: try 7"),
        (Care(told=[Told(LATELY, False, "gave up")]), "the message did not get out: gave up"),
    ],
)
def test_the_reason_is_said(care: Care, said: str) -> None:
    assert said in why(care)


def test_of_a_verdict_for_people_no_remediation_is_missed() -> None:
    assert why(Care(), bad(Verdict.MISSING)) == "nobody was told"


def test_a_shard_may_go_unseen_for_the_shortest_of_its_policies_and_three_intervals() -> None:
    policies = [Policy(), Policy(unattended_after=10 * MINUTE)]
    assert longest_blind(policies, MINUTE) == 10 * MINUTE
    assert longest_blind(policies, HOUR) == 3 * HOUR
