"""A body gets another model name, or asks for usage, and is else the same document wherever it is
cut.
"""

import json
import time
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.editing import LONGEST_HELD, MOST_PARTS, Edit, Editor

NAME = 'a "new" näme/70b'

_KEYS = st.sampled_from(["model", "stream", "stream_options", "messages", 'a"\\b', "é", ""])
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from(['"model":', '{"model":"x"}', "\\", '\\"', "}", "]"])
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
_OPTIONS = st.sampled_from(
    [None, {}, {"include_usage": False}, {"include_usage": None}, {"include_usage": True}]
)
_MEMBER = (
    st.tuples(_KEYS, _VALUES)
    | st.tuples(st.just("stream"), st.booleans())
    | st.tuples(st.just("stream_options"), _OPTIONS | _VALUES)
)
_CUTS = st.lists(st.integers(0, 400), max_size=12)
_SPACES = st.sampled_from(["", " ", "\n", "\t \r\n"])


@st.composite
def _text(draw: st.DrawFn, value: str) -> str:
    """A JSON text, with any of its letters escaped."""
    letters = [
        f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 and draw(st.booleans()) else None
        for letter in value
    ]
    plain = (json.dumps(letter, ensure_ascii=draw(st.booleans()))[1:-1] for letter in value)
    return '"' + "".join(one or other for one, other in zip(letters, plain, strict=True)) + '"'


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """An object of any members, also one twice, with spaces and escapes wherever they may be."""
    members = []
    for key, value in draw(st.lists(_MEMBER, max_size=7)):
        separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
        written = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)
        name = draw(_text(key)) if draw(st.booleans()) else json.dumps(key)
        around = [draw(_SPACES) for _ in range(4)]
        members.append(f"{around[0]}{name}{around[1]}:{around[2]}{written}{around[3]}")
    body = draw(_SPACES) + "{" + (",".join(members) or draw(_SPACES)) + "}" + draw(_SPACES)
    return body.encode(errors="surrogatepass")


def edited(edit: Edit, body: bytes, cuts: list[int]) -> tuple[bytes, Editor]:
    """What becomes of a body that comes in pieces."""
    editor, out = Editor(edit), bytearray()
    places = sorted({0, *(cut for cut in cuts if cut < len(body)), len(body)})
    for begin, end in pairwise(places):
        piece = body[begin:end]
        before = len(editor.held)
        for part in editor.feed(piece):
            if isinstance(part, memoryview):
                assert part.obj is piece, "a view of what came, and no copy"
            out += part
        assert len(editor.held) <= max(before, LONGEST_HELD) + len(piece)
    for part in editor.end():
        out += part
    assert not editor.held
    assert len(out) <= len(body) + edit.growth
    return bytes(out), editor


def _model(name: str | None, *, asks: bool = False) -> Edit:
    edit = Edit.of(name, asks=asks)
    assert edit is not None
    return edit


def _read(body: bytes) -> dict[str, Any]:
    read = json.loads(body.decode(errors="surrogatepass"))
    assert isinstance(read, dict)
    return read


@given(body=bodies(), cuts=_CUTS)
@example(body=b'{"model":"a","x":[{"model":"b"}],"model":{"model":[1]}}', cuts=list(range(60)))
@example(body=b'{"m\\u006fdel":1}', cuts=[5])
@example(body=b"{}", cuts=[1])
@example(body=b'{"stream_options":null,"model":{"model":null}}', cuts=[33])
@settings(max_examples=150, deadline=None)
def test_only_the_model_is_another(body: bytes, cuts: list[int]) -> None:
    got, editor = edited(_model(NAME), body, cuts)
    assert _read(got) == {**_read(body), "model": NAME}
    assert json.loads(got, object_pairs_hook=list).count(["model", NAME]) <= 1
    names = [key for key, _ in json.loads(got, object_pairs_hook=lambda pairs: pairs)]
    assert names.count("model") == 1, "whichever of two an engine takes"
    assert not editor.asked


