"""Where the plain rule is wrong: work in flight and no new step is stuck, and else it is idle.

Each of these was seen on a real engine, or in its source. The looks are those of a sweep.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fleet.contracts.engine import AskRequest
from fleet.engines.asking import whom
from fleet.engines.page import read_page
from fleet.engines.profiles import PROFILES
from fleet.engines.proof import is_open, judge_again, proof_of
from fleet.engines.reading import Answer, Came, EngineReading
from fleet.judge import Memory
from fleet.observing import observe
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import OWNERS, Owner, Verdict
from tests.parts import engine_pages as pages
from tests.parts.vllm_pages import engine, page

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
POLICY = Policy()
BUSY, IDLE, SUSPECT = Verdict.BUSY, Verdict.IDLE, Verdict.SUSPECT


def look(number: int, text: bytes, kind: str = "vllm", came: Came | None = None) -> Reading:
    seen, said = read_page(text, PROFILES[kind])
    if came is not None:
        seen = replace(seen, answer=Answer(came=came, took=60.0, sent=1))
    at = T0 + timedelta(seconds=30 * number)
    return Reading(server="s", at=at, engine=seen, detail=said)


def swept(*looks: bytes, kind: str = "vllm") -> list[Verdict]:
    before: Memory | None = None
    said: list[Verdict] = []
    for number, text in enumerate(looks):
        before, finding = observe(look(number, text, kind), before, POLICY, timedelta(seconds=30))
        said.append(finding.verdict)
    return said


def of(reading: Reading) -> EngineReading:
    assert reading.engine is not None
    return reading.engine


# 1. The step counter stands still while a prompt is read.


def test_a_lone_prompt_of_four_minutes_is_busy_by_its_cache_alone() -> None:
    looks = [page(engine(running=1, steps=40, kv=0.06 + n / 100)) for n in range(9)]
    assert set(swept(*looks)) == {BUSY}


def test_empty_samples_of_v0_are_no_progress() -> None:
    looks = [page(engine(running=1, steps=3 + n, tokens=0, output=0)) for n in range(3)]
    assert swept(*looks) == [BUSY, SUSPECT, SUSPECT]


def test_what_a_frozen_engine_still_counts_is_no_progress() -> None:
    looks = [page(engine(running=1, steps=9), cpu=10.0 + n) for n in range(3)]
    assert swept(*looks) == [BUSY, SUSPECT, SUSPECT]


# 2. Gauges at zero are no proof of rest.


def test_an_idle_engine_is_asked_and_a_movement_meanwhile_means_busy() -> None:
    idle = look(0, page())
    assert isinstance(whom(idle, AskRequest(server="s"), probes=True), tuple)
    after = look(1, page(engine(kv=0.2)), came=Came.MOVED)
    assert judge_again(after, None, of(idle), POLICY).verdict is BUSY


def test_an_idle_engine_that_gives_no_answer_is_suspect_and_not_yet_more() -> None:
    silent = look(1, page(), came=Came.NONE)
    assert judge_again(silent, None, None, POLICY).verdict is SUSPECT
    proof = proof_of(of(silent), POLICY)
    assert proof is not None
    assert proof.verdict is Verdict.UNRESPONSIVE


# 3. Gauges above zero are no proof of work.


def test_stale_gauges_are_suspect_and_an_answer_clears_them() -> None:
    looks = [page(engine(running=106, steps=9))] * 2
    assert swept(*looks) == [BUSY, SUSPECT]
    answered = look(2, looks[0], came=Came.GIVEN)
    assert proof_of(of(answered), POLICY) is None
    assert judge_again(answered, None, of(look(1, looks[0])), POLICY).verdict is IDLE


def test_gauges_of_sglang_that_are_30_s_late_are_no_suspicion() -> None:
    late = pages.sglang(running=2, decode=50)
    assert swept(late, late, pages.sglang(decode=50), kind="sglang") == [BUSY, BUSY, IDLE]


# 4. Asleep or paused, an engine looks stuck.


def test_a_sleeping_engine_is_asleep_and_never_asked() -> None:
    asleep = page(engine(running=1, steps=9, awake=0))
    assert swept(asleep, asleep, asleep) == [Verdict.ASLEEP] * 3
    request = AskRequest(server="s", suspected=True, since=of(look(0, asleep)))
    assert isinstance(whom(look(1, asleep), request, probes=True), Reading)


def test_one_that_is_paused_is_never_restarted() -> None:
    frozen = page(engine(running=1, steps=9))
    paused = look(2, frozen, came=Came.ASLEEP)
    finding = judge_again(paused, None, of(look(1, frozen)), POLICY)
    assert finding.verdict is Verdict.ASLEEP
    assert proof_of(of(paused), POLICY) is None
    assert OWNERS[Verdict.ASLEEP].owner is Owner.NOBODY


def test_one_that_holds_its_requests_back_while_weights_come_is_paused() -> None:
    held = pages.sglang(queued=4, paused=6)
    assert swept(held, held, held, kind="sglang") == [Verdict.ASLEEP] * 3
    # Where others run beside them it works, and stands still or not as ever.
    beside = pages.sglang(running=1, paused=6)
    assert swept(beside, beside, beside, kind="sglang") == [BUSY, BUSY, SUSPECT]


# 5. Engines of one page are never added up.


@pytest.mark.parametrize("other", [2400, 807])
def test_one_stuck_rank_is_a_stuck_server(other: int) -> None:
    def ranks(number: int) -> bytes:
        moving = engine("1", running=1, steps=other + 90 * number)
        return page(engine("0", running=2, steps=807), moving, started=None)

    assert swept(*(ranks(n) for n in range(3))) == [BUSY, SUSPECT, SUSPECT]


# 6. The start of the process is often not there.


def test_a_restart_between_two_looks_is_no_suspicion_without_a_start_time() -> None:
    before = page(engine(running=1, steps=900), started=None)
    after = page(engine(running=1, steps=0), started=None)
    assert swept(before, after, after) == [BUSY, Verdict.RESTARTED, SUSPECT]


def test_an_engine_that_was_started_anew_behind_a_server_that_was_not() -> None:
    before, after = page(engine(running=1, steps=900)), page(engine(running=1, steps=2))
    assert swept(before, after) == [BUSY, Verdict.RESTARTED]


def test_a_restarted_engine_is_asked_for_an_answer() -> None:
    before = page(engine(running=1, steps=900), started=None)
    after = look(1, page(engine(running=1, steps=0), started=None))
    finding = judge_again(after, None, of(look(0, before)), POLICY)
    assert finding.verdict is Verdict.RESTARTED
    assert is_open(after, finding, of(look(0, before)))


# 7. What is in flight at the front end, where the engine shows none.


def test_a_first_long_step_is_seen_by_the_requests_at_the_front_end() -> None:
    waits = pages.sglang(active=1)
    assert swept(waits, waits, waits, kind="sglang") == [BUSY, BUSY, SUSPECT]
    # Without that gauge nothing shows it, and only a request tells.
    assert swept(pages.sglang(), pages.sglang(), kind="sglang") == [IDLE, IDLE]
