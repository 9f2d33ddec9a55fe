"""Whom a sweep tells again of what is still bad, and whom it tells that it is over."""

from datetime import timedelta
from typing import Any

import pytest

from fleet import reminders
from fleet.alerts import OVER, RECOVERED_LATER, addressees
from fleet.config import Alerts, SecretRef
from fleet.contracts.alerts import AlertAction, AlertMessage, Severity
from fleet.contracts.sweep import OpenIncident, ReportResult, SweepResult
from fleet.follow_up import followed_up
from fleet.policy import Policy
from fleet.sweep import Judgement
from tests.unit.test_sweep import Watch, at, busy, gone, hung, paused

HOUR = 3600
POLICY = Policy(remind_after=timedelta(hours=1))


def watch(policy: Policy = POLICY, **more: Any) -> Watch:
    return Watch(policy=policy, follows_up=True, **more)


def pairs(alerts: list[AlertMessage]) -> list[tuple[str, AlertAction]]:
    return [(alert.cause, alert.action) for alert in alerts]


class Days(Watch):
    """Sweeps every half minute, of which only what people are told is kept."""

    def told(self, seconds: int, look: Any = gone) -> list[tuple[int, AlertMessage]]:
        self.now = getattr(self, "now", 0)
        found = []
        for _ in range(0, seconds, 30):
            self.now += 30
            found += [(self.now, alert) for alert in self.sweep(look(self.now)).alerts]
        return found


def missing_for(hours: float, policy: Policy = POLICY) -> list[tuple[int, AlertMessage]]:
    days = Days(policy=policy, follows_up=True)
    days.sweep(busy(0))
    return days.told(int(hours * HOUR))


# --- reminders of verdicts for people ------------------------------------------------------------


def test_they_come_after_the_time_then_after_twice_four_and_eight_times_that() -> None:
    found = missing_for(20)
    assert [alert.cause for _, alert in found] == [
        *("missing", "reminder", "reminder-2", "reminder-3", "reminder-4")
    ]
    since = 30
    hours = [(moment - since) / HOUR for moment, _ in found[1:]]
    assert hours == [1, 3, 7, 15]


def test_a_reminder_is_an_update_under_the_key_of_its_incident() -> None:
    (_, first), (_, again) = missing_for(1.5)
    assert again.incident == first.incident
    assert (first.action, again.action) == (AlertAction.TRIGGER, AlertAction.UPDATE)
    assert again.severity is first.severity is Severity.PAGE
    assert again.title == "gpu-1 is still missing, for 1h"
    assert again.since == first.since
    assert again.next_step.startswith("a person decides: ")


def test_off_reminds_nobody() -> None:
    assert len(missing_for(20, Policy(remind_after=None))) == 1


def test_a_pause_keeps_them_back_and_of_several_only_the_last_is_told() -> None:
    days = Days(policy=POLICY, follows_up=True)
    days.sweep(busy(0))
    days.told(300)
    days.more |= paused(16 * HOUR)
    assert days.told(16 * HOUR - 600) == []
    late = days.told(900)
    assert [alert.cause for _, alert in late] == ["reminder-4"]


def test_their_number_has_an_end() -> None:
    since = at(0)
    month = timedelta(days=3650)
    assert reminders.due(since, since + month, timedelta(hours=1)) == reminders.MOST


def test_an_outage_of_steady_neither_repeats_the_alert_nor_forgets_the_reminder() -> None:
    days = Days(policy=POLICY, follows_up=True)
    days.sweep(busy(0))
    assert len(days.told(300)) == 1
    days.now += HOUR * 2
    found = days.told(300)
    assert [alert.cause for _, alert in found] == ["reminder"]


def test_a_server_that_an_older_steady_had_told_of_is_not_told_anew() -> None:
    old = Watch(policy=POLICY)
    old.sweep(busy(0))
    assert [a.cause for a in old.alerts(gone(30), gone(60), gone(90))] == ["missing"]
    old.more["follows_up"] = True
    assert old.alerts(gone(120), gone(150)) == []
    assert old.before is not None
    assert old.before.servers["gpu-1"].told == 1


def test_what_an_older_steady_read_reminds_nobody() -> None:
    """Its recorded histories know of none, and must go on replaying."""
    days = Days(policy=POLICY)
    days.sweep(busy(0))
    assert len(days.told(2 * HOUR)) == 1


# --- that it is over -----------------------------------------------------------------------------