@given(body=bodies(), cuts=_CUTS)
@settings(max_examples=150, deadline=None)
def test_usage_is_asked_for_in_a_stream_whose_client_did_not(body: bytes, cuts: list[int]) -> None:
    got, editor = edited(_model(None, asks=True), body, cuts)
    before, after = _read(body), _read(got)
    options = before.get("stream_options")
    plain = options in (None, {}, {"include_usage": False}, {"include_usage": None})
    twice = [key for key, _ in json.loads(body, object_pairs_hook=lambda pairs: pairs)]
    if twice.count("stream_options") < 2:
        asks = plain and (before.get("stream") is True or options is not None)
        assert editor.asked is asks
        wanted = {"stream_options": {"include_usage": True}} if asks else {}
        if options is None and not asks:
            before.pop("stream_options", None)  # null is as good as nothing
        assert after == {**before, **wanted}
    else:
        assert {**before, "stream_options": 0} == {**after, "stream_options": 0}


@given(body=bodies())
@settings(max_examples=100, deadline=None)
def test_what_is_not_asked_for_in_one_piece_stays_as_it_is_to_the_byte(body: bytes) -> None:
    got, editor = edited(_model(None, asks=True), body, [])
    pairs = json.loads(body, object_pairs_hook=lambda pairs: pairs)
    options = [value for key, value in pairs if key == "stream_options"]
    if not editor.asked and None not in options and len(options) < 2:
        assert got == body


@given(body=bodies(), cuts=_CUTS)
@settings(max_examples=80, deadline=None)
def test_both_at_once_are_what_each_is_alone(body: bytes, cuts: list[int]) -> None:
    got, both = edited(_model(NAME, asks=True), body, cuts)
    named, _ = edited(_model(NAME), body, cuts)
    asked, alone = edited(_model(None, asks=True), named, [])
    assert _read(got) == _read(asked)
    assert both.asked is alone.asked


@given(body=st.binary(max_size=60) | st.text(max_size=40).map(str.encode), cuts=_CUTS)
@example(body=b'{"model"', cuts=[4])
@example(body=b'{"model":"a",}', cuts=[13])
@example(body=b'{"model":tru', cuts=[])
@example(body=b'[{"model":"a"}]', cuts=[])
@example(body=b'{"a":1,"stream_options":{"inc', cuts=[9, 20])
@settings(max_examples=100, deadline=None)
def test_what_is_no_json_object_never_becomes_one(body: bytes, cuts: list[int]) -> None:
    try:
        is_object = isinstance(json.loads(body), dict)
    except ValueError:
        is_object = False
    got, _ = edited(_model(NAME, asks=True), body, cuts)
    if not is_object:
        try:
            became = isinstance(json.loads(got), dict)
        except ValueError:
            became = False
        assert not became
        assert got.replace(json.dumps(NAME).encode(), b"").strip()[:1] == body.strip()[:1]


@given(body=bodies(), junk=st.binary(max_size=20), at=st.integers(0, 400), cuts=_CUTS)
@settings(max_examples=100, deadline=None)
def test_what_is_broken_in_the_middle_stays_so(
    body: bytes, junk: bytes, at: int, cuts: list[int]
) -> None:
    broken = body[:at] + junk + body[at:]
    try:
        json.loads(broken)
    except ValueError:
        got, _ = edited(_model(NAME), broken, cuts)
        try:
            json.loads(got)
        except ValueError:
            return
        # What was left out was the broken part: the old name.
        assert _read(got)["model"] == NAME


def test_a_body_of_many_parts_is_given_up_and_passes_as_it_is() -> None:
    """A client can't make the event loop count its brackets for long."""
    for piece in (b"[", b"[]", b'"a":[],', b'"a":1,'):
        body = (b'{"a":[' if piece.startswith(b"[") else b"{") + piece * 1_000_000
        began = time.process_time()
        got, editor = edited(_model(None, asks=True), body, list(range(0, len(body), 65_536)))
        assert editor.gave_up
        assert got == body
        assert time.process_time() - began < 10
    few = b'{"a":[' + b"[]," * (MOST_PARTS // 2 - 10) + b"1]}"
    got, editor = edited(_model("b"), few, [])
    assert not editor.gave_up
    assert json.loads(got)["model"] == "b"


def test_little_is_held_however_a_body_is_cut() -> None:
    body = json.dumps(
        {"messages": [{"role": "user", "content": "x" * 10_000}], "k" * 500: 1, "model": "old"}
    ).encode()
    editor, most = Editor(_model(NAME, asks=True)), 0
    for at in range(len(body)):
        editor.feed(body[at : at + 1])
        most = max(most, len(editor.held))
    assert 0 < most <= LONGEST_HELD
