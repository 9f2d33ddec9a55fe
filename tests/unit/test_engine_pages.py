"""From the text of a metrics page to what is judged: what is wanted, whatever else is there."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fleet.engines.exposition import samples
from fleet.engines.page import read_page
from fleet.engines.reading import MOST_ENGINES, EngineReading, Page
from fleet.engines.sighting import Sighting, compare
from fleet.engines.vllm import VLLM
from tests.parts.vllm_pages import engine, page


def read(text: bytes) -> EngineReading:
    return read_page(text, VLLM)[0]


def test_the_numbers_of_a_busy_engine_are_read() -> None:
    seen = read(page(engine(running=3, waiting=9, steps=3567, tokens=19231, kv=0.31704)))
    assert seen.page is Page.OK
    assert seen.started == "1796023212.11"
    (one,) = seen.engines
    assert (one.label, one.running, one.waiting, one.steps) == ("0", 3, 9, 3567)
    assert one.witnesses["kv"] == 0.31704
    assert one.witnesses["step_tokens"] == 19231
    assert one.numbers() == "3 running, 9 waiting, step 3567, KV cache 31.70%"


def test_the_ranks_of_a_data_parallel_server_are_never_added_up() -> None:
    seen = read(page(engine("0", running=2, steps=807), engine("1", steps=2400), started=None))
    assert [(one.label, one.running, one.steps) for one in seen.engines] == [
        ("0", 2, 807),
        ("1", 0, 2400),
    ]
    assert seen.started is None


def test_two_models_of_one_engine_label_are_two() -> None:
    seen = read(page(engine(model="a", running=1), engine(model="b")))
    assert [one.label for one in seen.engines] == ["0/a", "0/b"]


def test_the_same_series_twice_is_one() -> None:
    twice = page(engine(running=2, steps=5)) + page(engine(running=2, steps=5))
    assert [(one.running, one.steps) for one in read(twice).engines] == [(2, 5)]


def test_a_queue_of_another_length_is_a_step_where_requests_run() -> None:
    """A model whose cache use stays flat shows nothing else while it reads a long prompt."""
    flat = [read(page(engine(running=1, waiting=waiting, kv=0.1))) for waiting in (0, 0, 1)]
    assert not compare(flat[1], Sighting.of(flat[0])).moved
    assert compare(flat[2], Sighting.of(flat[1])).moved


def test_a_queue_that_grows_while_nobody_is_admitted_is_no_progress() -> None:
    stuck = [read(page(engine(running=0, waiting=waiting, kv=0.1))) for waiting in (1, 2)]
    assert not compare(stuck[1], Sighting.of(stuck[0])).moved


def test_a_queue_alone_is_no_engine_of_which_something_is_known() -> None:
    bare = b'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_waiting{engine="0"} 2\n'
    assert read(bare).page is Page.BARE


def test_the_reasons_of_waiting_are_not_added_to_what_they_explain() -> None:
    assert read(page(engine(waiting=4))).engines[0].waiting == 4


def test_the_names_of_v0_and_of_ray_are_known() -> None:
    old = page(engine(running=1, steps=9, kv=0.5)).replace(b"kv_cache", b"gpu_cache")
    old = old.replace(b'engine="0",', b"") + b'vllm:num_requests_swapped{model_name="tiny"} 2\n'
    (one,) = read(old).engines
    assert (one.label, one.running, one.witnesses["kv"]) == ("", 3, 0.5)
    ray = page(engine(running=1, steps=9)).replace(b"vllm:", b"ray_vllm_")
    assert read(ray).engines[0].steps == 9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'vllm:x{a="b"} 1.0e+010', 1e10),
        (b'vllm:x{a="b"} +Inf', math.inf),
        (b"vllm:x -3", -3),
        (b"vllm:x\t7 1796023212", 7),
        (b'vllm:x{a="b",} 2 # {trace="1"} 0.5', 2),
        (b'vllm:x{a="}"} 4\r', 4),
    ],
)
def test_every_form_of_a_value_is_read(text: bytes, value: float) -> None:
    assert [number for _, number in samples(b"# TYPE vllm:x gauge\n" + text, "vllm:x")] == [value]


def test_nan_is_as_if_it_were_not_there() -> None:
    seen = read(page(engine(running=math.nan, steps=3)))
    assert (seen.page, seen.engines[0].running) == (Page.OK, 0)


def test_labels_are_unescaped() -> None:
    text = rb'vllm:x{engine="a\"b\\c\nd",model_name="{},"} 1'
    assert list(samples(text, "vllm:x")) == [({"engine": 'a"b\\c\nd', "model_name": "{},"}, 1)]


def test_a_name_is_not_found_within_another_one() -> None:
    text = b"my_vllm:x 1\nvllm:x_created 2\nvllm:xy 3\n# vllm:x 4\nvllm:x 5"
    assert [value for _, value in samples(text, "vllm:x")] == [5]


@pytest.mark.parametrize("rest", [b"", b"{", b'{a="b', b" ", b" word", b'{a="b"}', b"\x00 1"])
def test_a_line_that_makes_no_sense_is_passed_over(rest: bytes) -> None:
    text = b"vllm:x" + rest + b"\nvllm:x 5\n"
    assert [value for _, value in samples(text, "vllm:x")] == [5]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"<!doctype html><html></html>", "HTML"),
        (b'{"error": "not found"}', "JSON"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "binary"),
        (b"\xff\xfe\xfa" * 200, "no text"),
    ],
)
def test_what_is_no_page_is_unreadable_and_says_why(body: bytes, said: str) -> None:
    seen, why = read_page(body, VLLM)
    assert (seen.page, seen.engines) == (Page.UNREADABLE, ())
    assert said in why


def test_a_server_without_statistics_is_bare() -> None:
    text = page(engine(running=1)).split(b"# HELP vllm:")[0]
    assert read(text).page is Page.BARE


def test_more_engines_than_a_server_has_are_not_read() -> None:
    many = page(*(engine(str(n)) for n in range(MOST_ENGINES + 1)))
    seen, why = read_page(many, VLLM)
    assert (seen.page, len(seen.engines)) == (Page.UNREADABLE, 0)
    assert str(MOST_ENGINES) in why


_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(running=_NUMBERS, kv=_NUMBERS, label=st.text(max_size=20))
def test_it_agrees_with_the_parser_of_prometheus(running: float, kv: float, label: str) -> None:
    escaped = label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    text = page(engine(escaped, running=running, kv=kv))
    theirs = {
        sample.name: (sample.labels.get("engine"), sample.value)
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if "reason" not in sample.labels
    }
    for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc"):
        ours = [(labels.get("engine"), value) for labels, value in samples(text, name)]
        assert ours == [theirs[name]]


@given(st.binary(max_size=400))
def test_no_bytes_break_it(noise: bytes) -> None:
    read_page(b"vllm:num_requests_running" + noise, VLLM)
    read_page(noise, VLLM)


def test_a_page_of_megabytes_costs_little() -> None:
    noise = b"".join(b'vllm:other_bucket{engine="0",le="%d"} 1.0\n' % n for n in range(200_000))
    began = time.process_time()
    seen = read(noise + page(engine(running=1)))
    assert seen.engines[0].running == 1
    assert time.process_time() - began < 5
