"""How long an engine must stand still before it says anything, where its page is rarely written."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.engines.page import read_page
from fleet.engines.profiles import PROFILES, profile_named
from fleet.engines.proving import Known, Look, Pause, confirm, settle
from fleet.engines.reading import EngineReading, EngineState, Page
from fleet.engines.windows import longest_window
from fleet.judge import Memory
from fleet.observing import observe
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict
from tests.parts import engine_pages as pages

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
BUSY, SUSPECT = Verdict.BUSY, Verdict.SUSPECT


def look(seconds: float, *tokens: float, profile: str = "sglang", running: float = 1) -> Reading:
    engines = tuple(
        EngineState(label=str(n), running=running, witnesses={"step_tokens": count})
        for n, count in enumerate(tokens)
    )
    return Reading(
        server="s-1",
        at=T0 + timedelta(seconds=seconds),
        engine=EngineReading(profile=profile, engines=engines),
    )


def verdicts(*readings: Reading, every: float = 30) -> list[Verdict | None]:
    before: Memory | None = None
    said: list[Verdict | None] = []
    for reading in readings:
        memory, finding = observe(reading, before, Policy(), timedelta(seconds=every))
        before = Memory.model_validate_json(memory.model_dump_json())
        said.append(finding.verdict)
    return said


def test_two_looks_closer_than_the_window_are_no_suspicion_and_the_third_is() -> None:
    looks = [look(30 * n, 7) for n in range(4)]
    assert profile_named("sglang").window == timedelta(seconds=35)
    assert verdicts(*looks) == [BUSY, BUSY, SUSPECT, SUSPECT]


def test_without_a_window_the_second_look_is_one() -> None:
    assert verdicts(*(look(30 * n, 7, profile="vllm") for n in range(2))) == [BUSY, SUSPECT]


def test_looks_that_follow_each_other_fast_never_shorten_the_window() -> None:
    looks = [look(5 * n, 7) for n in range(9)]
    assert verdicts(*looks, every=5) == [BUSY] * 7 + [SUSPECT] * 2


def test_what_moves_within_the_window_begins_it_anew() -> None:
    looks = [look(0, 7), look(30, 7), look(60, 8), look(90, 8), look(120, 8)]
    assert verdicts(*looks) == [BUSY, BUSY, BUSY, BUSY, SUSPECT]


def test_a_rank_that_stands_still_is_seen_beside_one_that_moves() -> None:
    looks = [look(30 * n, 7, 100 + n) for n in range(3)]
    assert verdicts(*looks) == [BUSY, BUSY, SUSPECT]


def test_a_rank_that_stops_later_has_a_window_of_its_own() -> None:
    looks = [look(30 * n, 7, min(100 + n, 104)) for n in range(8)]
    before: Memory | None = None
    named: list[list[str]] = []
    for reading in looks:
        before, finding = observe(reading, before, Policy(), timedelta(seconds=30))
        is_bad = finding.verdict is SUSPECT
        named.append([n for n in "01" if is_bad and f"engine {n}:" in finding.why])
    assert named[:2] == [[], []]
    assert named[2:6] == [["0"]] * 4
    assert named[6:] == [["0", "1"]] * 2


def test_a_page_that_was_not_read_in_between_leaves_the_window_as_it_was() -> None:
    gone = Reading(
        server="s-1",
        at=T0 + timedelta(seconds=30),
        engine=EngineReading(profile="sglang", page=Page.SLOW),
    )
    assert verdicts(look(0, 7), gone, look(60, 7)) == [BUSY, Verdict.UNPROVEN, SUSPECT]


def test_witnesses_that_move_when_a_request_ends_widen_the_window() -> None:
    def only(*names: str) -> timedelta:
        state = EngineState(running=1, witnesses=dict.fromkeys(names, 1.0))
        return longest_window(EngineReading(profile="vllm", engines=(state,)))

    assert only("step_tokens", "kv", "prompt", "output") == timedelta(0)
    assert only("prompt", "output") == timedelta(seconds=60)


def test_the_waits_of_a_remediation_span_the_window() -> None:
    doubt, window, wait = look(0, 7), timedelta(seconds=35), Policy().confirm_wait
    assert doubt.engine is not None
    story = confirm(Known(), doubt.engine, Policy())
    pauses = [step for step in (next(story), story.send(None), story.send(doubt)) if step != Look()]
    assert pauses == [Pause(window / 2, 1), Pause(window / 2, 2)]
    # A doubt that comes up later is settled after a single wait, which is then as long.
    known = Known()
    known.judge(doubt, Policy())
    assert next(settle(known, look(5, 7), Policy())) == Pause(window, 1)
    fast = look(0, 7, profile="vllm")
    assert fast.engine is not None
    assert next(confirm(Known(), fast.engine, Policy())) == Pause(wait, 1)


def test_the_engines_that_write_rarely_have_a_window() -> None:
    for name in ("sglang", "llamacpp"):
        assert profile_named(name).window >= timedelta(seconds=35)


def at_work(seconds: float, tokens: float, took: float) -> Reading:
    """llama.cpp in one batch: so many tokens of prompts were read before, and took so long."""
    page = pages.llamacpp(processing=1, decodes=4, tokens=tokens, seconds=took)
    engine, _ = read_page(page, PROFILES["llamacpp"])
    return Reading(server="s-1", at=T0 + timedelta(seconds=seconds), engine=engine)


@pytest.mark.parametrize(
    ("tokens", "took", "window"),
    [(0, 0, 60), (20_000, 20, 60), (20_000, 800, 163.84), (20_000, 20_000, 200), (20_000, 0, 60)],
)
def test_where_prompts_are_read_slowly_one_batch_may_take_twice_what_they_took(
    tokens: float, took: float, window: float
) -> None:
    assert longest_window(at_work(0, tokens, took).engine) == timedelta(seconds=window)


def test_a_batch_of_three_minutes_is_no_suspicion_on_a_machine_that_is_that_slow() -> None:
    slow = [at_work(30 * n, 20_000, 2_000) for n in range(10)]
    assert verdicts(*slow) == [BUSY] * 7 + [SUSPECT] * 3
    fast = [at_work(30 * n, 20_000, 20) for n in range(4)]
    assert verdicts(*fast) == [BUSY, BUSY, SUSPECT, SUSPECT]
