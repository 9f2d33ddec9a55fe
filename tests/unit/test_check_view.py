"""``steady check --watch``: what is shown of each look, and how it is judged."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from fleet.engines.reading import EngineReading, EngineState, Page
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict
from worker.check_view import Watching, line, screen
from worker.check_watch import Onlooker

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
EVERY = timedelta(seconds=5)


def look(number: int, profile: str = "vllm", **witnesses: float) -> Reading:
    state = EngineState(label="0", running=2, steps=1234, witnesses=witnesses)
    engine = EngineReading(profile=profile, engines=(state,))
    return Reading(server="x", at=AT + number * EVERY, engine=engine)


def watched(*readings: Reading) -> Watching:
    seen, onlooker = Watching("127.0.0.1:8000", EVERY, AT), Onlooker(Policy())
    for reading in readings:
        seen.see(reading, onlooker.judge(reading))
    return seen


def shown(seen: Watching, width: int = 100) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(screen(seen))
    return [each.rstrip() for each in captured.get().splitlines()]


def row(lines: list[str], witness: str) -> str:
    return next(each for each in lines if f" {witness} " in each)


def test_each_witness_says_whether_it_moved_and_when() -> None:
    looks = [look(each, kv=kv, output=5, step_tokens=9) for each, kv in enumerate((0.1, 0.2, 0.2))]
    lines = shown(watched(*looks[:2]))
    assert row(lines, "kv").endswith("20.00%   ● moved")
    assert row(lines, "output").endswith("○ not in 5s")
    assert any(each.startswith("busy") for each in lines)
    lines = shown(watched(*looks))
    assert row(lines, "kv").endswith("○ 5s ago")
    assert any(each.startswith("suspect") for each in lines)
    assert "1,234" in row(lines, "kv")


def test_a_page_that_is_gone_leaves_the_last_numbers() -> None:
    gone = EngineReading(profile="vllm", page=Page.REFUSED)
    seen = watched(look(0, kv=0.1), Reading(server="x", at=AT + EVERY, engine=gone))
    lines = shown(seen)
    assert any(each.startswith("missing") for each in lines)
    assert "10.00%" in row(lines, "kv")


@pytest.mark.parametrize(("looks", "verdict"), [(7, Verdict.BUSY), (8, Verdict.SUSPECT)])
def test_an_engine_whose_page_moves_rarely_is_given_its_window(
    looks: int, verdict: Verdict
) -> None:
    """SGLang's is 35 s, which are seven looks after the first."""
    seen = watched(*(look(number, "sglang", tokens=3) for number in range(looks)))
    assert seen.finding is not None
    assert seen.finding.verdict is verdict


def test_without_a_terminal_a_look_is_a_line() -> None:
    said = line(watched(look(0, kv=0.1, output=5), look(1, kv=0.2, output=5)))
    assert said.count("\n") == 0
    assert "busy: a witness moved: 2 running" in said
    assert said.endswith("[moved: kv]")
    assert line(watched(look(0, kv=0.1), look(1, kv=0.1))).endswith("[nothing moved]")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_into_the_terminal(width: int) -> None:
    lines = shown(watched(look(0, kv=0.1), look(1, kv=0.2)), width)
    assert max(map(len, lines)) <= width
