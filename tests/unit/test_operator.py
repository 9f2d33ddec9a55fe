"""A person's word, however it was typed: from the CLI, the ``temporal`` CLI or a form in the UI."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.contracts.remediation import OperatorRequest
from fleet.operator import LONGEST_SNOOZE, NotUnderstood, by, read_request, read_span

NAMELESS = OperatorRequest(who="a person")


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (({"who": "ann", "why": "tired", "id": "7"},), ("ann", "tired", "7")),
        (({"who": "ann"},), ("ann", "", "")),
        (({},), ("a person", "", "")),
        (({"who": "", "why": None, "id": 12},), ("a person", "", "12")),
        (({"who": ["ann"], "why": {"a": 1}},), ("['ann']", "{'a': 1}", "")),
        (("not tonight",), ("a person", "not tonight", "")),
        (("30m",), ("a person", "", "")),
        ((), ("a person", "", "")),
        ((None,), ("a person", "", "")),
        ((42,), ("a person", "", "")),
        ((["ann", "why"],), ("a person", "", "")),
        (({"who": "ann"}, "one", "too many"), ("ann", "", "")),
    ],
)
def test_who_and_why_are_read_from_whatever_was_sent(
    words: tuple[Any, ...], read: tuple[str, str, str]
) -> None:
    request = read_request(words)
    assert (request.who, request.why, request.id) == read


def test_a_long_word_is_shortened_so_that_no_timeline_grows_by_it() -> None:
    said = read_request(({"who": "w" * 999, "why": "y" * 9999, "id": "i" * 999},))
    assert (len(said.who), len(said.why), len(said.id)) == (80, 300, 64)
    assert len(read_request(("y" * 9999,)).why) == 300


@pytest.mark.parametrize(
    ("word", "span"),
    [
        ("30m", timedelta(minutes=30)),
        (" 1h30m ", timedelta(minutes=90)),
        ({"for": "30m"}, timedelta(minutes=30)),
        ({"span": "2h"}, timedelta(hours=2)),
        ({"span": "2h", "for": "1h"}, timedelta(hours=2)),
        ({"for": "7d"}, LONGEST_SNOOZE),
    ],
)
def test_for_how_long_is_read_from_a_text_or_a_mapping(word: Any, span: timedelta) -> None:
    assert read_span((word,)) == span


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ((), 'say for how long: {"for": "30m"}'),
        ((None,), 'say for how long: {"for": "30m"}'),
        (({},), 'say for how long: {"for": "30m"}'),
        ((30,), 'say for how long: {"for": "30m"}'),
        (({"for": 30},), 'say for how long: {"for": "30m"}'),
        (({"for": "0s"},), 'say for how long: {"for": "30m"}'),
        (({"for": "-5m"},), "is no duration"),
        (({"for": "half an hour"},), "is no duration"),
        (("",), "is no duration"),
        (({"for": "8d"},), "8d is longer than a snooze may be (7d)"),
        (({"for": "999999d"},), "is longer than a year"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused_with_the_remedy(
    words: tuple[Any, ...], remedy: str
) -> None:
    with pytest.raises(NotUnderstood) as refused:
        read_span(words)
    assert remedy in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
WORDS = st.lists(JSON | st.fixed_dictionaries({"who": JSON, "why": JSON, "for": JSON}), max_size=3)


@given(WORDS)
def test_no_word_at_all_raises_anything_else(words: list[Any]) -> None:
    request = read_request(tuple(words))
    assert OperatorRequest.model_validate_json(request.model_dump_json()) == request
    with suppress(NotUnderstood):
        assert timedelta(0) < read_span(tuple(words)) <= LONGEST_SNOOZE


def test_a_timeline_names_who_and_why() -> None:
    assert by(OperatorRequest(who="ann", why="planned work")) == "by ann: planned work"
    assert by(NAMELESS) == "by a person"