def test_whoever_was_told_hears_that_it_is_over() -> None:
    looks = watch()
    first, over = looks.alerts(busy(0), gone(30), gone(60), busy(90))
    assert (over.cause, over.action, over.severity) == (
        OVER,
        AlertAction.RESOLVE,
        Severity.NOTICE,
    )
    assert over.incident == first.incident
    assert over.title == "gpu-1 is no longer missing: busy"
    assert over.paged
    assert looks.alerts(busy(120)) == []


def test_it_is_over_too_where_something_else_is_wrong_then() -> None:
    looks = watch()
    looks.alerts(busy(0), gone(30), gone(60))
    found = looks.alerts(hung(90), hung(120))
    assert pairs(found) == [(OVER, AlertAction.RESOLVE)]


def test_nobody_hears_of_the_end_of_what_nobody_was_told() -> None:
    quiet = watch(Policy(expected_off=True))
    assert quiet.alerts(busy(0), gone(30), gone(60), busy(90)) == []
    assert watch().alerts(busy(0), gone(30), busy(60)) == []


def test_the_end_is_heard_over_an_outage_of_steady() -> None:
    looks = watch()
    looks.alerts(busy(0), gone(30), gone(60))
    found = looks.alerts(gone(9000), busy(9030))
    assert pairs(found) == [(OVER, AlertAction.RESOLVE)]


# --- incidents of remediations -------------------------------------------------------------------

INCIDENT = OpenIncident(id="gpu-1@first", since=at(30), job="j-7")


class Hung(Days):
    """A server whose heartbeat stands still from 0 on; its incident was left to people."""

    def look(self, seconds: int) -> Judgement:
        self.now = seconds
        judgement = self.sweep(hung(seconds))
        asked = [report for report in judgement.reports if report.remind or report.ends]
        sent = ReportResult(incidents={"gpu-1": INCIDENT} if asked else {})
        judgement = followed_up(judgement, sent)
        self.before = SweepResult.model_validate_json(judgement.result.model_dump_json())
        return judgement


def test_an_incident_that_stays_open_reminds_too_under_its_own_key() -> None:
    hangs = Hung(policy=POLICY, follows_up=True)
    hangs.sweep(busy(0))
    found = []
    for seconds in range(30, 4 * HOUR, 30):
        found += [(seconds, alert) for alert in hangs.look(seconds).alerts]
    assert [alert.cause for _, alert in found] == ["reminder", "reminder-2"]
    moment, alert = found[0]
    assert moment == 30 + HOUR
    assert (alert.incident, alert.action) == (INCIDENT.id, AlertAction.UPDATE)
    assert alert.title == "gpu-1 is still hung, for 1h"


def test_one_that_people_had_been_left_with_is_told_to_be_over() -> None:
    looks = watch()
    for reading in (busy(0), hung(30), hung(60)):
        looks.sweep(reading)
    judgement = looks.sweep(busy(90))
    assert [(report.good, report.ends) for report in judgement.reports] == [(True, True)]
    (alert,) = followed_up(judgement, ReportResult(incidents={"gpu-1": INCIDENT})).alerts
    assert (alert.cause, alert.action) == (RECOVERED_LATER, AlertAction.RESOLVE)
    assert (alert.incident, alert.paged) == (INCIDENT.id, True)
    assert followed_up(judgement, ReportResult()).alerts == []


def test_of_one_that_no_guard_knows_nobody_is_reminded() -> None:
    looks = watch(Policy(remind_after=timedelta(seconds=60)))
    for reading in (busy(0), hung(30), hung(60)):
        looks.sweep(reading)
    judgement = looks.sweep(hung(90))
    assert [report.remind for report in judgement.reports] == [True]
    assert followed_up(judgement, ReportResult()).alerts == []


# --- to whom -------------------------------------------------------------------------------------

CHAT, PAGER = SecretRef(env="CHAT"), SecretRef(env="PAGER")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["env CHAT"]),
        ({"action": AlertAction.RESOLVE}, ["env CHAT"]),
        ({"action": AlertAction.RESOLVE, "paged": True}, ["env CHAT", "env PAGER"]),
        ({"action": AlertAction.UPDATE, "paged": True}, ["env CHAT"]),
    ],
)
def test_a_good_end_goes_to_those_who_were_paged(
    changes: dict[str, Any], expected: list[str]
) -> None:
    message = AlertMessage(
        server="gpu-1", incident="i", cause="c", severity=Severity.NOTICE, title="t"
    ).model_copy(update=changes)
    alerts = Alerts(notice=(CHAT,), page=(PAGER,))
    assert list(addressees(alerts, message)) == expected


def test_a_reading_of_another_server_changes_nothing() -> None:
    assert reminders.told(None) == 0
    assert reminders.matter(None) is None
