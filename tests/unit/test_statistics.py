"""How the incidents of a fleet are counted and timed."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from fleet.remediation import last_word
from fleet.statistics import Case, Run, cases, recovered_at, rows

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)


def run(
    server: str = "gpu-1",
    outcome: Outcome | None = Outcome.RESOLVED,
    *,
    at: datetime = T0,
    detect: float = 0.5,
    restart: float | None = 3,
    close: float | None = 13,
    said: str = "",
    **changes: object,
) -> Run:
    """A run with its moments in minutes after the first observation."""
    status = RemediationStatus(
        server=server,
        incident=f"{server}@{at:%Y%m%dT%H%M%S}.000Z",
        phase=Phase.CLOSED if close is not None else Phase.COOLING,
        outcome=outcome,
        since=at,
        detected_at=at + detect * MINUTE,
        closed_at=at + close * MINUTE if close is not None else None,
        restarts=int(restart is not None),
        next_step=said,
    ).model_copy(update=changes)
    return Run(status=status, restarted_at=at + restart * MINUTE if restart is not None else None)


def found(*runs: Run) -> list[Case]:
    return cases(runs, T0 - timedelta(days=60))


def test_times_are_medians_from_the_first_observation() -> None:
    [row] = rows(
        found(
            run("a"),
            run("b", detect=1.5, restart=5, close=15),
            run("c", Outcome.RECOVERED, detect=1, restart=None, close=2),
        ),
        None,
    )
    assert (row.group, row.count, row.open, row.restarts) == ("all", 3, 0, 2)
    assert (row.detect_s, row.restart_s, row.recover_s) == (60, 240, 780)
    assert (row.detected, row.restarted, row.recovered) == (3, 2, 3)
    assert row.outcomes == {"resolved": 2, "recovered": 1}


def test_what_did_not_come_is_none_and_not_zero() -> None:
    [row] = rows(found(run(outcome=None, restart=None, close=None)), None)
    assert (row.detected, row.restart_s, row.recover_s) == (1, None, None)
    assert (row.open, row.outcomes) == (1, {})


def test_without_incidents_there_is_a_row_of_none() -> None:
    [row] = rows([], None)
    assert (row.count, row.detect_s) == (0, None)
    assert rows([], "server") == []


def test_the_runs_of_an_incident_are_one_with_the_outcome_of_the_last() -> None:
    """A restart that could not be carried out is tried again by a later run."""
    failed = run(outcome=Outcome.RESTART_FAILED, restart=None, close=4)
    later = run(detect=6, restart=7, close=17)
    [case] = found(later, failed)
    assert (case.outcome, case.detected_at) == (Outcome.RESOLVED, T0 + 0.5 * MINUTE)
    assert (case.restarted_at, case.recovered_at) == (T0 + 7 * MINUTE, T0 + 17 * MINUTE)


def test_a_run_that_still_goes_on_is_the_last_one() -> None:
    failed = run(outcome=Outcome.RESTART_FAILED, restart=None, close=4)
    [case] = found(failed, run(outcome=None, restart=None, close=None))
    assert (case.is_open, case.outcome) == (True, None)


def test_one_that_waits_for_a_person_is_open_and_has_its_outcome() -> None:
    given_up = run(outcome=Outcome.ESCALATED, close=None, phase=Phase.ESCALATED)
    [row] = rows(found(given_up), None)
    assert (row.open, row.outcomes, row.recovered) == (1, {"escalated": 1}, 0)


def test_what_was_given_up_may_recover_later() -> None:
    outcome = Outcome.BUDGET_EXHAUSTED
    later = run(outcome=outcome, close=90, said=last_word(outcome, recovered=True)).status
    assert recovered_at(later) == T0 + 90 * MINUTE
    by_hand = run(outcome=outcome, close=90, said=last_word(outcome, recovered=False)).status
    assert recovered_at(by_hand) is None


@pytest.mark.parametrize("outcome", set(Outcome) - {Outcome.RESOLVED, Outcome.RECOVERED})
def test_no_other_end_is_a_recovery(outcome: Outcome) -> None:
    status = run(outcome=outcome, said=last_word(outcome, recovered=False)).status
    assert recovered_at(status) is None


def test_by_server_there_is_a_row_for_each_in_order_of_their_names() -> None:
    listed = found(run("b"), run("a"), run("b", at=T0 + timedelta(hours=1)))
    assert [(row.group, row.count) for row in rows(listed, "server")] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("at", "week"),
    [
        (T0, "2026-W49"),
        (T0 - timedelta(hours=13), "2026-W48"),
        (datetime(2027, 1, 1, tzinfo=UTC), "2026-W53"),
    ],
)
def test_by_week_it_is_the_iso_week_in_which_the_incident_began(at: datetime, week: str) -> None:
    assert [row.group for row in rows(found(run(at=at)), "week")] == [week]


def test_what_began_before_is_left_out() -> None:
    listed = [run("old", at=T0 - timedelta(days=8)), run("new")]
    assert [case.server for case in cases(listed, T0 - timedelta(days=7))] == ["new"]


def test_a_run_that_opened_no_incident_is_none() -> None:
    assert found(run(incident=None), run(since=None)) == []


def test_clocks_that_disagree_by_a_little_make_no_negative_times() -> None:
    [row] = rows(found(run(detect=-0.01)), None)
    assert row.detect_s == 0
