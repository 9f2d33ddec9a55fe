"""The reader of metrics pages against the parser of prometheus_client, on the same pages."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from benchmarks.parser import measure
from fleet.engines.exposition import MOST_SAMPLES, find, samples

#: Beginnings of each other, as in the families of a histogram.
_NAMES = ("x", "vllm:x", "vllm:x_total", "vllm:x_totals", "vllm:xy", "my_vllm:x", "vllm_x")
_VALUES = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "Nan", "1.0e+010", "-2.5E-007", "1e5", "0", "-0.0"]),
)
_ANY_TEXT = st.one_of(st.text(max_size=12), st.text('{}",= #\\\n\tn', max_size=12))
_LABELS = st.dictionaries(st.sampled_from(["engine", "model_name", "a", "_b1"]), _ANY_TEXT)
_TIMES = st.one_of(st.just(""), st.integers(-(10**12), 10**13).map(lambda at: f" {at}"))

Seen = dict[str, list[tuple[dict[str, str], str]]]


@dataclass(frozen=True)
class Line:
    name: str
    labels: dict[str, str]
    value: str
    after: str = ""
    comma: str = ""
    blank: str = ""

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in self.labels.items())
        in_braces = f"{{{labels}{self.comma if labels else ''}}}" if labels or self.comma else ""
        blank = self.blank if in_braces else ""
        return f"{self.name}{blank}{in_braces} {self.value}{self.after}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


_LINES = st.builds(
    Line,
    st.sampled_from(_NAMES),
    _LABELS,
    _VALUES,
    _TIMES,
    st.sampled_from(["", ","]),
    st.sampled_from(["", " ", " \t"]),
)
_NOISE = st.sampled_from(["", "# HELP vllm:x vllm:x 1", "# TYPE vllm:x gauge", "# vllm:x 2", "#"])


def _theirs(families: Iterable[Metric]) -> Seen:
    seen: Seen = {}
    for family in families:
        for each in family.samples:
            seen.setdefault(each.name, []).append((each.labels, repr(float(each.value))))
    return seen


def _ours(page: bytes, names: Sequence[str] = _NAMES) -> Seen:
    found = find(page, frozenset(names))
    return {
        name: [(dict(labels), repr(value)) for labels, value in rows]
        for name, rows in found.items()
    }


@given(st.lists(st.one_of(_LINES, _NOISE), max_size=12), st.sampled_from(["\n", "\r\n"]), st.data())
def test_it_agrees_with_prometheus_on_the_classic_text(
    lines: list[Line | str], end: str, data: st.DataObject
) -> None:
    text = end.join(str(each) for each in lines) + data.draw(st.sampled_from([end, ""]))
    assert _ours(text.encode()) == _theirs(parse_classic(text))


@given(
    st.lists(st.builds(Line, st.just(""), _LABELS, _VALUES), max_size=6, unique_by=repr), _VALUES
)
def test_it_agrees_with_prometheus_on_openmetrics(lines: list[Line], exemplar: str) -> None:
    apart = [
        Line("vllm:x_total", {**line.labels, "row": str(row)}, line.value, f" {row}.5")
        for row, line in enumerate(lines)
    ]
    text = "# TYPE vllm:x counter\n"
    text += "".join(
        f'{each} # {{trace_id="a b",span="}}"}} {exemplar} 1.5\n'
        for each in apart
        if not each.value.startswith("-") and each.value.lower() != "nan"
    )
    text += "# EOF\n"
    assert _ours(text.encode()) == _theirs(parse_openmetrics(text))  # type: ignore[no-untyped-call]


@given(st.lists(_LINES, max_size=12), st.sets(st.sampled_from(_NAMES), min_size=1))
def test_each_name_is_found_as_if_it_were_the_only_one(lines: list[Line], names: set[str]) -> None:
    page = "\n".join(map(str, lines)).encode()
    together = find(page, frozenset(names))
    assert set(together) <= names
    for name in names:
        assert repr(list(together.get(name, ()))) == repr(list(samples(page, name)))


def _without_end(size: int) -> bytes:
    return b'x{a="' + b"b" * size + b"\nx 1\n"


def _labels_without_end(size: int) -> bytes:
    return b"x{" + b'a="b",' * (size // 6) + b"\nx 1\n"


def _backslashes(size: int) -> bytes:
    return b'x{a="' + b"\\" * size + b"\nx 1\n"


def _one_line(size: int) -> bytes:
    return b"x" * size + b"\nx 1\n"


def _spaces(size: int) -> bytes:
    return b"x" + b" " * size + b"\nx 1\n"


@pytest.mark.parametrize(
    "hostile", [_without_end, _labels_without_end, _backslashes, _one_line, _spaces]
)
def test_the_time_is_that_of_one_pass_whatever_a_line_holds(
    hostile: Callable[[int], bytes],
) -> None:
    began = time.process_time()
    found = find(hostile(5_000_000), frozenset(("x", "xx", "xxx")))
    assert time.process_time() - began < 5
    assert found["x"][-1] == ({}, 1)


def test_a_line_that_is_longer_than_any_sample_is_passed_over() -> None:
    for page in (b'x{a="%s"} 1\nx 2\n', b'\nx{a="%s"} 1\nx 2\n'):
        assert samples(page % (b"b" * 20_000), "x") == [({}, 2)]
        assert len(samples(page % (b"b" * 19_000), "x")) == 2


def test_samples_of_one_name_have_a_limit_and_the_others_do_not_suffer() -> None:
    page = b"x 1\n" * (MOST_SAMPLES + 5) + b"y 2\n"
    found = find(page, frozenset(("x", "y")))
    assert (len(found["x"]), len(found["y"])) == (MOST_SAMPLES, 1)


def test_a_page_is_read_many_times_faster_than_by_prometheus_client() -> None:
    """The benchmark says by how much; a tenth of what it is after is asked for here."""
    assert measure(engines=1, rounds=3).ratio > 5
