"""Slots, shares and pages of ``storm-guard``: what is decided, without a workflow."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet import storm_alerts, storms, suspicion
from fleet.contracts.fleet import Pause, StormTerms
from fleet.contracts.storm import OpenByHand, ShareReport, SlotAsk, SlotFree, StormState
from fleet.contracts.sweep import SweepReadings, SweepResult
from fleet.policy import Mode, Policy, RollingBudget, Storm, default_at_once
from fleet.readings import Reading, WorkState, missing
from fleet.shares import digest, news
from fleet.storm_alerts import Alarm
from fleet.storm_details import markdown
from fleet.sweep import judge_shard

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EVERY = timedelta(seconds=30)
TERMS = StormTerms(version=1, servers=10, shards=2, storm=Storm(restarts_at_once=2))


def at(minutes: float) -> datetime:
    return T0 + minutes * MINUTE


def asks(name: str, **more: Any) -> SlotAsk:
    facts = {"server": name, "workflow_id": f"remediate/{name}", "run": f"run-{name}"}
    return SlotAsk.model_validate({**facts, "takes": 10 * MINUTE, "terms": TERMS, **more})


def frees(name: str, number: int = 1) -> SlotFree:
    return SlotFree(workflow_id=f"remediate/{name}", run=f"run-{name}", number=number)


def asked(*names: str, state: StormState | None = None, minutes: float = 0) -> StormState:
    state = state or StormState()
    for name in names:
        state = storms.ask(state, asks(name), at(minutes))
    return state


def share(bad: int, managed: int = 10, *, minutes: float = 0, shard: int = 0) -> ShareReport:
    """So many turned bad at T0; what is heard of it ``minutes`` later."""
    ill = {f"gpu-{number}": T0 for number in range(bad)}
    return ShareReport(shard=shard, at=at(minutes), managed=managed, ill=ill, terms=TERMS)


def heard(*reports: ShareReport, state: StormState | None = None) -> StormState:
    state = state or StormState()
    for report in reports:
        state = suspicion.hear(state, report, report.at)
    return state


def held_by(state: StormState) -> list[str]:
    return [lease.server for lease in state.holders]


def queue(state: StormState) -> list[str]:
    return [lease.server for lease in state.waiting]


# --- how many at once ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "at_once"),
    [(0, 1), (1, 1), (5, 1), (6, 2), (10, 2), (11, 3), (100, 20), (101, 21), (200, 40)],
)
def test_without_a_number_it_follows_from_the_size_of_the_fleet(servers: int, at_once: int) -> None:
    assert default_at_once(servers) == at_once
    assert Storm().at_once(servers) == at_once
    assert Storm(restarts_at_once=7).at_once(servers) == 7


def test_so_many_are_granted_in_the_order_in_which_they_asked_and_all_are_answered_once() -> None:
    state, said = storms.settle(asked("a", "b", "c", "d"), at(1))
    assert (held_by(state), queue(state)) == (["a", "b"], ["c", "d"])
    assert {s.workflow_id: s.word.granted for s in said} == {
        "remediate/a": True,
        "remediate/b": True,
        "remediate/c": False,
        "remediate/d": False,
    }
    assert storms.settle(state, at(2)) == (state, [])
    state, said = storms.settle(storms.free(state, frees("a")), at(5))
    assert (held_by(state), queue(state)) == (["b", "c"], ["d"])
    assert [(s.workflow_id, s.word.granted) for s in said] == [("remediate/c", True)]


def test_whoever_waits_hears_by_whom_and_until_about_when() -> None:
    _, said = storms.settle(asked("a", "b", "c", "d", "e"), at(0))
    words = {s.workflow_id[-1]: s.word for s in said}
    assert words["c"].by == "the limit of 2 at once (a, b now)"
    assert words["e"].by == "the limit of 2 at once (a, b now; 2 before it)"
    assert [words[name].until for name in "cde"] == [at(10), at(10), at(20)]


def test_asked_again_it_keeps_its_place_and_is_answered_again() -> None:
    state, _ = storms.settle(asked("d", state=asked("a", "b", "c"), minutes=1), at(1))
    state = asked("c", "a", state=state, minutes=5)
    state, said = storms.settle(state, at(5))
    assert (held_by(state), queue(state)) == (["b", "a"], ["c", "d"])
    assert {s.workflow_id: s.word.granted for s in said} == {
        "remediate/a": True,
        "remediate/c": False,
    }
    assert [lease.asked_at for lease in state.waiting] == [at(0), at(1)]


def test_another_run_of_the_same_server_takes_the_place_of_the_one_before() -> None:
    state, _ = storms.settle(asked("a"), at(0))
    state = storms.ask(state, asks("a", run="run-2"), at(1))
    state, _ = storms.settle(state, at(1))
    assert [(lease.server, lease.run) for lease in state.holders] == [("a", "run-2")]


def test_what_is_freed_late_does_not_free_what_was_asked_for_since() -> None:
    state = storms.ask(StormState(), asks("a", number=2), at(0))
    assert queue(storms.free(state, frees("a", 1))) == ["a"]
    assert queue(storms.free(state, frees("a", 2))) == []
    assert queue(storms.free(state, frees("b", 2))) == ["a"]


def test_an_order_by_hand_is_beyond_the_limit_and_counts() -> None:
    state, _ = storms.settle(asked("a", "b", "c"), at(0))
    state = storms.ask(state, asks("c", by_hand=True), at(1))
    state, said = storms.settle(asked("d", state=state), at(1))
    assert (held_by(state), queue(state)) == (["a", "b", "c"], ["d"])
    assert [s.workflow_id for s in said] == ["remediate/d"]
    state, _ = storms.settle(storms.free(state, frees("a")), at(2))
    assert queue(state) == ["d"]


def test_the_queue_has_a_bound() -> None:
    full = StormState(terms=TERMS)
    lease = asked("x").waiting[0]
    leases = [
        lease.model_copy(update={"workflow_id": f"remediate/{n}", "run": f"run-{n}"})
        for n in range(storms.MOST_WAITING)
    ]
    full = full.model_copy(update={"waiting": leases})
    assert len(asked("one-more", state=full).waiting) == storms.MOST_WAITING
    state, said = storms.settle(full, at(0))
    assert len(said) == storms.MOST_WAITING
    assert len(state.model_dump_json()) < 1_500_000


def test_the_newest_fleet_says_how_many() -> None:
    state, _ = storms.settle(asked("a", "b", "c", "d"), at(0))
    more = TERMS.model_copy(update={"version": 2, "storm": Storm(restarts_at_once=3)})
    state, _ = storms.settle(suspicion.adopt(state, more), at(1))
    assert held_by(state) == ["a", "b", "c"]
    assert suspicion.adopt(state, TERMS).terms == more


def test_holders_are_looked_at_only_while_somebody_waits_and_less_and_less_often() -> None:
    state, _ = storms.settle(asked("a", "b"), at(0))
    assert storms.next_due(state, at(0)) is None
    state, _ = storms.settle(asked("c", state=state), at(0))
    assert storms.is_look_due(state, at(0))
    gaps = []
    now = at(0)
    for _ in range(4):
        state = storms.looked(state, now)
        due = storms.next_due(state, now)
        assert due is not None
        gaps.append(due - now)
        now = due
    assert gaps == [MINUTE, 2 * MINUTE, 2 * MINUTE, 2 * MINUTE]


# --- the suspicion -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "managed", "suspect"),
    [(2, 2, False), (3, 3, True), (3, 7, True), (3, 8, False), (4, 10, False), (5, 10, True)],
)
def test_it_takes_more_than_the_share_and_so_many_servers(
    bad: int, managed: int, suspect: bool
) -> None:
    assert (heard(share(bad, managed)).suspicion is not None) is suspect


def test_what_turned_bad_longer_ago_than_the_window_arouses_none() -> None:
    assert heard(share(9, minutes=11)).suspicion is None
    assert heard(share(9, minutes=9)).suspicion is not None


def test_once_aroused_it_lasts_as_long_as_they_are_bad_whatever_the_window() -> None:
    state = heard(share(9))
    for minutes in range(1, 200, 20):
        state, _ = storms.settle(heard(share(9, minutes=minutes), state=state), at(minutes))
        assert state.suspicion is not None


def test_it_ends_when_the_share_has_been_good_for_the_cooldown() -> None:
    state = heard(share(9), share(4, minutes=30))
    assert suspicion.opens_at(state) == at(40)
    assert storms.next_due(state, at(30)) == at(40) or storms.is_look_due(state, at(30))
    assert suspicion.passed(state, at(39)).suspicion is not None
    again = heard(share(9, minutes=35), state=state)
    assert suspicion.opens_at(again) is None
    over = suspicion.passed(state, at(40))
    assert over.suspicion is None
    assert all(view.suspect_since is None for view in over.shards.values())
    assert heard(share(4, minutes=41), state=over).suspicion is None


def test_two_suspected_shards_both_have_to_be_good() -> None:
    state = heard(share(9), share(9, shard=1), share(0, minutes=5))
    assert suspicion.opens_at(state) is None
    state = heard(share(0, minutes=8, shard=1), state=state)
    assert suspicion.opens_at(state) == at(18)


def test_a_shard_that_the_fleet_no_longer_has_holds_nothing_back() -> None:
    state = heard(share(9, shard=1))
    less = TERMS.model_copy(update={"version": 2, "shards": 1})
    state = suspicion.adopt(state, less)
    assert suspicion.passed(state, at(11)).suspicion is None
    late = suspicion.hear(state, share(9, shard=1, minutes=1), at(1))
    assert 1 not in late.shards


def test_an_older_report_than_the_last_one_changes_nothing() -> None:
    state = heard(share(0, minutes=5))
    assert suspicion.hear(state, share(9, minutes=4), at(6)) == state


def test_it_blocks_all_that_wait_and_takes_back_what_was_granted() -> None:
    state, _ = storms.settle(asked("a", "b", "c"), at(0))
    state, said = storms.settle(heard(share(9, minutes=1), state=state), at(1))
    assert {s.workflow_id: s.word.granted for s in said} == dict.fromkeys(
        ["remediate/a", "remediate/b", "remediate/c"], False
    )
    text = "fleet-wide suspicion (9 of 10 servers of shard 0 turned bad within 10m)"
    assert {s.word.by for s in said} == {text}
    assert held_by(state) == ["a", "b"]
    state = asked("b", state=state, minutes=1)
    assert (held_by(state), queue(state)) == (["a"], ["b", "c"])
    state, _ = storms.settle(storms.free(state, frees("a")), at(2))
    assert (held_by(state), queue(state)) == ([], ["b", "c"])


def test_opened_by_hand_those_that_were_bad_are_no_reason_any_more_others_are() -> None:
    state = suspicion.open_by_hand(heard(share(9)), OpenByHand(who="ann"), at(5))
    assert heard(share(9, minutes=6), state=state).suspicion is None
    new = share(0, minutes=7).model_copy(update={"ill": {f"new-{n}": at(6) for n in range(9)}})
    assert heard(new, state=state).suspicion is not None
    calm = StormState()
    assert suspicion.open_by_hand(calm, OpenByHand(who="ann"), at(5)) == calm


# --- pages ---------------------------------------------------------------------------------------


def pages(state: StormState, minutes: float) -> tuple[StormState, list[str]]:
    state = storm_alerts.calmed(state, at(minutes))
    found = storm_alerts.due(state, at(minutes))
    for alarm in found:
        state = storm_alerts.told(state, alarm, at(minutes))
    return state, [message.cause for message in found.values()]


def test_a_suspicion_is_told_once_then_that_it_still_blocks_after_twice_the_time() -> None:
    state, causes = pages(heard(share(9)), 0)
    assert causes == [Alarm.SUSPICION]
    told = []
    for minutes in range(1, 24 * 60 * 4):
        state, causes = pages(state, minutes)
        told += [(minutes, cause) for cause in causes]
    assert [minutes for minutes, _ in told] == [30, 60, 120, 240, 480, 960, 1920, 3360, 4800]
    assert [cause for _, cause in told][:2] == ["still_blocked-1", "still_blocked-2"]


def test_its_end_is_told_under_the_same_key_and_not_where_nobody_heard_of_it() -> None:
    untold = suspicion.open_by_hand(heard(share(9)), OpenByHand(), at(1))
    assert pages(untold, 1)[1] == []
    state, _ = pages(heard(share(9)), 0)
    key = storm_alerts.due(heard(share(9)), at(0))[Alarm.SUSPICION].incident
    over = suspicion.open_by_hand(state, OpenByHand(who="ann", why="a switch"), at(1))
    message = storm_alerts.due(over, at(1))[Alarm.OVER]
    assert (message.incident, message.server) == (key, "")
    assert "opened by ann (a switch)" in message.detail
    assert pages(pages(over, 1)[0], 2)[1] == []


def test_a_suspicion_says_whom_it_is_about_and_what_to_do() -> None:
    message = storm_alerts.due(heard(share(9)), at(0))[Alarm.SUSPICION]
    assert message.title == (
        "fleet-wide suspicion: 9 of 10 servers of shard 0 turned bad within 10m"
    )
    assert "gpu-0, gpu-1" in message.detail
    assert "steady storm --open" in message.next_step
    assert len(message.detail) <= 1000


# --- what a sweep tells --------------------------------------------------------------------------


def look(name: str, minutes: float, *, hung: bool = False) -> Reading:
    """Where it hangs, its heartbeat stands still since the look at T0."""
    beat = at(0 if hung else minutes) - timedelta(seconds=100)
    return Reading(server=name, at=at(minutes), state=WorkState.PROCESSING, heartbeat=beat)


def lost(name: str, minutes: float) -> Reading:
    return missing(name, at(minutes), "connection refused")


def sweep(before: SweepResult | None, *readings: Reading, **more: Any) -> SweepResult:
    return judged(before, *readings, **more)[0]


def judged(
    before: SweepResult | None, *readings: Reading, **more: Any
) -> tuple[SweepResult, ShareReport | None]:
    policies = more.pop("policies", {})
    listed = [Policy(), *policies.values()]
    place = {name: number for number, name in enumerate(policies, 1)}
    seen = SweepReadings(
        interval=EVERY,
        version=1,
        readings=list(readings),
        policies=listed,
        policy_of={reading.server: place.get(reading.server, 0) for reading in readings},
        storm=more.pop("storm", TERMS),
        **more,
    )
    now = readings[0].at
    result = judge_shard(0, now, "run", seen, before).result
    report = news(seen, result, before, now)
    if report is not None:
        result = result.model_copy(update={"share_heard": digest(report)})
    return result, report


def watched(*looks: list[Reading], **more: Any) -> tuple[SweepResult, list[ShareReport | None]]:
    result: SweepResult | None = None
    reports = []
    for readings in looks:
        result, report = judged(result, *readings, **dict(more))
        reports.append(report)
    assert result is not None
    return result, reports


def well(minutes: float) -> list[Reading]:
    return [look(f"gpu-{n}", minutes) for n in range(4)]


def two_hung(minutes: float) -> list[Reading]:
    return [look(f"gpu-{n}", minutes, hung=n < 2) for n in range(4)]


def test_a_quiet_shard_says_nothing_and_a_change_is_said_once() -> None:
    _, reports = watched(well(0), two_hung(0.5), two_hung(1), two_hung(1.5), two_hung(2))
    said = [report for report in reports if report is not None]
    assert len(said) == 1
    assert (said[0].managed, set(said[0].ill)) == (4, {"gpu-0", "gpu-1"})
    assert set(said[0].ill.values()) == {at(0.5)}


def test_that_all_is_well_again_is_said_once_too() -> None:
    looks = [well(0), two_hung(0.5), two_hung(1), well(1.5), well(2), well(2.5)]
    _, reports = watched(*looks)
    said = [report for report in reports if report is not None]
    assert [len(report.ill) for report in said] == [2, 0]


def test_what_looks_like_a_storm_is_said_with_every_sweep() -> None:
    def hung(minutes: float) -> list[Reading]:
        return [look(f"gpu-{n}", minutes, hung=True) for n in range(4)]

    _, reports = watched(well(0), hung(0.5), hung(1), hung(1.5), hung(2))
    assert [report is not None for report in reports] == [False, False, True, True, True]


def test_what_was_not_heard_is_said_again() -> None:
    result, _ = watched(well(0), two_hung(0.5))
    unheard, report = judged(result, *two_hung(1))
    assert report is not None
    unheard = unheard.model_copy(update={"share_heard": ""})
    assert judged(unheard, *two_hung(1.5))[1] is not None


def test_without_terms_of_a_fleet_nothing_is_said() -> None:
    _, reports = watched(well(0), two_hung(0.5), two_hung(1), storm=None)
    assert reports == [None] * 3


def test_a_server_that_changes_its_bad_verdict_turned_bad_when_it_first_did() -> None:
    def gone(minutes: float) -> list[Reading]:
        return [lost("gpu-0", minutes), *well(minutes)[1:]]

    result, _ = watched(well(0), two_hung(0.5), two_hung(1), gone(1.5), gone(2))
    assert result.servers["gpu-0"].verdict == "missing"
    assert result.ill["gpu-0"] == at(0.5)


def test_a_server_that_was_never_seen_counts_neither_way() -> None:
    def one_lost(minutes: float, others: list[Reading]) -> list[Reading]:
        return [lost("gpu-9", minutes), *others]

    result, reports = watched(
        one_lost(0, well(0)),
        one_lost(0.5, two_hung(0.5)),
        one_lost(1, two_hung(1)),
    )
    assert "gpu-9" not in result.ill
    assert reports[-1] is not None
    assert (reports[-1].managed, set(reports[-1].ill)) == (4, {"gpu-0", "gpu-1"})


OPTED_OUT: dict[str, dict[str, Any]] = {
    "alert_only": {"policies": {"gpu-0": Policy(mode=Mode.ALERT_ONLY)}},
    "no budget": {"policies": {"gpu-0": Policy(budget=RollingBudget(limit=0))}},
    "no restart": {"unmanaged": ["gpu-0"]},
    "paused": {"paused": {"gpu-0": Pause(until=at(60))}},
}


@pytest.mark.parametrize("how", OPTED_OUT.values(), ids=OPTED_OUT)
def test_what_steady_may_not_restart_anyway_is_not_counted(how: dict[str, Any]) -> None:
    _, reports = watched(well(0), two_hung(0.5), two_hung(1), **how)
    assert reports[-1] is not None
    assert (reports[-1].managed, set(reports[-1].ill)) == (3, {"gpu-1"})


def test_what_is_off_on_purpose_is_not_counted_while_it_looks_off() -> None:
    def off(minutes: float) -> list[Reading]:
        return [lost("gpu-0", minutes), *two_hung(minutes)[1:]]

    policies = {"gpu-0": Policy(expected_off=True)}
    _, reports = watched(well(0), off(0.5), off(1), policies=policies)
    assert reports[-1] is not None
    assert (reports[-1].managed, set(reports[-1].ill)) == (3, {"gpu-1"})
    _, reports = watched(well(0), two_hung(0.5), two_hung(1), policies=policies)
    assert reports[-1] is not None
    assert reports[-1].managed == 4


def test_after_a_pause_of_steady_no_share_looks_worse_than_it_is() -> None:
    _, reports = watched(
        well(0), two_hung(0.5), two_hung(1), two_hung(20), two_hung(20.5), two_hung(21)
    )
    for report in reports[3:]:
        assert report is None or (report.managed, len(report.ill)) == (4, 2)


# --- what is shown -------------------------------------------------------------------------------


def test_the_temporal_ui_shows_who_holds_who_waits_and_what_blocks() -> None:
    state, _ = storms.settle(asked("a", "b", "c"), at(0))
    shown = markdown(state, "default")
    assert "at most 2 restarts at once; 2 now, 1 wait" in shown
    assert "holds a slot: [remediate/a](" in shown
    assert "waits: [remediate/c](" in shown
    blocked = markdown(heard(share(9), state=state), "default")
    assert "**restarts are blocked**: fleet-wide suspicion (9 of 10" in blocked
    assert "when good for 10m; or by `steady storm --open`" in blocked
