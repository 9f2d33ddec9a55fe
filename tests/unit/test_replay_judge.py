"""Kept readings and what is made of them: as much as of all readings, under any thresholds."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import recording
from fleet.config import Fleet
from fleet.contracts.record import Kept, Look
from fleet.judge import FRESH_INTERVALS
from fleet.policy import DailyBudget, Policy, RollingBudget
from fleet.readings import Reading, WorkState
from fleet.recording import Record, packed, unpacked
from fleet.replay import Episode, _Case, by_server, episodes, paired, unknowable
from fleet.verdicts import Verdict
from tests.unit.test_sweep import EVERY, Watch, at, busy, gone, hung
from worker.replay import Material, replay, summary

MINUTE = timedelta(minutes=1)
WEEK = timedelta(days=7)
POLICY = Policy()


class Recorded(Watch):
    """Sweeps of one server, of which the readings that are worth it are kept."""

    def __init__(self, policy: Policy = POLICY) -> None:
        super().__init__(policy=policy, keep_for=WEEK)
        self.policy = policy
        self.all: list[Reading] = []
        self.looks: list[Look] = []

    def see(self, *readings: Reading) -> None:
        for reading in readings:
            self.all.append(reading)
            self.looks += self.sweep(reading).looks

    def hang(self, begin: int, looks: int) -> int:
        """Hang after a heartbeat at ``begin``, for so many looks, and be well again."""
        self.see(busy(begin))
        for n in range(1, looks + 1):
            self.see(hung(begin + 30 * n, begin))
        end = begin + 30 * (looks + 1)
        self.see(busy(end))
        return end

    def replay(self, **changes: object) -> list[Episode]:
        policy = self.policy.model_copy(update=changes)
        return episodes(self.looks, policy, self.all[-1].at + EVERY)

    def in_full(self, **changes: object) -> list[Episode]:
        """The same from every single reading, none left out and none repeated."""
        policy = self.policy.model_copy(update=changes)
        case = _Case("gpu-1", policy)
        ends = [reading.at for reading in self.all[1:]] + [self.all[-1].at + EVERY]
        for reading, end in zip(self.all, ends, strict=True):
            is_gap = end - reading.at > FRESH_INTERVALS * EVERY
            until = reading.at + timedelta(milliseconds=1) if is_gap else end
            case.care(case.see(reading, EVERY), reading.at, until)
        return case.closed()


# --- what is kept --------------------------------------------------------------------------------


def test_a_server_that_works_costs_nothing() -> None:
    record = Recorded()
    looks = (busy(30 * n) for n in range(200))
    record.see(
        *(replace(look, state=WorkState.IDLE) if n % 7 else look for n, look in enumerate(looks))
    )
    assert record.looks == []


def test_hours_of_the_same_are_two_readings_the_first_bad_one_and_the_first_good_one() -> None:
    record = Recorded()
    record.hang(0, looks=720)
    assert [look.found for look in record.looks] == ["hung", "busy"]
    assert len(packed(record.looks)) < 300


def test_each_change_of_what_is_bad_is_kept() -> None:
    record = Recorded()
    record.see(busy(0), hung(30), gone(60), gone(90), hung(120), busy(150), busy(180))
    assert [look.found for look in record.looks] == ["hung", "missing", "hung", "busy"]


def test_a_heartbeat_that_moves_and_stops_again_is_another_reading() -> None:
    record = Recorded()
    record.see(busy(0), hung(30), hung(60), hung(90, last=30), hung(120, last=30))
    assert [look.found for look in record.looks] == ["hung", "skewed", "hung"]


def test_a_gap_in_the_sweeps_is_kept_where_something_is_bad() -> None:
    record = Recorded()
    record.see(busy(0), hung(30), hung(60), hung(900), hung(930))
    assert [(look.found, look.before >= 0) for look in record.looks] == [
        ("hung", False),
        ("hung", True),
    ]
    quiet = Recorded()
    quiet.see(busy(0), busy(900))
    assert quiet.looks == []


def test_nothing_is_kept_where_the_fleet_says_so_and_for_an_older_steady() -> None:
    watch = Watch()
    assert not any(watch.sweep(each).looks for each in (busy(0), hung(30), hung(60)))


# --- how it is held ------------------------------------------------------------------------------


def look(server: str, moment: datetime, found: Verdict = Verdict.HUNG) -> Look:
    begin = recording.ms(moment)
    return Look(server, begin, 30_000, found, "ok", "processing", begin - 180_000)


def served(record: Record) -> list[Look]:
    return unpacked(record.kept().looks)


def test_what_is_packed_is_what_comes_out() -> None:
    looks = [look(f"gpu-{n}", at(n)) for n in range(50)]
    record = Record()
    record.add(looks, WEEK, at(60))
    again = Record(Kept.model_validate_json(record.kept().model_dump_json()))
    assert served(again) == looks
    assert (again.since, again.keep_for, again.dropped) == (at(60), WEEK, 0)
    assert unpacked("") == []
    with pytest.raises(ValueError, match="no kept readings"):
        unpacked("bm90aGluZw==")


def test_what_is_sent_twice_is_kept_once() -> None:
    record = Record()
    for _ in range(2):
        record.add([look("gpu-1", at(0)), look("gpu-2", at(0))], WEEK, at(1))
    assert record.count == 2


def test_what_is_too_old_goes_unless_the_server_still_shows_it() -> None:
    day = timedelta(days=1)
    record = Record()
    record.add(
        [
            look("gone-well", at(0)),
            look("gone-well", at(60), Verdict.BUSY),
            look("still-bad", at(0)),
            look("was-bad-at-the-horizon", at(0)),
            look("was-bad-at-the-horizon", at(2 * 86400), Verdict.BUSY),
        ],
        day,
        at(60),
    )
    record.forget(at(0) + day + 2 * MINUTE)
    assert {each.server for each in served(record)} == {"still-bad", "was-bad-at-the-horizon"}
    record.forget(at(0) + 5 * day)
    assert served(record) == []


def test_its_number_is_bounded_and_what_had_no_room_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "MOST_LOOKS", 100)
    record = Record()
    for n in range(250):
        record.add([look(f"gpu-{n}", at(n))], WEEK, at(n))
    assert record.count <= 100
    assert record.dropped == 250 - record.count
    assert record.dropped_until == at(record.dropped - 1)
    assert served(record)[-1].server == "gpu-249"


def test_a_full_record_fits_into_a_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    import random  # noqa: PLC0415

    dice = random.Random(1)
    looks = []
    for n in range(recording.MOST_LOOKS):
        noise: dict[str, Any] = {
            name: f"{dice.getrandbits(48):012x}"[:8] for name in ("progress", "process")
        }
        moment = recording.ms(at(n)) + dice.randrange(1000)
        beat = moment - dice.randrange(10**7)
        name = f"gpu-worker-node-{dice.randrange(300):04}"
        looks.append(look(name, at(n))._replace(at=moment, beat=beat, moved=beat, **noise))
    record = Record()
    record.add(looks, WEEK, at(0))
    assert len(record.kept().model_dump_json()) < 1_600_000
    monkeypatch.setattr(recording, "_MOST_PACKED", 100_000)
    less = record.kept()
    assert len(less.looks) <= 100_000
    assert less.dropped + less.count == record.count == recording.MOST_LOOKS


# --- what is made of it --------------------------------------------------------------------------


def test_a_shorter_persistence_restarts_what_had_recovered_by_itself() -> None:
    record = Recorded()
    record.hang(0, looks=5)
    (as_it_is,) = record.replay()
    assert as_it_is.restarted is None
    assert as_it_is.fate() == "none: well 30s before it was due"
    (sooner,) = record.replay(persist_hung=MINUTE)
    assert sooner.restarted == at(30) + MINUTE
    assert sooner.ended == at(180)
    assert sooner.fate() == "restart after 1m"


def test_one_that_hangs_on_is_restarted_once_whatever_the_record_shows_after_that() -> None:
    record = Recorded()
    record.hang(0, looks=500)
    (episode,) = record.replay()
    assert episode.restarted == at(30) + 3 * MINUTE
    (slower,) = record.replay(persist_hung=60 * MINUTE)
    assert slower.restarted == at(30) + 60 * MINUTE


def test_a_budget_that_is_used_up_refuses() -> None:
    record = Recorded()
    end = 0
    for _ in range(4):
        end = record.hang(end, looks=40)
    fates = [episode.restarted is not None for episode in record.replay()]
    assert fates == [True, True, True, False]
    assert record.replay()[-1].fate().endswith("no budget left")
    tight = record.replay(budget=RollingBudget(limit=1))
    assert [episode.refused is not None for episode in tight] == [False, True, True, True]
    daily = record.replay(budget=DailyBudget(limit=2, per_day_in="Europe/Berlin"))
    assert [episode.restarted is not None for episode in daily] == [True, True, False, False]


def test_a_cooldown_puts_the_next_restart_off() -> None:
    record = Recorded()
    end = record.hang(0, looks=10)
    record.hang(end, looks=60)
    first, second = record.replay(cooldown=15 * MINUTE)
    assert first.restarted is not None
    assert second.restarted == first.restarted + 15 * MINUTE


def test_a_smaller_stale_after_finds_a_hang_sooner_than_it_was_kept() -> None:
    """The heartbeat of the first bad reading had stood still before that one too."""
    record = Recorded(Policy(stale_after=10 * MINUTE))
    record.see(busy(0))
    record.see(*(hung(30 * n) for n in range(1, 60)))
    (as_it_is,) = record.replay()
    (sooner,) = record.replay(stale_after=2 * MINUTE)
    assert as_it_is.first == at(510)
    assert sooner.first == at(30)
    assert sooner.restarted == at(30) + 3 * MINUTE


def test_what_such_a_change_can_not_show_is_said() -> None:
    assert unknowable(POLICY, POLICY.model_copy(update={"persist_hung": MINUTE})) == []
    (said,) = unknowable(POLICY, POLICY.model_copy(update={"stale_after": MINUTE}))
    assert said.startswith("stale_after was 2m: readings that were good under that were not kept")
    off = Policy(stalled_after=None)
    assert unknowable(off, POLICY)[0].startswith("stalled_after was off: ")
    assert unknowable(POLICY, off) == []


def test_more_observations_confirm_later() -> None:
    record = Recorded()
    record.hang(0, looks=30)
    (episode,) = record.replay(observations=5, persist_hung=timedelta(0))
    assert episode.confirmed == episode.restarted == at(150)


def test_episodes_of_the_same_time_are_paired() -> None:
    record = Recorded()
    end = record.hang(0, looks=2)
    end = record.hang(end, looks=20)
    until = at(end) + EVERY
    now, then = record.replay(observations=4), record.replay()
    pairs = paired(now, then, until)
    assert [(pair.now is None, pair.then is None) for pair in pairs] == [
        (True, False),
        (False, False),
    ]


def test_servers_are_told_apart() -> None:
    looks = [look("b", at(0)), look("a", at(30)), look("b", at(-30))]
    assert {name: len(of) for name, of in by_server(looks).items()} == {"a": 1, "b": 2}
    assert episodes([], POLICY, at(0)) == []


# --- the same as from all of it ------------------------------------------------------------------

SEGMENTS = st.lists(
    st.tuples(st.sampled_from("bhgesl!"), st.integers(1, 25)), min_size=1, max_size=8
)
POLICIES = st.builds(
    lambda persist, observations, stalled, limit: Policy(
        persist_hung=persist * MINUTE,
        persist_error=2 * persist * MINUTE,
        observations=observations,
        stalled_after=stalled,
        budget=RollingBudget(limit=limit),
    ),
    st.integers(0, 5),
    st.integers(2, 4),
    st.sampled_from([None, 20 * MINUTE]),
    st.integers(0, 3),
)


def story(segments: Iterable[tuple[str, int]]) -> list[Reading]:
    """Looks in a row: well, hung, gone, an error, silent, loading, and gaps in the sweeps."""
    seconds, found = 0, [busy(0)]
    for kind, count in segments:
        last = seconds
        if kind == "!":
            seconds += 600
            continue
        for _ in range(count):
            seconds += 30
            found.append(_one(kind, seconds, last))
    return found


def _one(kind: str, seconds: int, last: int) -> Reading:
    match kind:
        case "h":
            return hung(seconds, last)
        case "g":
            return gone(seconds)
        case "e":
            return replace(busy(seconds), state=WorkState.ERROR)
        case "s":
            return replace(hung(seconds, last), state=WorkState.IDLE)
        case "l":
            return replace(busy(seconds), state=WorkState.LOADING)
    return busy(seconds)


@given(SEGMENTS, POLICIES)
def test_a_record_tells_what_all_readings_would(
    segments: list[tuple[str, int]], policy: Policy
) -> None:
    record = Recorded()
    record.see(*story(segments))
    changes = {
        name: getattr(policy, name)
        for name in ("persist_hung", "persist_error", "observations", "budget")
    }
    assert record.replay(**changes) == record.in_full(**changes)


def test_what_a_real_restart_came_before_is_not_known_rather_than_none() -> None:
    record = Recorded()
    record.hang(0, looks=12)
    config = {
        "hosts": {"box": {"address": "box", "user": "ops", "key": "/key"}},
        "servers": {
            "gpu-1": {
                "source": {"kind": "redis", "key": "gpu-1"},
                "restart": {"kind": "docker", "host": "box", "name": "gpu-1"},
            }
        },
    }
    fleet = Fleet.model_validate(config)

    def tried(restarts: list[datetime], **changes: object) -> tuple[str, str]:
        material = Material(looks=record.looks, restarts={"gpu-1": restarts})
        policy = POLICY.model_copy(update=changes)
        found = replay(material, fleet, at(0), lambda _: policy)
        [stretch] = found.stretches
        assert stretch.then is not None
        return stretch.then.said, summary(found, "it")[1]

    restarted = at(30) + 3 * MINUTE
    later = {"persist_hung": 60 * MINUTE}
    assert tried([], **later) == ("none: well 54m before it was due", _with_it(""))
    unknown = ("not known: it was really restarted before that", _with_it(", 1 not known"))
    assert tried([restarted], **later) == unknown
    assert tried([restarted], observations=50) == unknown
    said, counted = tried([restarted], persist_hung=MINUTE)
    assert (said, counted) == ("restart after 1m", "with it: 1 restart of 1 server")


def _with_it(more: str) -> str:
    return f"with it: 0 restarts of 0 servers{more}"


def test_rows_are_plain_json() -> None:
    assert json.loads(json.dumps([list(look("gpu-1", at(0)))]))[0][0] == "gpu-1"
