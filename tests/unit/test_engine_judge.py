"""When an engine looks stuck, and when it only reads a long prompt. Sweeps are 30 s apart."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.contracts.sweep import SweepReadings
from fleet.engines.judge import find
from fleet.engines.page import read_page
from fleet.engines.reading import Answer, Came, EngineReading, Page
from fleet.engines.sighting import Sighting, compare
from fleet.engines.vllm import VLLM
from fleet.judge import Memory
from fleet.observing import observe
from fleet.policy import Policy
from fleet.readings import Reading, ReadStatus
from fleet.sweep import judge_shard
from fleet.verdicts import Verdict
from tests.parts.vllm_pages import engine, page

T0 = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
EVERY = timedelta(seconds=30)
POLICY = Policy()


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def seen(seconds: float, *engines: dict[str, float | str], **more: Any) -> Reading:
    reading, detail = read_page(page(*engines, **more), VLLM)
    return Reading(server="v-1", at=at(seconds), engine=reading, detail=detail)


def closed(seconds: float, kind: Page = Page.REFUSED, **more: Any) -> Reading:
    return Reading(
        server="v-1",
        at=at(seconds),
        status=ReadStatus.MISSING,
        detail="connection refused",
        engine=EngineReading(profile="vllm", page=kind, **more),
    )


def asked(seconds: float, came: Came, **numbers: Any) -> Reading:
    reading = seen(seconds, engine(**numbers))
    assert reading.engine is not None
    answer = Answer(came=came, took=60.0, sent=1)
    return replace(reading, engine=replace(reading.engine, answer=answer))


def watch(*readings: Reading, policy: Policy = POLICY) -> list[Memory]:
    memories: list[Memory] = []
    before: Memory | None = None
    for reading in readings:
        before, _ = observe(reading, before, policy, EVERY)
        before = Memory.model_validate_json(before.model_dump_json())
        memories.append(before)
    return memories


def verdicts(*readings: Reading) -> list[Verdict | None]:
    return [memory.verdict for memory in watch(*readings)]


BUSY, IDLE, SUSPECT = Verdict.BUSY, Verdict.IDLE, Verdict.SUSPECT


# --- progress ------------------------------------------------------------------------------------


def test_work_in_flight_that_moves_is_busy_for_ever() -> None:
    days = [seen(30 * n, engine(running=2, waiting=7, steps=100 + n, kv=0.3)) for n in range(50)]
    assert set(verdicts(*days)) == {BUSY}


def test_work_in_flight_of_which_nothing_moves_is_suspect_at_the_second_look() -> None:
    still = [seen(30 * n, engine(running=2, steps=807, kv=0.02)) for n in range(3)]
    first, second, third = watch(*still)
    assert (first.verdict, second.verdict, third.verdict) == (BUSY, SUSPECT, SUSPECT)
    assert second.since == third.since == at(30)


def test_only_waiting_work_that_does_not_move_is_suspect() -> None:
    assert verdicts(*(seen(30 * n, engine(waiting=6, kv=0.0)) for n in range(2)))[-1] is SUSPECT


def test_a_lone_long_prompt_moves_the_cache_and_not_the_step_counter() -> None:
    reads = [seen(30 * n, engine(running=1, steps=3212, kv=0.06 + n / 100)) for n in range(8)]
    assert set(verdicts(*reads)) == {BUSY}


@pytest.mark.parametrize("witness", ["tokens", "output", "prompt", "kv"])
def test_each_witness_alone_is_progress(witness: str) -> None:
    calm: dict[str, Any] = {
        "running": 1,
        "steps": 9,
        "tokens": 1,
        "output": 1,
        "prompt": 1,
        "kv": 0.1,
    }
    moved: dict[str, Any] = {**calm, witness: calm[witness] + 0.1}
    assert verdicts(seen(0, engine(**calm)), seen(30, engine(**moved))) == [BUSY, BUSY]


def test_what_the_process_and_http_count_is_no_progress() -> None:
    still = engine(running=1, steps=9)
    looks = (seen(0, still, cpu=10.0), seen(30, still, cpu=99.0))
    assert verdicts(*looks)[-1] is SUSPECT


def test_the_count_of_steps_alone_is_no_progress_since_v0_counts_empty_ones() -> None:
    looks = [seen(30 * n, engine(running=1, steps=n, tokens=7, output=7)) for n in range(1, 4)]
    assert verdicts(*looks)[-1] is SUSPECT


def test_one_stuck_rank_is_a_stuck_server() -> None:
    looks = [
        seen(30 * n, engine("0", running=2, steps=807), engine("1", running=2, steps=800 + 50 * n))
        for n in range(2)
    ]
    assert verdicts(*looks)[-1] is SUSPECT
    _, finding = observe(looks[1], watch(looks[0])[0], POLICY, EVERY)
    assert "engine 0: 2 running, 0 waiting, step 807" in finding.why
    assert "engine 1" not in finding.why


def test_work_that_has_only_just_come_is_no_suspicion() -> None:
    assert verdicts(seen(0, engine(steps=5)), seen(30, engine(running=1, steps=5))) == [IDLE, BUSY]


def test_gauges_at_zero_are_idle_and_prove_nothing_else() -> None:
    assert set(verdicts(*(seen(30 * n, engine(steps=5183)) for n in range(5)))) == {IDLE}


def test_two_looks_that_follow_each_other_at_once_are_one() -> None:
    still = engine(running=1, steps=3)
    assert verdicts(seen(0, still), seen(2, still), seen(32, still)) == [BUSY, BUSY, SUSPECT]


def test_what_lies_before_a_gap_is_no_last_look() -> None:
    still = engine(running=1, steps=3)
    assert verdicts(seen(0, still), seen(900, still), seen(930, still))[1:] == [BUSY, SUSPECT]


def test_a_page_that_could_not_be_read_is_no_progress() -> None:
    still = engine(running=1, steps=3)
    looks = (seen(0, still), closed(30, Page.SLOW), seen(60, still))
    assert verdicts(*looks)[-1] is SUSPECT


# --- restarts, sleep, loads ----------------------------------------------------------------------


def test_another_start_of_the_process_is_a_restart_and_a_new_baseline() -> None:
    looks = (
        seen(0, engine(running=1, steps=500), started=1.0),
        seen(30, engine(running=1, steps=500), started=2.0),
        seen(60, engine(running=1, steps=500), started=2.0),
    )
    assert verdicts(*looks) == [BUSY, Verdict.RESTARTED, SUSPECT]


def test_where_the_start_is_not_exported_a_counter_that_fell_is_one() -> None:
    looks = (
        seen(0, engine("0", running=1, steps=500), engine("1", steps=10), started=None),
        seen(30, engine("0", running=1, steps=3), engine("1", steps=4), started=None),
    )
    assert verdicts(*looks) == [BUSY, Verdict.RESTARTED]


def test_a_sleeping_engine_is_asleep_whatever_its_gauges_say() -> None:
    looks = [seen(30 * n, engine(running=1, steps=9, awake=0)) for n in range(4)]
    assert set(verdicts(*looks)) == {Verdict.ASLEEP}


def test_a_rank_that_sleeps_with_work_is_no_suspicion_beside_one_that_works() -> None:
    looks = [
        seen(30 * n, engine("0", running=2, awake=0), engine("1", running=2, steps=50 * n))
        for n in range(4)
    ]
    assert set(verdicts(*looks)) == {BUSY}


def test_a_closed_port_is_missing_and_after_our_own_restart_a_load_within_its_limit() -> None:
    assert verdicts(closed(0), closed(30), closed(60))[-1] is Verdict.MISSING
    again: dict[str, Any] = {"restarted_at": at(0)}
    assert find(closed(100, **again), None, POLICY).verdict is Verdict.LOADING
    late = POLICY.load_limit.total_seconds() + 1
    assert find(closed(late, **again), None, POLICY).verdict is Verdict.OVERDUE


def test_a_server_that_says_not_ready_loads_and_not_for_ever() -> None:
    looks = [closed(30 * n, Page.UNAVAILABLE) for n in range(40)]
    said = verdicts(*looks)
    assert said[:30] == [Verdict.LOADING] * 30
    assert said[-1] is Verdict.OVERDUE


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (Page.SLOW, Verdict.UNPROVEN),
        (Page.BARE, Verdict.UNPROVEN),
        (Page.FAILING, Verdict.DEGRADED),
        (Page.UNREADABLE, Verdict.UNREADABLE),
    ],
)
def test_what_is_wrong_with_a_page_goes_to_a_person_and_never_to_a_restart(
    kind: Page, verdict: Verdict
) -> None:
    first, second, *_ = watch(*(closed(30 * n, kind) for n in range(3)))
    assert (first.verdict, second.verdict) == (None, None)
    assert watch(*(closed(30 * n, kind) for n in range(4)))[-1].verdict is verdict


# --- what a short request came to ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "verdict"),
    [
        (Came.GIVEN, IDLE),
        (Came.MOVED, BUSY),
        (Came.BUSY, BUSY),
        (Came.NONE, SUSPECT),
        (Came.FAILED, Verdict.DEGRADED),
        (Came.REFUSED, Verdict.UNPROVEN),
        (Came.ELSEWHERE, Verdict.UNPROVEN),
        (Came.ASLEEP, Verdict.ASLEEP),
    ],
)
def test_the_answer_decides_where_one_was_asked_for(came: Came, verdict: Verdict) -> None:
    finding = find(asked(0, came, steps=5), None, POLICY)
    assert finding.verdict is verdict
    assert "step 5" in finding.why


# --- what is remembered --------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 8, 16, 64])
def test_a_sighting_survives_its_journey(ranks: int) -> None:
    reading = seen(0, *(engine(str(n), running=n % 2, steps=10**7 + n) for n in range(ranks)))
    assert reading.engine is not None
    sighting = Sighting.of(reading.engine)
    assert Sighting.decode(sighting.encode()) == sighting
    assert len(compare(reading.engine, sighting).still) == ranks // 2


@pytest.mark.parametrize(
    "text", [None, "", "x", "....", "a.b.c.d.e", "AbCd.1.1.2.AbCd", "é.1.1.0."]
)
def test_what_another_version_remembered_is_no_last_look(text: str | None) -> None:
    assert Sighting.decode(text) is None


@pytest.mark.parametrize(("ranks", "most"), [(1, 300), (8, 300), (64, 500)])
def test_the_memory_of_an_engine_is_small_at_its_fullest(ranks: int, most: int) -> None:
    reading = seen(0, *(engine(str(n), running=1, steps=10**9) for n in range(ranks)))
    assert reading.engine is not None
    full = Memory(
        at=at(0),
        verdict=Verdict.UNRESPONSIVE,
        since=at(0),
        pending=Verdict.UNREADABLE,
        first=at(0),
        count=19,
        owed=1,
        ago=75.123,
        engine=Sighting.of(reading.engine).encode(),
    )
    assert len(full.model_dump_json()) <= most


def test_a_suspicion_is_reported_at_once_and_its_end_too() -> None:
    def sweep(reading: Reading, before: Any) -> Any:
        readings = SweepReadings(
            interval=EVERY, version=1, readings=[reading], policies=[POLICY], policy_of={"v-1": 0}
        )
        return judge_shard(0, reading.at, "run", readings, before)

    first = sweep(seen(0, engine(running=2, steps=8)), None)
    second = sweep(seen(30, engine(running=2, steps=8)), first.result)
    third = sweep(seen(60, engine(running=2, steps=8)), second.result)
    fourth = sweep(seen(90, engine(running=2, steps=9)), third.result)
    assert [report.good for report in first.reports] == [True]
    assert [report.observation.verdict for report in second.reports] == [SUSPECT]
    assert [report.ongoing for report in third.reports] == [True]
    # Each carries for how long it counts for nothing after one that was not confirmed.
    quiet = [report.quiet for judged in (second, third, fourth) for report in judged.reports]
    assert quiet == [20 * POLICY.confirm_wait, 20 * POLICY.confirm_wait, None]
    assert [(report.good, report.observation.verdict) for report in fourth.reports] == [
        (True, BUSY)
    ]
    assert [judged.alerts for judged in (first, second, third, fourth)] == [[], [], [], []]
    assert "2 running" in second.result.whys["v-1"]
