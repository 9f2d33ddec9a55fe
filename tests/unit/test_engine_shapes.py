"""Whatever a page holds, reading it ends soon, in a verdict that fits what is remembered."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_core import to_json

from fleet.engines.page import read_page
from fleet.engines.profiles import PROFILES
from fleet.engines.reading import EngineReading, Page
from fleet.judge import Memory
from fleet.observing import observe
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict
from tests.parts import engine_pages as pages
from tests.parts import vllm_pages

BUSY = {
    "vllm": vllm_pages.page(vllm_pages.engine(running=1, waiting=2, steps=9)),
    "sglang": pages.sglang(running=1, queued=2, decode=9),
    "llamacpp": pages.llamacpp(processing=1, deferred=2, decodes=9),
    "tgi": pages.tgi(batch=1, queue=2, decodes=(9, 9, 0)),
    "triton": pages.triton(active=1, waiting=2, iteration=9),
    "trtllm": pages.trtllm(running=1, waiting=2, missed=9),
    "nim": pages.nim(running=1, waiting=2, output=9),
    "lmdeploy": pages.lmdeploy(running=1, waiting=2, steps=9),
    "dynamo": pages.dynamo(vllm_pages.page(vllm_pages.engine(running=1, waiting=2))),
}
KINDS = [*BUSY, "engine"]
#: A value of a sample, which is the last word of its line.
_VALUE = re.compile(rb"(?m)^([^#\n].*) (\S+)$")


def read(page: bytes, kind: str) -> EngineReading:
    return read_page(page, PROFILES[kind])[0]


def judged(*looks: EngineReading) -> list[Verdict]:
    before: Memory | None = None
    said: list[Verdict] = []
    for number, engine in enumerate(looks):
        at = datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=200 * number)
        travelled = TypeAdapter(EngineReading).validate_json(to_json(engine))
        reading = Reading(server="s", at=at, engine=travelled)
        before, finding = observe(reading, before, Policy(), timedelta(seconds=200))
        before = Memory.model_validate_json(before.model_dump_json())
        said.append(finding.verdict)
    return said


def valued(page: bytes, new: Callable[[float], bytes]) -> bytes:
    return _VALUE.sub(lambda m: m[1] + b" " + new(float(m[2])), page)


@pytest.mark.parametrize("kind", BUSY)
def test_each_form_of_the_same_page_says_the_same(kind: str) -> None:
    page = BUSY[kind]
    plain = read(page, kind)
    assert plain.page is Page.OK
    assert sum(each.running + each.waiting for each in plain.engines) == 3

    def long_exponent(value: float) -> bytes:
        digits, _, power = f"{value:.17e}".partition("e")
        return f"{digits}e{power[0]}{abs(int(power)):03d}".encode()

    forms = {
        "twice": page + page,
        "three digits": valued(page, long_exponent),
        "time stamps": valued(page, lambda value: f"{value!r} 1796023212000".encode()),
        "OpenMetrics": valued(page, lambda value: f'{value!r} # {{trace="a"}} 0.5'.encode())
        + b"# EOF\n",
        "DOS": page.replace(b"\n", b"\r\n"),
        "no end of line": page.rstrip(b"\n"),
        "more labels": page.replace(b"{", rb'{note="a\"b\\c\nd,}",'),
    }
    for form, text in forms.items():
        seen = read(text, kind)
        assert seen == plain, form


@pytest.mark.parametrize("kind", BUSY)
def test_values_that_are_no_numbers_are_as_if_they_were_not_there(kind: str) -> None:
    for word in (b"NaN", b"+Inf", b"-Inf"):
        seen = read(valued(BUSY[kind], lambda _, word=word: word), kind)  # type: ignore[misc]
        assert seen.page is Page.BARE, word
        assert judged(seen, seen) == [Verdict.UNPROVEN] * 2


@pytest.mark.parametrize("kind", BUSY)
def test_numbers_below_zero_are_no_work(kind: str) -> None:
    seen = read(valued(BUSY[kind], lambda value: f"{-value!r}".encode()), kind)
    assert judged(seen, seen, seen) == [Verdict.IDLE] * 3


@pytest.mark.parametrize("kind", BUSY)
def test_numbers_of_any_size_fit_what_is_remembered(kind: str) -> None:
    huge = read(valued(BUSY[kind], lambda _: b"1.7976931348623157e+308"), kind)
    assert judged(huge, huge)[0] is Verdict.BUSY
    for engine in huge.engines:
        assert all(map(math.isfinite, (engine.running, engine.waiting, engine.open)))
    assert all(map(math.isfinite, huge.counters.values()))


@given(kind=st.sampled_from(KINDS), of=st.sampled_from(list(BUSY)), data=st.data())
def test_no_page_breaks_a_sweep(kind: str, of: str, data: st.DataObject) -> None:
    page = bytearray(BUSY[of])
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.integers(0, len(page) - 1))
        page[at : at + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=12))
    seen = read(bytes(page), kind)
    assert set(judged(seen, seen, read(BUSY[of], kind))) <= set(Verdict)


@given(kind=st.sampled_from(KINDS), numbers=st.lists(st.floats(), min_size=1, max_size=20))
def test_no_numbers_break_a_sweep(kind: str, numbers: list[float]) -> None:
    rest = iter(numbers * 200)
    page = valued(BUSY.get(kind, BUSY["vllm"]), lambda _: repr(next(rest)).encode())
    seen = read(page, kind)
    assert set(judged(seen, seen)) <= set(Verdict)
