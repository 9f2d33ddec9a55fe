"""What is told of a stream as it passes, wherever its chunks are cut."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.events import LONGEST, Events

Figures = tuple[int, int | None, int | None, bool, int]


def chat(delta: dict[str, Any], **more: Any) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": None}]
    return data({"id": "x", "object": "chat.completion.chunk", "choices": choices, **more})


def data(event: Any, name: str = "") -> bytes:
    raw = json.dumps(event, separators=(",", ":")).encode()
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + raw + b"\n\n"


FIRST = chat({"role": "assistant", "content": ""})
FINISH = data({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
USAGE = data({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}})
DONE = b"data: [DONE]\n\n"
ENGINE = [FIRST, chat({"content": "Hel"}), chat({"content": '"lo'}), FINISH, USAGE, DONE]

MESSAGES = [
    data(
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}},
        "message_start",
    ),
    data({"content_block": {"type": "text", "text": ""}}, "content_block_start"),
    data({"type": "ping"}, "ping"),
    data({"delta": {"type": "text_delta", "text": "Hi"}}, "content_block_delta"),
    data({"delta": {"type": "input_json_delta", "partial_json": "{"}}, "content_block_delta"),
    data({"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}, "message_delta"),
    data({"type": "message_stop"}, "message_stop"),
]
RESPONSES = [
    data({"response": {"instructions": "a", "usage": None}}, "response.created"),
    data({"type": "response.output_text.delta", "delta": "Hi"}, "response.output_text.delta"),
    data({"type": "response.output_text.delta", "delta": " you"}, "response.output_text.delta"),
    data({"text": "Hi you"}, "response.output_text.done"),
    data(
        {
            "response": {
                "output": [{"text": "Hi you"}],
                "usage": {"input_tokens": 4, "output_tokens": 2},
            }
        },
        "response.completed",
    ),
]


def figures(*chunks: bytes) -> Figures:
    events = Events()
    told = sum(events.feed(chunk) for chunk in chunks)
    assert told == events.generated
    events.end()
    return events.generated, events.input, events.output, events.failed, events.too_long


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (ENGINE, (2, 7, 9, False, 0)),
        (MESSAGES, (2, 5, 3, False, 0)),
        (RESPONSES, (2, 4, 2, False, 0)),
        ([FIRST, chat({"reasoning_content": "hm"}), FINISH], (1, None, None, False, 0)),
        (
            [chat({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]})],
            (1, None, None, False, 0),
        ),
        (
            [data({"choices": [{"text": "a"}]}), data({"choices": [{"text": ""}]})],
            (1, None, None, False, 0),
        ),
        (
            [chat({"content": "a"}), data({"error": {"message": "out of memory"}})],
            (1, None, None, True, 0),
        ),
        ([data({"error": {}}, "error")], (0, None, None, True, 0)),
        ([b": keep-alive\n\n", chat({"content": "a"})], (1, None, None, False, 0)),
    ],
)
def test_what_is_generated_is_known_from_what_is_not(
    stream: list[bytes], expected: Figures
) -> None:
    assert figures(*stream) == expected
    assert figures(b"".join(stream)) == expected
    assert figures(*(bytes([each]) for each in b"".join(stream))) == expected


def test_usage_that_stands_in_every_event_is_taken_from_the_last() -> None:
    stream = [
        chat({"content": "a"}, usage={"prompt_tokens": 3, "completion_tokens": number})
        for number in (1, 2, 3)
    ]
    assert figures(*stream) == (3, 3, 3, False, 0)


def test_what_a_model_says_of_usage_is_not_taken_for_it() -> None:
    said = '"usage": {"prompt_tokens": 1, "completion_tokens": 1}, "error": {'
    assert figures(chat({"content": said}), FINISH) == (1, None, None, False, 0)


def test_spaces_and_other_line_ends_change_nothing() -> None:
    spaced = [b"data:" + json.dumps({"choices": [{"delta": {"content": "a"}}]}).encode() + b"\n\n"]
    assert figures(*spaced * 3) == (3, None, None, False, 0)
    assert figures(*(each.replace(b"\n", b"\r\n") for each in ENGINE)) == figures(*ENGINE)


def test_the_last_event_may_lack_its_empty_line() -> None:
    assert figures(chat({"content": "a"}), USAGE.rstrip())[:3] == (1, 7, 9)


@pytest.mark.parametrize("size", [LONGEST // 2, LONGEST - 1])
def test_of_an_event_that_does_not_end_a_bounded_part_is_kept(size: int) -> None:
    events = Events()
    events.feed(b"data: ")
    for _ in range(20):
        events.feed(b"x" * size)
        assert len(events._held) <= LONGEST
    assert events.feed(b"\n\n" + chat({"content": "a"})) == 1
    assert events.too_long == 1


LONG = chat({"content": "x" * LONGEST})
JUST = chat({"content": "x" * (LONGEST - len(chat({"content": ""})))})

pieces = st.sampled_from(
    [
        *ENGINE,
        *MESSAGES,
        *RESPONSES,
        b"\n",
        b"\r\n",
        b": c\n\n",
        b"data: \r\n\r\n",
        b"\r",
        LONG,
        JUST,
    ]
)


@given(parts=st.lists(pieces, max_size=12), cut=st.data())
def test_wherever_the_chunks_are_cut_the_figures_are_the_same(
    parts: list[bytes], cut: st.DataObject
) -> None:
    whole = b"".join(parts)
    cuts = cut.draw(st.lists(st.integers(0, len(whole)), max_size=20))
    at = [0, *sorted(cuts), len(whole)]
    chunks = [whole[begin:end] for begin, end in pairwise(at)]
    assert figures(*chunks) == figures(whole) == figures(*parts)


def test_the_longest_event_is_looked_into_and_one_byte_more_is_not() -> None:
    assert len(JUST) == LONGEST
    assert figures(JUST) == (1, None, None, False, 0)
    for longer in (JUST[:-2] + b"\r\n\r\n", JUST[:-2] + b" \n\n"):
        assert figures(longer)[4] == figures(longer[:9], longer[9:])[4] == 1
