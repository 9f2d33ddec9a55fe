"""When a server is hung, and when it only looks so. Sweeps are 30 s apart unless a test says so."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.contrib.pydantic import pydantic_data_converter

from fleet.contracts.sweep import SweepReadings, SweepResult
from fleet.durations import parse
from fleet.findings import Finding
from fleet.judge import Memory, find, observe, still_bad
from fleet.policy import Policy
from fleet.readings import Reading, ReadStatus, WorkState, missing, unreadable
from fleet.sweep import judge_shard
from fleet.verdicts import ALERT_ONLY, GIVEN_BY, GOOD, Verdict

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EVERY = timedelta(seconds=30)
POLICY = Policy()


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def look(
    seconds: float, beat: float | None, state: WorkState = WorkState.PROCESSING, **more: Any
) -> Reading:
    """What is seen ``seconds`` after T0, with the heartbeat of ``beat``; none: no record."""
    if beat is None:
        return missing("gpu-1", at(seconds), "no record")
    return Reading(server="gpu-1", at=at(seconds), state=state, heartbeat=at(beat), **more)


def garbled(seconds: float) -> Reading:
    return unreadable("gpu-1", at(seconds), "no JSON")


def watch(
    *readings: Reading,
    policy: Policy = POLICY,
    interval: timedelta = EVERY,
    before: Memory | None = None,
) -> list[Memory]:
    """What each look leaves, carried from one to the next as Temporal carries it."""
    memories = []
    for reading in readings:
        before, _ = observe(reading, before, policy, interval)
        before = Memory.model_validate_json(before.model_dump_json())
        memories.append(before)
    return memories


def verdicts(*readings: Reading, **options: Any) -> list[Verdict | None]:
    return [memory.verdict for memory in watch(*readings, **options)]


def last(*readings: Reading, **options: Any) -> Memory:
    return watch(*readings, **options)[-1]


# --- one reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reading", "verdict"),
    [
        (look(10, 0), Verdict.BUSY),
        (look(10, 0, WorkState.IDLE), Verdict.IDLE),
        (look(10, 0, WorkState.OTHER, word="draining"), Verdict.HEALTHY),
        (look(10, 0, WorkState.LOADING), Verdict.LOADING),
        (look(10, 0, WorkState.ERROR), Verdict.ERROR),
        (look(120, 0), Verdict.BUSY),
        (look(121, 0), Verdict.HUNG),
        (look(121, 0, WorkState.IDLE), Verdict.SILENT),
        (look(121, 0, WorkState.OTHER), Verdict.SILENT),
        (look(121, 0, WorkState.LOADING), Verdict.LOADING),
        (look(901, 0, WorkState.LOADING), Verdict.SILENT),
        (look(9999, 0, WorkState.ERROR), Verdict.ERROR),
        (look(0, 30), Verdict.BUSY),
        (look(0, 31), Verdict.SKEWED),
        (look(0, 31, WorkState.ERROR), Verdict.SKEWED),
        (look(0, None), Verdict.MISSING),
        (garbled(0), Verdict.UNREADABLE),
        (Reading(server="gpu-1", at=T0, state=WorkState.PROCESSING), Verdict.UNREADABLE),
    ],
)
def test_what_one_reading_says(reading: Reading, verdict: Verdict) -> None:
    assert find(reading, None, POLICY).verdict is verdict


def test_a_finding_says_why_in_words_that_stand_in_an_alert() -> None:
    hung = find(look(130, 0, word="rendering"), None, POLICY)
    assert hung.why == "state rendering, heartbeat 2m10s old"
    assert find(missing("gpu-1", T0, "refused"), None, POLICY).why == "refused"
    assert find(look(0, 90), None, POLICY).why == "the heartbeat lies 1m30s in the future"


# --- two observations in a row -------------------------------------------------------------------


def test_a_hang_is_confirmed_by_the_second_look_and_counts_from_the_first() -> None:
    busy, one, two = watch(look(100, 0), look(130, 0), look(160, 0))
    assert (busy.verdict, one.verdict, two.verdict) == (Verdict.BUSY, Verdict.BUSY, Verdict.HUNG)
    assert (one.pending, one.count, one.first) == (Verdict.HUNG, 1, at(130))
    assert (two.since, two.pending, two.count) == (at(130), None, 0)


def test_a_confirmed_hang_keeps_its_beginning_for_as_long_as_it_lasts() -> None:
    looks = [look(100 + 30 * n, 0) for n in range(40)]
    assert last(*looks).since == at(130)


def test_more_observations_can_be_asked_for() -> None:
    patient = Policy(observations=4)
    looks = [look(100 + 30 * n, 0) for n in range(5)]
    assert verdicts(*looks, policy=patient)[1:] == [Verdict.BUSY] * 3 + [Verdict.HUNG]
    assert last(*looks, policy=patient).since == at(130)


@pytest.mark.parametrize("between", [look(160, 159), look(160, None), garbled(160)])
def test_two_bad_looks_with_another_between_are_not_in_a_row(between: Reading) -> None:
    seen = verdicts(look(100, 0), look(130, 0), between, look(190, 0))
    assert Verdict.HUNG not in seen


def test_a_good_look_is_believed_at_once_and_forgets_the_bad_ones() -> None:
    memories = watch(look(100, 0), look(130, 0), look(160, 0), look(190, 189), look(340, 189))
    assert memories[3].verdict is Verdict.BUSY
    assert (memories[3].pending, memories[3].count) == (None, 0)
    assert memories[3].since == at(190)


def test_good_then_bad_then_good_then_bad_is_never_confirmed() -> None:
    looks = [look(30 * n, None if n % 2 else 30 * n) for n in range(20)]
    assert set(verdicts(*looks)) == {Verdict.BUSY}


@pytest.mark.parametrize(
    ("bad", "verdict"),
    [
        (lambda t: look(t, None), Verdict.MISSING),
        (garbled, Verdict.UNREADABLE),
        (lambda t: look(t, t, WorkState.ERROR), Verdict.ERROR),
        (lambda t: look(t, -100, WorkState.IDLE), Verdict.SILENT),
        (lambda t: look(t, t + 300), Verdict.SKEWED),
    ],
)
def test_every_bad_verdict_needs_two_looks(bad: Any, verdict: Verdict) -> None:
    assert verdicts(look(0, -100), bad(30), bad(60)) == [Verdict.BUSY, Verdict.BUSY, verdict]


def test_looks_set_off_by_hand_within_seconds_are_one_witness() -> None:
    looks = [look(100, 0), look(130, 0), look(131, 0), look(132, 0), look(133, 0)]
    assert verdicts(*looks) == [Verdict.BUSY] * 5
    assert verdicts(*looks, look(160, 0))[-1] is Verdict.HUNG


def test_a_blink_just_after_a_bad_look_still_breaks_the_row() -> None:
    seen = verdicts(look(100, 0), look(130, 0), look(132, None), look(160, 0))
    assert Verdict.HUNG not in seen


# --- one bad verdict after another ---------------------------------------------------------------


def test_hung_and_missing_in_turn_confirm_neither() -> None:
    looks = [look(130 + 30 * n, 0 if n % 2 else None) for n in range(20)]
    assert set(verdicts(look(100, 0), *looks)) == {Verdict.BUSY}


def test_a_confirmed_hang_outlasts_one_lost_read_and_stays_the_same_incident() -> None:
    memory = last(look(100, 0), look(130, 0), look(160, 0), look(190, None), look(220, 0))
    assert (memory.verdict, memory.since, memory.pending) == (Verdict.HUNG, at(130), None)


def test_a_record_that_vanishes_and_comes_back_with_another_old_heartbeat_is_another_hang() -> None:
    looks = [look(100, 0), look(130, 0), look(160, 0), look(190, None), look(220, 80)]
    assert watch(*looks)[-1].verdict is None
    again = last(*looks, look(250, 80), look(280, 80))
    assert (again.verdict, again.since) == (Verdict.HUNG, at(250))


def test_an_error_that_becomes_a_hang_is_a_hang_after_two_looks() -> None:
    error = WorkState.ERROR
    looks = [look(0, 0), look(30, 30, error), look(60, 60, error), look(200, 60)]
    memories = watch(*looks[:3], look(90, 80), look(120, 80))
    assert memories[2].verdict is Verdict.ERROR
    slow = timedelta(seconds=100)
    seen = watch(*looks, look(300, 60), policy=POLICY, interval=slow)
    assert [memory.verdict for memory in seen][2:] == [Verdict.ERROR, Verdict.ERROR, Verdict.HUNG]
    assert seen[-1].since == at(200)


def test_an_error_is_one_incident_whether_its_heartbeat_moves_or_not() -> None:
    error = WorkState.ERROR
    memory = last(
        look(0, 0),
        look(30, 30, error),
        look(60, 60, error),
        *(look(t, 60, error) for t in range(90, 600, 30)),
    )
    assert (memory.verdict, memory.since) == (Verdict.ERROR, at(30))


# --- the heartbeat by the observer's own clock ---------------------------------------------------


def test_a_heartbeat_that_moves_but_always_reads_old_is_a_clock_that_is_off() -> None:
    looks = [look(1000 + 30 * n, 700 + 30 * n) for n in range(6)]
    assert verdicts(*looks)[2:] == [Verdict.SKEWED] * 4
    assert "clocks disagree" in observe(looks[1], watch(looks[0])[0], POLICY, EVERY)[1].why


def test_a_heartbeat_slower_than_the_sweeps_on_a_clock_that_is_off_is_never_hung() -> None:
    """Beats every 50 s, read ten minutes old: at rest for one sweep, never for two."""
    looks = [look(30 * n, 30 * n - 600 - (30 * n % 50)) for n in range(60)]
    assert Verdict.HUNG not in verdicts(*looks)


def test_with_long_intervals_a_moved_heartbeat_can_be_old_and_needs_two_looks_at_rest() -> None:
    """Swept every 5 min: it worked on after the first look, and hung before the second."""
    five = timedelta(minutes=5)
    looks = [look(0, 0), look(300, 100), look(600, 100)]
    seen = watch(*looks, interval=five)
    assert [memory.verdict for memory in seen] == [Verdict.BUSY, Verdict.BUSY, Verdict.HUNG]
    assert seen[-1].since == at(300)


def test_a_slow_heartbeat_that_is_old_at_every_look_and_always_another_is_never_hung() -> None:
    five = timedelta(minutes=5)
    looks = [look(300 * n, 300 * n - 150) for n in range(10)]
    assert Verdict.HUNG not in verdicts(*looks, interval=five)


def test_a_hang_that_ended_and_began_anew_between_two_looks_is_confirmed_anew() -> None:
    five = timedelta(minutes=5)
    looks = [look(0, 0), look(300, 100), look(600, 100), look(900, 700), look(1200, 700)]
    seen = watch(*looks, interval=five)
    assert [memory.verdict for memory in seen][2:] == [Verdict.HUNG, None, Verdict.HUNG]
    assert seen[-1].since == at(900)


def test_the_same_heartbeat_is_nothing_bad_while_it_is_young() -> None:
    assert verdicts(*(look(30 * n, 0) for n in range(5))) == [Verdict.BUSY] * 5


def test_a_future_heartbeat_within_the_tolerance_is_fresh() -> None:
    assert verdicts(look(0, 20), look(30, 50)) == [Verdict.BUSY] * 2


# --- steady's own pauses and clock ---------------------------------------------------------------


def test_the_very_first_look_only_looks() -> None:
    seen = watch(look(500, 0), look(530, 0), look(560, 0))
    assert [memory.verdict for memory in seen] == [None, None, Verdict.HUNG]
    assert (seen[0].pending, seen[0].count) == (Verdict.HUNG, 0)
    assert seen[-1].since == at(530)


def test_a_skipped_sweep_leaves_the_row_whole_and_two_skipped_ones_do_not() -> None:
    start = (look(100, 0), look(130, 0))
    assert verdicts(*start, look(190, 0))[-1] is Verdict.HUNG
    assert verdicts(*start, look(220, 0))[-1] is None


def test_after_its_own_pause_a_sweep_looks_for_one_interval_before_it_judges() -> None:
    pause = 3600
    worked = watch(look(0, 0), look(30, 30))[-1]
    after = watch(look(pause, 100), look(pause + 30, 100), look(pause + 60, 100), before=worked)
    assert [memory.verdict for memory in after] == [None, None, Verdict.HUNG]
    assert after[-1].since == at(pause + 30)


def test_a_server_that_is_well_after_the_pause_is_well_at_once() -> None:
    hung = watch(look(100, 0), look(130, 0), look(160, 0))[-1]
    assert watch(look(4000, 3990), before=hung)[0].verdict is Verdict.BUSY


def test_a_hang_that_outlasts_the_pause_is_the_same_one_if_its_heartbeat_proves_it() -> None:
    hung = watch(look(100, 0), look(130, 0), look(160, 0))[-1]
    same = watch(look(4000, 0), look(4030, 0), look(4060, 0), before=hung)
    assert [memory.verdict for memory in same] == [None, None, Verdict.HUNG]
    assert same[-1].since == at(130)
    other = watch(look(4000, 3000), look(4030, 3000), look(4060, 3000), before=hung)
    assert other[-1].since == at(4030)


def test_an_error_counts_through_the_pause_only_if_its_record_was_not_touched() -> None:
    error = WorkState.ERROR
    before = watch(look(0, 0), look(30, 30, error), look(60, 60, error))[-1]
    touched = watch(*(look(t, t, error) for t in (4000, 4030, 4060)), before=before)[-1]
    assert (touched.verdict, touched.since) == (Verdict.ERROR, at(4030))
    alone = watch(*(look(t, 60, error) for t in (4000, 4030, 4060)), before=before)[-1]
    assert (alone.verdict, alone.since) == (Verdict.ERROR, at(30))


def test_what_only_a_person_mends_is_no_second_incident_after_the_pause() -> None:
    gone = watch(look(0, 0), look(30, None), look(60, None))[-1]
    still = watch(*(look(t, None) for t in (4000, 4030, 4060)), before=gone)[-1]
    assert (still.verdict, still.since) == (Verdict.MISSING, at(30))


def test_a_pause_in_the_middle_of_a_row_is_no_part_of_it() -> None:
    pending = watch(look(100, 0), look(130, 0))[-1]
    seen = watch(look(4000, 0), look(4030, 0), look(4060, 0), before=pending)
    assert [memory.verdict for memory in seen] == [None, None, Verdict.HUNG]


def test_a_clock_that_steps_back_confirms_nothing() -> None:
    looks = [look(300, 150), look(330, 150), look(310, 150), look(340, 150)]
    assert Verdict.HUNG not in verdicts(*looks)
    assert verdicts(*looks, look(370, 150))[-1] is Verdict.HUNG


def test_a_clock_that_steps_forward_makes_no_working_server_hung() -> None:
    """The observer jumps ahead by an hour; the worker beats on every 10 s."""
    ahead = [look(3600 + 30 * n, 30 * n - 5) for n in range(3, 20)]
    assert Verdict.HUNG not in verdicts(look(0, -5), look(30, 25), look(60, 55), *ahead)


# --- work without progress, and loading ----------------------------------------------------------


def working(
    seconds: float, progress: str | None, state: WorkState = WorkState.PROCESSING
) -> Reading:
    return look(seconds, seconds, state, progress=progress)


def test_work_without_progress_is_stalled_after_its_limit_and_two_looks() -> None:
    looks = [working(30 * n, "7") for n in range(64)]
    seen = verdicts(*looks)
    assert seen[61] is Verdict.BUSY
    assert seen[62] is Verdict.STALLED
    assert last(*looks, working(64 * 30, "8")).verdict is Verdict.BUSY


def test_a_worker_without_a_progress_marker_is_never_stalled() -> None:
    assert set(verdicts(*(working(30 * n, None) for n in range(100)))) == {Verdict.BUSY}


def test_stalling_can_be_switched_off() -> None:
    looks = [working(30 * n, "7") for n in range(100)]
    assert set(verdicts(*looks, policy=Policy(stalled_after=None))) == {Verdict.BUSY}


def test_the_time_before_a_job_is_no_time_without_progress() -> None:
    idle = [working(30 * n, "7", WorkState.IDLE) for n in range(100)]
    busy = [working(3000 + 30 * n, "7") for n in range(10)]
    assert set(verdicts(*idle, *busy)) == {Verdict.IDLE, Verdict.BUSY}


def test_a_lost_read_is_no_progress() -> None:
    looks = [working(30 * n, "7") if n != 40 else look(30 * n, None) for n in range(64)]
    assert verdicts(*looks)[-1] is Verdict.STALLED


def test_another_process_is_restarted_for_one_look_and_starts_its_own_clocks() -> None:
    old = [look(30 * n, 30 * n, progress="7", process="a") for n in range(60)]
    new = [look(1800 + 30 * n, 1800 + 30 * n, progress="7", process="b") for n in range(30)]
    seen = verdicts(*old, *new)
    assert seen[60] is Verdict.RESTARTED
    assert set(seen[61:]) == {Verdict.BUSY}


def test_loading_past_its_limit_is_overdue_whether_or_not_it_beats() -> None:
    beating = [look(30 * n, 30 * n, WorkState.LOADING) for n in range(34)]
    seen = verdicts(look(-30, -30), *beating)
    assert set(seen[1:32]) == {Verdict.LOADING}
    assert seen[-1] is Verdict.OVERDUE
    quiet = verdicts(look(-30, -30), *(look(30 * n, 0, WorkState.LOADING) for n in range(30)))
    assert set(quiet[1:]) == {Verdict.LOADING}


def test_a_second_load_of_another_process_has_the_whole_limit_again() -> None:
    loads = [
        look(30 * n, 30 * n, WorkState.LOADING, process="a" if n < 25 else "b") for n in range(50)
    ]
    assert Verdict.OVERDUE not in verdicts(*loads)


def test_a_worker_that_dies_while_loading_is_told_in_the_end() -> None:
    looks = [look(30 * n, 0, WorkState.LOADING) for n in range(40)]
    assert verdicts(*looks)[-1] in ALERT_ONLY


# --- inside a remediation ------------------------------------------------------------------------


def test_a_remediation_judges_as_the_sweep_does() -> None:
    assert still_bad(look(400, 0), at(0), POLICY).verdict is Verdict.HUNG
    assert still_bad(look(400, 0, WorkState.ERROR), at(0), POLICY).verdict is Verdict.ERROR
    assert still_bad(look(400, 399), at(0), POLICY).verdict is Verdict.BUSY
    assert still_bad(look(400, None), at(0), POLICY).verdict is Verdict.MISSING


def test_a_heartbeat_that_moved_since_the_last_look_is_not_hung_however_old_it_reads() -> None:
    for quick in (POLICY, Policy(stale_after=parse("2s"))):
        finding = still_bad(look(400, 100), at(0), quick)
        assert finding.verdict is Verdict.SKEWED
        assert "moved" in finding.why
        assert still_bad(look(430, 100), at(100), quick).verdict is Verdict.HUNG


def test_without_an_earlier_heartbeat_only_the_age_counts() -> None:
    assert still_bad(look(400, 0), None, POLICY).verdict is Verdict.HUNG


# --- what is kept --------------------------------------------------------------------------------


def size(value: object) -> int:
    """Bytes as Temporal carries it."""
    (payload,) = pydantic_data_converter.payload_converter.to_payloads([value])
    return len(payload.data)


def test_a_memory_is_never_over_300_bytes_and_800_of_them_fit_into_a_shard() -> None:
    odd = T0 + timedelta(microseconds=123_456)
    longest = max((verdict for verdict in Verdict), key=len)
    most = Memory(
        at=odd,
        verdict=longest,
        since=odd,
        pending=longest,
        first=odd,
        count=19,
        beat=odd,
        progress="a" * 8,
        process="b" * 8,
        moved=odd,
        told=9,
    )
    assert size(most) <= 300
    assert size(most.model_copy(update={"told": 0, "owed": 1})) <= 300
    names = [f"gpu-worker-node-{n:04}" for n in range(800)]
    shard = SweepResult(shard=12, at=odd, version=99, servers=dict.fromkeys(names, most))
    assert size(shard) <= 256 * 1024


def test_no_value_of_a_worker_makes_a_memory_grow() -> None:
    elsewhere = datetime.fromisoformat("2026-11-30T17:30:00.123456+05:30")
    reading = Reading(
        server="gpu-1",
        at=elsewhere,
        state=WorkState.PROCESSING,
        heartbeat=elsewhere,
        progress="ü" * 64,
        process="漢" * 64,
        job="j" * 80,
    )
    memory = last(reading)
    assert memory.beat == elsewhere
    assert size(memory) <= 300


def test_a_memory_says_nothing_of_what_it_does_not_know() -> None:
    assert last(look(0, 0)).model_dump_json() == (
        '{"at":"2026-11-30T12:00:00Z","verdict":"busy","since":"2026-11-30T12:00:00Z",'
        '"beat":"2026-11-30T12:00:00Z"}'
    )


# --- for any history at all ----------------------------------------------------------------------

moments = st.integers(-400, 400)
readings = st.builds(
    lambda kind, age, state, mark, process: (kind, age, state, mark, process),
    st.sampled_from(["ok", "ok", "ok", "same", "same", "same", "missing", "unreadable"]),
    moments,
    st.sampled_from([WorkState.PROCESSING, WorkState.PROCESSING, *WorkState]),
    st.sampled_from([None, "1", "2"]),
    st.sampled_from([None, "a", "a", "b"]),
)
steps = st.sampled_from([30, 30, 30, 30, 3, 60, 75, 76, 90, 600, -40, 0])
histories = st.lists(st.tuples(steps, readings), min_size=1, max_size=25)
policies = st.builds(
    Policy,
    observations=st.integers(2, 4),
    stale_after=st.sampled_from([parse("2s"), parse("120s")]),
)
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def told(history: Sequence[tuple[int, tuple[Any, ...]]], server: str = "gpu-1") -> list[Reading]:
    """A history as readings; ``same`` repeats the heartbeat that was read last."""
    now, beat, result = 0, 0, []
    for step, (kind, age, state, mark, process) in history:
        now += step
        if kind == "missing":
            result.append(missing(server, at(now), "gone"))
            continue
        if kind == "unreadable":
            result.append(unreadable(server, at(now), "odd"))
            continue
        beat = now - age if kind == "ok" else beat
        reading = look(now, beat, state, progress=mark, process=process)
        result.append(replace(reading, server=server))
    return result


def walk(
    readings: Sequence[Reading], policy: Policy
) -> list[tuple[Reading, Memory | None, Memory, Finding]]:
    before: Memory | None = None
    seen = []
    for reading in readings:
        memory, finding = observe(reading, before, policy, EVERY)
        seen.append((reading, before, memory, finding))
        before = memory
    return seen


@quick
@given(histories, policies)
def test_nothing_is_ever_hung_but_a_heartbeat_seen_old_and_unchanged_by_consecutive_looks(
    history: list[tuple[int, tuple[Any, ...]]], policy: Policy
) -> None:
    seen = walk(told(history), policy)
    for n, (reading, before, memory, _) in enumerate(seen):
        was = before.verdict if before is not None else None
        if memory.verdict is Verdict.HUNG and was is not Verdict.HUNG:
            row = [each[0] for each in seen[n + 1 - policy.observations : n + 1]]
            assert len(row) == policy.observations
            assert {each.heartbeat for each in row} == {reading.heartbeat}
            assert all(each.state is WorkState.PROCESSING for each in row)
            stale = policy.stale_after.total_seconds()
            assert all((each.age() or 0) > stale for each in row)
            assert row[0].at < row[-1].at


@quick
@given(histories, policies)
def test_every_bad_verdict_is_confirmed_by_consecutive_looks_that_found_it(
    history: list[tuple[int, tuple[Any, ...]]], policy: Policy
) -> None:
    seen = walk(told(history), policy)
    for n, (_, before, memory, _) in enumerate(seen):
        was = before.verdict if before is not None else None
        if memory.verdict is not None and memory.verdict not in GOOD and memory.verdict is not was:
            row = seen[n + 1 - policy.observations : n + 1]
            assert {finding.verdict for *_, finding in row} == {memory.verdict}


@quick
@given(histories, policies)
def test_a_memory_is_always_in_order(
    history: list[tuple[int, tuple[Any, ...]]], policy: Policy
) -> None:
    for _, _, memory, finding in walk(told(history), policy):
        assert finding.verdict in GIVEN_BY["heartbeat"]
        assert memory.count < policy.observations
        assert memory.count == 0 or memory.first is not None
        assert (memory.verdict in GOOD) or finding.verdict not in GOOD
        assert memory.pending not in GOOD
        assert size(memory) <= 300
        assert Memory.model_validate_json(memory.model_dump_json()) == memory


@quick
@given(histories, policies)
def test_judging_is_a_pure_function_that_survives_being_carried_as_json(
    history: list[tuple[int, tuple[Any, ...]]], policy: Policy
) -> None:
    for reading, before, memory, finding in walk(told(history), policy):
        carried = Memory.model_validate_json(before.model_dump_json()) if before else None
        assert observe(reading, carried, policy, EVERY) == (memory, finding)


@quick
@given(st.lists(histories, min_size=2, max_size=4), st.randoms())
def test_the_order_of_servers_does_not_matter(
    many: list[list[tuple[int, tuple[Any, ...]]]], random: Any
) -> None:
    rounds = list(zip(*(told(one, f"gpu-{n}") for n, one in enumerate(many)), strict=False))

    def swept(*, shuffled: bool) -> list[dict[str, Memory]]:
        before, results = None, []
        for each in rounds:
            readings = list(each)
            if shuffled:
                random.shuffle(readings)
            names = [reading.server for reading in readings]
            seen = SweepReadings(
                interval=EVERY,
                version=1,
                readings=readings,
                policies=[POLICY],
                policy_of=dict.fromkeys(names, 0),
            )
            before = judge_shard(0, T0, "run", seen, before).result
            results.append(before.servers)
        return results

    assert swept(shuffled=False) == swept(shuffled=True)


@quick
@given(
    st.integers(-5000, 5000),
    st.integers(1, 30),
    st.lists(st.sampled_from([30, 60, 90, 600])),
)
def test_a_worker_that_beats_is_never_hung_whatever_its_clock_and_whatever_steady_misses(
    offset: int, period: int, gaps: list[int]
) -> None:
    now, looks = 0, []
    for gap in gaps:
        now += gap
        looks.append(look(now, now - now % period + offset))
    assert Verdict.HUNG not in verdicts(*looks)
    assert Verdict.SILENT not in verdicts(*looks)


def test_a_reading_that_is_ok_without_a_heartbeat_is_unreadable() -> None:
    bare = Reading(server="gpu-1", at=T0, status=ReadStatus.OK)
    assert find(bare, None, POLICY).verdict is Verdict.UNREADABLE
