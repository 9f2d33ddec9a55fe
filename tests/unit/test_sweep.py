"""Whom a sweep reports and whom it tells, and when an incident may be opened again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.contracts.alerts import AlertMessage, Severity
from fleet.contracts.fleet import Pause
from fleet.contracts.guard import GuardState, Hold, Incident
from fleet.contracts.sweep import Report, SweepReadings, SweepResult
from fleet.policy import Mode, Policy
from fleet.readings import Reading, WorkState, missing, unreadable
from fleet.sweep import Judgement, is_too_old, judge_shard, may_open, with_unsent
from fleet.verdicts import ALERT_ONLY, Verdict

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EVERY = timedelta(seconds=30)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def busy(seconds: float) -> Reading:
    return Reading(
        server="gpu-1",
        at=at(seconds),
        state=WorkState.PROCESSING,
        heartbeat=at(seconds - 100),
        job="j-7",
    )


def hung(seconds: float, last: float = 0) -> Reading:
    """Its heartbeat stands still since the look at ``last``."""
    return replace(busy(last), at=at(seconds))


def silent(seconds: float, last: float = 0) -> Reading:
    return replace(hung(seconds, last), state=WorkState.IDLE)


def errs(seconds: float) -> Reading:
    return replace(busy(seconds), state=WorkState.ERROR)


def gone(seconds: float, _last: float = 0) -> Reading:
    return missing("gpu-1", at(seconds), "connection refused")


def garbled(seconds: float, _last: float = 0) -> Reading:
    return unreadable("gpu-1", at(seconds), "no JSON")


def shard(*readings: Reading, policy: Policy | None = None, **more: Any) -> SweepReadings:
    return SweepReadings(
        interval=EVERY,
        version=4,
        readings=list(readings),
        policies=[policy or Policy()],
        policy_of={reading.server: 0 for reading in readings},
        **more,
    )


class Watch:
    """Sweeps in a row over one server, each with the memory that the one before it left."""

    def __init__(self, **more: Any) -> None:
        self.more = more
        self.before: SweepResult | None = None
        self.count = 0

    def sweep(self, reading: Reading, **more: Any) -> Judgement:
        self.count += 1
        seen = shard(reading, **{**self.more, **more})
        judgement = judge_shard(3, reading.at, f"run-{self.count}", seen, self.before)
        self.before = SweepResult.model_validate_json(judgement.result.model_dump_json())
        return judgement

    def reports(self, *readings: Reading) -> list[list[Report]]:
        return [self.sweep(reading).reports for reading in readings]

    def alerts(self, *readings: Reading) -> list[AlertMessage]:
        return [alert for reading in readings for alert in self.sweep(reading).alerts]


def told(alerts: list[AlertMessage]) -> list[str]:
    return [alert.cause for alert in alerts]


def paused(until: float) -> dict[str, Any]:
    return {"paused": {"gpu-1": Pause(until=at(until), who="ann")}}


# --- what a sweep leaves -------------------------------------------------------------------------


def test_a_sweep_leaves_the_shard_its_moment_the_version_and_a_memory_of_every_server() -> None:
    other = replace(busy(0), server="gpu-2")
    result = judge_shard(3, at(1), "run", shard(busy(0), other), None).result
    assert (result.shard, result.at, result.version) == (3, at(1), 4)
    assert {name: memory.verdict for name, memory in result.servers.items()} == {
        "gpu-1": Verdict.BUSY,
        "gpu-2": Verdict.BUSY,
    }


def test_a_server_that_left_the_shard_is_forgotten() -> None:
    watch = Watch()
    watch.sweep(busy(0))
    result = judge_shard(3, at(30), "run", shard(), watch.before).result
    assert result.servers == {}


def test_reasons_are_kept_for_what_is_bad_only_shortened_and_of_a_hundred_servers_at_most() -> None:
    readings = [
        missing(f"gpu-{n}", at(0), "x" * 300) if n else replace(busy(0), server="ok")
        for n in range(151)
    ]
    whys = judge_shard(0, at(0), "run", shard(*readings), None).result.whys
    assert len(whys) == 100
    assert "ok" not in whys
    assert {len(why) for why in whys.values()} == {200}


# --- reports -------------------------------------------------------------------------------------


def test_a_confirmed_hang_is_reported_as_new_with_all_that_a_remediation_needs() -> None:
    *_, reports = Watch().reports(busy(0), hung(30), hung(60))
    (report,) = reports
    seen = report.observation
    assert (report.ongoing, report.good, report.mode) == (False, False, Mode.ACT)
    assert (seen.server, seen.verdict, seen.since) == ("gpu-1", Verdict.HUNG, at(30))
    assert (seen.reading, seen.key) == (hung(60), "run-3")
    assert seen.why == "state processing, heartbeat 2m40s old"


def test_one_bad_look_reports_nothing() -> None:
    assert Watch().reports(busy(0), hung(30))[-1] == []


def test_a_hang_that_goes_on_is_reported_as_ongoing_under_the_key_of_each_sweep() -> None:
    seen = Watch().reports(busy(0), hung(30), hung(60), hung(90), hung(120))
    assert [[report.ongoing for report in reports] for reports in seen[2:]] == [
        [False],
        [True],
        [True],
    ]
    assert [reports[0].observation.key for reports in seen[2:]] == ["run-3", "run-4", "run-5"]
    assert {reports[0].observation.since for reports in seen[2:]} == {at(30)}


def test_an_error_that_becomes_a_hang_is_reported_as_new() -> None:
    *_, error, _, hang = Watch().reports(
        busy(0), errs(30), errs(60), hung(90, last=60), hung(120, last=60)
    )
    assert [(r.observation.verdict, r.ongoing) for r in error + hang] == [
        (Verdict.ERROR, False),
        (Verdict.HUNG, False),
    ]


def test_a_recovery_is_reported_once_and_as_good() -> None:
    *_, first, second = Watch().reports(busy(0), hung(30), hung(60), busy(90), busy(120))
    assert [(r.good, r.ongoing, r.observation.verdict) for r in first] == [
        (True, False, Verdict.BUSY)
    ]
    assert second == []


def test_the_first_look_at_a_healthy_server_is_reported_so_that_no_old_incident_stays_open() -> (
    None
):
    assert [report.good for report in Watch().sweep(busy(0)).reports] == [True]


def test_a_change_between_two_good_verdicts_is_no_report() -> None:
    watch = Watch()
    watch.sweep(busy(0))
    idle = replace(busy(30), state=WorkState.IDLE)
    assert watch.sweep(idle).reports == []


def test_a_verdict_that_only_alerts_is_reported_when_it_changes_and_never_as_ongoing() -> None:
    seen = Watch().reports(busy(0), hung(30), hung(60), gone(90), gone(120), gone(150), gone(180))
    assert [[str(r.observation.verdict) for r in reports] for reports in seen[3:]] == [
        [],
        ["missing"],
        [],
        [],
    ]


def test_a_blink_of_another_verdict_is_not_passed_on_under_the_confirmed_ones_name() -> None:
    watch = Watch()
    watch.reports(busy(0), hung(30), hung(60))
    assert watch.sweep(gone(90)).reports == []
    assert [report.ongoing for report in watch.sweep(hung(120)).reports] == [True]


def test_the_mode_travels_with_the_report() -> None:
    watch = Watch(policy=Policy(mode=Mode.DRY_RUN))
    *_, reports = watch.reports(busy(0), hung(30), hung(60))
    assert [report.mode for report in reports] == [Mode.DRY_RUN]


def test_a_gap_in_steadys_own_looks_is_followed_by_one_look_that_concludes_nothing() -> None:
    watch = Watch()
    watch.reports(busy(0), hung(30), hung(60))
    after, once, then = watch.reports(hung(600), hung(630), hung(660))
    assert (after, once) == ([], [])
    assert [(r.ongoing, r.observation.since) for r in then] == [(False, at(30))]


# --- pauses --------------------------------------------------------------------------------------


def test_a_paused_server_is_not_reported_and_its_hang_is_reported_when_the_pause_has_ended() -> (
    None
):
    watch = Watch(**paused(100))
    assert watch.reports(busy(0), hung(30), hung(60), hung(90))[1:] == [[], [], []]
    (report,) = watch.sweep(hung(120)).reports
    assert (report.observation.verdict, report.observation.since) == (Verdict.HUNG, at(30))


def test_a_paused_server_that_recovers_is_reported() -> None:
    watch = Watch(**paused(1000))
    *_, reports = watch.reports(busy(0), hung(30), hung(60), busy(90))
    assert [report.good for report in reports] == [True]


def test_a_paused_server_alerts_nobody_until_its_pause_has_ended() -> None:
    watch = Watch(**paused(100))
    assert watch.alerts(busy(0), gone(30), gone(60), gone(90)) == []
    (alert,) = watch.alerts(gone(120), gone(150), gone(180))
    assert (alert.cause, alert.since) == ("missing", at(30))


def test_a_pause_that_covers_the_whole_trouble_leaves_nothing_to_tell() -> None:
    watch = Watch(**paused(100))
    assert watch.alerts(busy(0), gone(30), gone(60), busy(90), busy(120), busy(150)) == []


def test_a_blink_of_another_verdict_puts_an_alert_that_a_pause_held_back_off_once_more() -> None:
    watch = Watch(**paused(70))
    assert watch.alerts(busy(0), gone(30), gone(60), garbled(90)) == []
    (alert,) = watch.alerts(gone(120), gone(150))
    assert (alert.cause, alert.detail) == ("missing", "connection refused")


# --- alerts --------------------------------------------------------------------------------------


def test_an_alert_says_what_is_wrong_since_when_with_which_job_and_that_a_person_decides() -> None:
    (alert,) = Watch().alerts(busy(0), silent(30), silent(60))
    assert alert.title == "gpu-1 is silent"
    assert (alert.verdict, alert.since, alert.job) == (Verdict.SILENT, at(30), "j-7")
    assert alert.incident == "gpu-1@20261130T120030.000Z"
    assert alert.detail == "state idle, heartbeat 2m40s old"
    assert alert.next_step.startswith("a person decides: ")


@pytest.mark.parametrize("look", [gone, silent, garbled])
def test_a_verdict_that_only_alerts_goes_out_once_an_incident(look: Any) -> None:
    watch = Watch()
    first = watch.alerts(busy(0), *(look(30 * n) for n in range(1, 20)))
    again = watch.alerts(busy(600), *(look(600 + 30 * n, 600) for n in range(1, 20)))
    assert [len(first), len(again)] == [1, 1]
    assert first[0].incident != again[0].incident


def test_a_hang_is_announced_by_its_remediation_and_not_by_the_sweep() -> None:
    assert Watch().alerts(busy(0), *(hung(30 * n) for n in range(1, 10))) == []


def test_the_same_trouble_after_steadys_own_pause_is_the_same_incident() -> None:
    watch = Watch()
    first = watch.alerts(busy(0), gone(30), gone(60))
    again = watch.alerts(gone(600), gone(630), gone(660))
    assert {alert.incident for alert in again} == {alert.incident for alert in first}


@pytest.mark.parametrize(("look", "alerts"), [(gone, 0), (silent, 0), (garbled, 1), (hung, 0)])
def test_a_machine_that_is_off_on_purpose_is_quiet_about_looking_off(
    look: Any, alerts: int
) -> None:
    watch = Watch(policy=Policy(expected_off=True))
    assert len(watch.alerts(busy(0), look(30), look(60), look(90))) == alerts


def test_a_machine_that_is_off_on_purpose_is_still_reported_when_it_hangs() -> None:
    *_, reports = Watch(policy=Policy(expected_off=True)).reports(busy(0), hung(30), hung(60))
    assert [report.observation.verdict for report in reports] == [Verdict.HUNG]


def test_a_machine_that_should_be_on_again_and_is_not_is_told() -> None:
    watch = Watch(policy=Policy(expected_off=True))
    assert watch.alerts(busy(0), gone(30), gone(60)) == []
    watch.more = {"policy": Policy()}
    assert told(watch.alerts(gone(90), gone(120))) == ["missing"]


def test_only_a_job_without_progress_and_clocks_that_disagree_may_wait_until_morning() -> None:
    stands = [replace(busy(30 * n), progress="same") for n in range(5)]
    ahead = [replace(busy(0), heartbeat=at(3600))]
    ahead += [replace(look, at=at(30 * n)) for n, look in enumerate(ahead * 3)]
    short = Policy(stalled_after=timedelta(seconds=45))
    (stalled,) = Watch(policy=short).alerts(*stands)
    (skewed,) = Watch().alerts(*ahead[1:])
    (off,) = Watch().alerts(busy(0), gone(30), gone(60))
    assert [stalled.severity, skewed.severity] == [Severity.NOTICE, Severity.NOTICE]
    assert off.severity is Severity.PAGE
    assert {stalled.verdict, skewed.verdict, off.verdict} <= ALERT_ONLY


# --- how old a reading may be --------------------------------------------------------------------


def test_readings_may_be_judged_up_to_the_shortest_age_that_a_server_of_the_shard_allows() -> None:
    short, long = Policy(reading_max_age=timedelta(seconds=20)), Policy()
    seen = shard(busy(0)).model_copy(update={"policies": [long, short]})
    assert not is_too_old(at(0), at(20), seen)
    assert is_too_old(at(0), at(20.001), seen)


def test_an_empty_shard_has_the_default_age() -> None:
    seen = shard().model_copy(update={"policies": []})
    assert not is_too_old(at(0), at(60), seen)
    assert is_too_old(at(0), at(61), seen)


# --- whether an incident may be opened (again) ---------------------------------------------------

NOW = at(0)
INCIDENT = Incident(id="i", server="gpu-1", first_observed=at(-60), verdict=Verdict.HUNG)


def guard(**incident: Any) -> GuardState:
    return GuardState(server="gpu-1", incident=INCIDENT.model_copy(update=incident))


@pytest.mark.parametrize(
    ("state", "may"),
    [
        (None, True),
        (GuardState(server="gpu-1"), True),
        (guard(), True),
        (guard(next_try_at=at(1)), False),
        (guard(next_try_at=at(0)), True),
        (GuardState(server="gpu-1", cooldown_until=at(1)), False),
        (GuardState(server="gpu-1", cooldown_until=at(0)), True),
        (guard().model_copy(update={"cooldown_until": at(1)}), False),
    ],
)
def test_automation_waits_for_the_next_try_and_for_the_cooldown(
    state: GuardState | None, may: bool
) -> None:
    assert may_open(state, Mode.ACT, NOW) is may


@pytest.mark.parametrize("hold", list(Hold))
@pytest.mark.parametrize("mode", list(Mode))
def test_a_held_incident_stays_closed_while_the_mode_is_the_one_that_it_was_held_in(
    hold: Hold, mode: Mode
) -> None:
    assert not may_open(guard(hold=hold, hold_mode=mode), mode, NOW)


@pytest.mark.parametrize(
    ("hold", "may"),
    [
        (Hold.DRY_RUN, True),
        (Hold.ALERT_ONLY, True),
        (Hold.CANCELLED, False),
        (Hold.PERSON, False),
        (Hold.OUT_OF_TRIES, False),
    ],
)
def test_another_mode_lifts_a_hold_that_only_the_mode_had_caused(hold: Hold, may: bool) -> None:
    held = guard(hold=hold, hold_mode=Mode.DRY_RUN)
    assert may_open(held, Mode.ACT, NOW) is may


def test_another_mode_does_not_shorten_the_cooldown() -> None:
    held = guard(hold=Hold.DRY_RUN, hold_mode=Mode.DRY_RUN)
    assert not may_open(held.model_copy(update={"cooldown_until": at(9)}), Mode.ACT, NOW)


# --- reports that reached nobody -----------------------------------------------------------------


def test_a_server_whose_report_was_not_sent_is_judged_anew_and_the_others_go_on() -> None:
    def both(seconds: float, look: Any) -> SweepReadings:
        return shard(look(seconds), replace(look(seconds), server="gpu-2"))

    before = None
    for seconds, look in ((0, busy), (30, hung)):
        before = judge_shard(3, at(seconds), "run", both(seconds, look), before).result
    judgement = judge_shard(3, at(60), "run-3", both(60, hung), before)
    kept = with_unsent(judgement, {"gpu-1": "no answer"}).result
    assert kept.servers["gpu-2"].verdict is Verdict.HUNG
    again = judge_shard(3, at(90), "run-4", both(90, hung), kept)
    assert [(r.observation.server, r.ongoing, r.observation.since) for r in again.reports] == [
        ("gpu-1", False, at(30)),
        ("gpu-2", True, at(30)),
    ]


@pytest.mark.parametrize("look", [hung, gone, silent])
def test_a_verdict_that_reached_nobody_keeps_its_beginning_however_long_that_lasts(
    look: Any,
) -> None:
    watch = Watch()
    watch.reports(busy(0), look(30))
    for n in range(2, 12):
        judgement = with_unsent(watch.sweep(look(30 * n)), {"gpu-1": "no answer"})
        watch.before = judgement.result
        (report,) = judgement.reports
        assert (report.ongoing, report.observation.since) == (False, at(30))


def test_a_recovery_that_reached_nobody_is_reported_anew() -> None:
    watch = Watch()
    watch.reports(busy(0), hung(30), hung(60))
    watch.before = with_unsent(watch.sweep(busy(90)), {"gpu-1": "no answer"}).result
    assert [report.good for report in watch.sweep(busy(120)).reports] == [True]
    assert watch.sweep(busy(150)).reports == []


def test_people_hear_of_a_hang_that_steady_could_not_act_on_once_an_incident() -> None:
    watch = Watch()
    watch.reports(busy(0), hung(30))
    alerts = []
    for seconds in (60, 90):
        unsent = with_unsent(watch.sweep(hung(seconds)), {"gpu-1": "no answer"})
        watch.before = unsent.result
        alerts += unsent.alerts
    assert [(alert.cause, alert.severity) for alert in alerts] == [
        ("unreported", Severity.PAGE)
    ] * 2
    assert len({alert.incident for alert in alerts}) == 1
    assert alerts[0].title == "gpu-1 is hung, and steady can't act on it"
    assert alerts[0].detail == "its remediation could not be started: no answer"


def test_nobody_is_paged_for_a_recovery_that_could_not_be_passed_on() -> None:
    judgement = judge_shard(3, at(0), "run", shard(busy(0)), None)
    assert with_unsent(judgement, {"gpu-1": "no answer"}).alerts == []


def test_where_every_report_was_sent_nothing_changes() -> None:
    judgement = judge_shard(3, at(0), "run", shard(busy(0)), None)
    assert with_unsent(judgement, {}) is judgement
