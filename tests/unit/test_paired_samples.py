"""Paired samples as lines: whatever was asked and answered, one line that hides what it must."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.paired_samples import Answer, NotKept, PairedSample, line, said
from tests.gateway.test_events import ENGINE, MESSAGES, RESPONSES, chat


def sample(request: bytes, answer: bytes = b"{}", *, is_stream: bool = False) -> PairedSample:
    answered = Answer("completed", 200, 1.0, is_stream, [answer])
    return PairedSample(
        at="2026-01-02T03:04:05.000+00:00",
        endpoint="chat",
        path="/v1/chat/completions",
        sample_by="request",
        server="gpu-1",
        request=[request[:5], request[5:]],
        production=answered,
        candidates={"next": answered},
    )


def test_what_a_stream_said_is_joined_for_each_api() -> None:
    assert said(b"".join(ENGINE)) == {
        "texts": {"choices.0.content": 'Hel"lo', "choices.0.finish_reason": "stop"},
        "usage": {"prompt_tokens": 7, "completion_tokens": 9},
    }
    assert said(b"".join(MESSAGES))["texts"] == {
        "content.0.text": "Hi",
        "content.0.partial_json": "{",
    }
    assert said(b"".join(RESPONSES)) == {
        "texts": {"response.output_text.0": "Hi you"},
        "usage": {"input_tokens": 4, "output_tokens": 2},
    }


def test_calls_of_tools_and_several_choices_are_kept_apart() -> None:
    calls = [
        {"index": 0, "function": {"name": "find", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 1, "function": {"name": "other", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": "1}"}},
    ]
    stream = b"".join(chat({"tool_calls": [call]}) for call in calls)
    other = chat({"content": "b"}).replace(b'"index":0', b'"index":1')
    assert said(stream + chat({"content": "a"}) + other)["texts"] == {
        "choices.0.tool_calls.0.name": "find",
        "choices.0.tool_calls.0.arguments": '{"a":1}',
        "choices.0.tool_calls.1.name": "other",
        "choices.0.tool_calls.1.arguments": "{}",
        "choices.0.content": "a",
        "choices.1.content": "b",
    }


@pytest.mark.parametrize("request_", [b"", b"no json", b"[" * 100_000, b"\xff\xfe", b"1" * 5000])
def test_what_is_no_json_is_not_kept(request_: bytes) -> None:
    with pytest.raises(NotKept):
        line(sample(request_), ())


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[" * 100_000])
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_that_is_no_json_leaves_nothing_of_itself(answer: bytes, is_stream: bool) -> None:
    kept = json.loads(line(sample(b"{}", answer, is_stream=is_stream), ()))
    if is_stream:
        assert kept["production"]["said"] == {"texts": {}, "usage": None}
    else:
        assert kept["production"]["answer"] is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)


@given(request=json_values, answer=json_values)
def test_any_request_and_answer_are_one_line_of_json(request: Any, answer: Any) -> None:
    raw = line(sample(json.dumps(request).encode(), json.dumps(answer).encode()), ())
    assert raw.count(b"\n") == 1
    assert set(json.loads(raw)) >= {"request", "production", "candidates"}


@given(stream=st.lists(st.binary(max_size=40) | st.sampled_from([*ENGINE, b"data: []\n\n"])))
def test_no_stream_whatever_it_holds_breaks_it(stream: list[bytes]) -> None:
    assert line(sample(b"{}", b"".join(stream), is_stream=True), ()).endswith(b"\n")


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_a_named_field_is_hidden_at_any_depth(depth: int) -> None:
    inner: Any = {"user": {"name": "someone"}, "kept": "yes"}
    for _ in range(depth):
        inner = {"more": [inner]}
    raw = line(sample(json.dumps(inner).encode(), json.dumps(inner).encode()), ["user"])
    assert b"someone" not in raw
    assert raw.count(b'"user":"[redacted]"') == 3
    assert b'"kept":"yes"' in raw
