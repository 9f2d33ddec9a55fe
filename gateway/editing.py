"""A request's body with another model name, or with usage asked for, edited as it passes.

What changes are members of the outermost JSON object, or what is added before its end. All else
passes as views of the bytes that came. Nothing is read as a whole: what is held back is a key of
which the end has not arrived, or a short value. What is no JSON object passes as it is: no server
takes it, whatever model it names.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from gateway.heads import LONGEST_REMEMBERED, REMEMBERED, RequestHead

#: Members, and brackets and long texts inside them. A body with more is not looked through: it
#: takes too long.
MOST_PARTS = 65_536
#: What a plain ``stream_options`` takes with its key, and no other key.
LONGEST_HELD = 256
#: ``stream_options`` and its quotes, with each letter escaped.
_LONGEST_KEY = 2 + 6 * len("stream_options")
#: Spaces between a comma and a key; where there are more, they pass before the comma.
_MOST_SPACES = 64
#: ``true``, and more than that.
_LONGEST_NOTED = 5

_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb"[^ \t\r\n,}\]:\"{\[]*+")
#: All that stands before the next bracket, or before a text that is not short. The group is not
#: possessive: Python before 3.11.5 goes on in the middle of a turn that failed.
_FLAT = re.compile(rb'(?:[^"\[\]{}]++|"[^"]{0,64}+")*')
#: A key of which all is there, and what stands before its value.
_WHOLE_KEY = re.compile(rb'[ \t\r\n]*+("[^"]{0,100}+")[ \t\r\n]*+:')
_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _LIST, _UNLIST = b'",:{}[]'

_MODEL, _STREAM, _STREAM_OPTIONS = b'"model"', b'"stream"', b'"stream_options"'
_USAGE = b'{"include_usage":true}'
_ASKED = b'"stream_options":' + _USAGE
#: Whoever says no more than this did not ask.
_NOT_ASKED: tuple[dict[str, bool | None], ...] = (
    {},
    {"include_usage": False},
    {"include_usage": None},
)

Part = bytes | memoryview

#: The last part of the paths whose streams tell usage only where it is asked for.
COMPLETIONS = b"/completions"


@dataclass(frozen=True)
class Edit:
    """``model`` is the name to put in, as JSON; ``asks``: a stream is to tell its usage."""

    model: bytes | None
    asks: bool

    @classmethod
    def of(cls, model: str | None, *, asks: bool) -> "Edit | None":
        """None where nothing is to change."""
        if model is None and not asks:
            return None
        return cls(None if model is None else json.dumps(model).encode(), asks)

    @property
    def growth(self) -> int:
        """By how many bytes a body grows at most."""
        model = 0 if self.model is None else len(b',"model":') + len(self.model)
        return model + (len(b",") + len(_ASKED) if self.asks else 0)

    def leaves(self, body: bytes) -> bool:
        """Whether a whole body stays as it is, as far as a glance can tell."""
        if self.model is None and b'"stream"' not in body:
            return True
        return self.is_not_for(body)

    @staticmethod
    def is_not_for(beginning: bytes) -> bool:
        """Whether a body with this beginning is no JSON object."""
        return beginning.lstrip(b" \t\r\n")[:1] not in (b"{", b"")


class _Do(Enum):
    """What becomes of the member that is read."""

    PASS = auto()
    NOTE = auto()
    REPLACE = auto()
    DROP = auto()
    HOLD = auto()


class _Options(Enum):
    """Who asked for usage."""

    NOBODY = auto()
    CLIENT = auto()
    WE = auto()


class Editor:
    """The edit of one body. ``held`` are the bytes that are held back.

    ``gave_up``: it has too many parts, and the rest of it passes as it is.
    """

    __slots__ = (
        "_begin",
        "_comma",
        "_data",
        "_depth",
        "_do",
        "_edit",
        "_escaped",
        "_has_member",
        "_has_model",
        "_in_text",
        "_key_at",
        "_masked",
        "_next",
        "_options",
        "_out",
        "_parts",
        "_streams",
        "_value",
        "_value_at",
        "gave_up",
        "held",
    )

    def __init__(self, edit: Edit) -> None:
        self.gave_up = False
        self.held = b""
        self._edit = edit
        self._next: Callable[[Editor, int], int] | None = Editor._body
        self._do = _Do.PASS
        self._data = self._masked = b""
        self._begin = 0  # of what has not been passed on of this chunk
        self._comma = self._key_at = -1  # in this chunk, where it is not decided whether they pass
        self._out: list[Part] = []
        self._value = b""
        self._value_at = 0
        self._depth = self._parts = 0
        self._in_text = self._escaped = False
        self._has_member = self._has_model = self._streams = False
        self._options = _Options.NOBODY

    @property
    def asked(self) -> bool:
        """Usage was asked for here, and not by the client."""
        return self._options is _Options.WE

    def feed(self, data: bytes) -> list[Part]:
        """Take the next bytes; gives those that may be passed on."""
        if self._next is None:
            return [data]
        self._data, self._begin, self._comma, self._key_at = data, 0, -1, -1
        self._masked = self._without_escaped(data)
        self._out = []
        at, end = 0, len(data)
        while at < end:
            step = self._next
            if step is None:
                break
            at = step(self, at)
        self._cut(end)
        out, self._out, self._data, self._masked = self._out, [], b"", b""
        return out

    def end(self) -> list[Part]:
        """The body is over; what was held of one that broke off is passed on."""
        self._out = []
        self._stop()
        return self._out

    def _without_escaped(self, data: bytes) -> bytes:
        """The same, with escaped quotes and backslashes painted over."""
        if self._escaped:
            self._escaped = False
            data = b"_" + data[1:]
        if b"\\" in data:
            data = data.replace(b"\\\\", b"__").replace(b'\\"', b"__")
            self._escaped = data.endswith(b"\\")
        return data

    # --- what passes -------------------------------------------------------------------------

    def _pass(self, to: int) -> None:
        begin, self._begin = self._begin, to
        if begin == 0 and to == len(self._data):
            self._out.append(self._data)
        elif begin < to:
            self._out.append(memoryview(self._data)[begin:to])

    def _release(self) -> None:
        if self.held:
            self._out.append(self.held)
            self.held = b""

    def _hold(self, to: int) -> None:
        self.held += self._data[self._begin : to]
        self._begin = to

    def _withhold(self, to: int) -> None:
        """Pass on what stands before the comma and the key that are read; hold those."""
        key_at = to if self._key_at < 0 else self._key_at
        if self._comma >= 0:
            self._pass(self._comma)
            if key_at - self._comma <= _MOST_SPACES:
                key_at = self._comma
            else:
                self.held += b","
                self._begin = self._comma + 1
        if self._key_at >= 0 or self._next is Editor._key:
            self._pass(key_at)
        self._hold(to)
        self._comma = self._key_at = -1

    def _cut(self, end: int) -> None:
        """Take leave of a chunk: hold what is not decided, and pass on the rest."""
        if self._next in _BEFORE_DECISION:
            self._withhold(end)
            if len(self.held) > _LONGEST_KEY + _MOST_SPACES:
                self._decide(_Do.PASS)
                self._next = Editor._long_key
        elif self._do is _Do.HOLD:
            self._hold(end)
            self._bound()
        elif self._drops():
            self._begin = end
        else:
            self._pass(end)

    def _drops(self) -> bool:
        if self._next not in _IN_VALUE:
            return self._do is _Do.DROP
        return self._do in (_Do.DROP, _Do.REPLACE)

    def _bound(self) -> None:
        if len(self.held) > LONGEST_HELD:
            self._options = _Options.CLIENT
            self._release()
            self._decide(_Do.PASS)

    def _stop(self) -> None:
        """All that follows passes as it is."""
        self._release()
        self._do = _Do.PASS
        self._next = None

    def _count(self) -> bool:
        self._parts += 1
        if self._parts > MOST_PARTS:
            self.gave_up = True
            self._stop()
        return self.gave_up

    # --- what is read: each takes where it is, and gives where to go on ------------------------

    def _spaces(self, at: int) -> int:
        found = _SPACE.match(self._data, at)
        return found.end() if found is not None else at

    def _body(self, at: int) -> int:
        at = self._spaces(at)
        if at < len(self._data):
            if self._data[at] == _OPEN:
                self._next = Editor._key
            else:
                self._stop()
            at += 1
        return at

    def _key(self, at: int) -> int:
        whole = _WHOLE_KEY.match(self._masked, at)
        if whole is not None:
            if not self._count():
                begin, end = whole.span(1)
                self._key_at = begin
                self._next = Editor._before_value
                self._take_key(self._data[begin:end], end)
            return whole.end()
        at = self._spaces(at)
        if at == len(self._data):
            return at
        found = self._data[at]
        if found == _QUOTE:
            if not self._count():
                self._key_at = at
                self._next = Editor._rest_of_key
            return at + 1
        if found == _CLOSE and not self._has_member and self._comma < 0 and not self.held:
            return self._finish(at)
        self._stop()
        return at

    def _rest_of_key(self, at: int) -> int:
        at, is_over = self._text(at)
        if is_over:
            begin = max(self._key_at, 0)
            raw = self.held.lstrip(b", \t\r\n") + self._data[begin:at]
            self._next = Editor._colon
            self._take_key(raw, at)
        return at

    def _long_key(self, at: int) -> int:
        at, is_over = self._text(at)
        if is_over:
            self._next = Editor._colon
        return at

    def _take_key(self, raw: bytes, at: int) -> None:
        key = _unescaped(raw) if b"\\" in raw else raw
        if key == _MODEL and self._edit.model is not None:
            if self._has_model:
                self._withhold(at)
                self.held = b""
                self._decide(_Do.DROP)
            else:
                self._has_model = True
                self._decide(_Do.REPLACE)
        elif key == _STREAM_OPTIONS and self._edit.asks:
            self._withhold(at)
            self._do = _Do.HOLD
        elif key == _STREAM and self._edit.asks:
            self._value = b""
            self._decide(_Do.NOTE)
        else:
            self._decide(_Do.PASS)

    def _decide(self, do: _Do) -> None:
        self._do = do
        self._comma = self._key_at = -1
        if do is not _Do.DROP:
            self._has_member = True
            self._release()

    def _colon(self, at: int) -> int:
        at = self._spaces(at)
        if at < len(self._data):
            if self._data[at] == _COLON:
                self._next = Editor._before_value
            else:
                self._stop()
            at += 1
        return at

    def _before_value(self, at: int) -> int:
        at = self._spaces(at)
        if at == len(self._data):
            return at
        found = self._data[at]
        if self._do is _Do.REPLACE:
            assert self._edit.model is not None
            self._pass(at)
            self._out.append(self._edit.model)
        elif self._do is _Do.HOLD:
            self._hold(at)
            self._value_at = len(self.held)
        if found == _QUOTE:
            self._next = Editor._rest_of_text
            return at + 1
        if found in (_OPEN, _LIST):
            self._depth = 1
            self._next = Editor._in_brackets
            return at + 1
        if found in (_COMMA, _COLON, _CLOSE, _UNLIST):
            self._stop()
            return at
        self._next = Editor._in_scalar
        return at

    def _rest_of_text(self, at: int) -> int:
        at, is_over = self._text(at)
        return self._take_value(at) if is_over else at

    def _in_scalar(self, at: int) -> int:
        begin, found = at, _SCALAR.match(self._data, at)
        at = found.end() if found is not None else at
        if self._do is _Do.NOTE and len(self._value) < _LONGEST_NOTED:
            self._value += self._data[begin : min(at, begin + _LONGEST_NOTED)]
        return self._take_value(at) if at < len(self._data) else at

    def _in_brackets(self, at: int) -> int:
        if self._in_text:
            at, is_over = self._text(at)
            self._in_text = not is_over
            return at
        found = _FLAT.match(self._masked, at)
        at = found.end() if found is not None else at
        if at == len(self._data):
            return at
        bracket = self._data[at]
        if self._count():
            return at
        if bracket == _QUOTE:
            self._in_text = True
            return at + 1
        self._depth += 1 if bracket in (_OPEN, _LIST) else -1
        return self._take_value(at + 1) if self._depth == 0 else at + 1

    def _text(self, at: int) -> tuple[int, bool]:
        """Where the text goes on, and whether that is behind its end."""
        quote = self._masked.find(b'"', at)
        return (len(self._data), False) if quote < 0 else (quote + 1, True)

    def _take_value(self, at: int) -> int:
        do, self._do = self._do, _Do.PASS
        self._next = Editor._behind_value
        if do in (_Do.REPLACE, _Do.DROP):
            self._begin = at
        elif do is _Do.NOTE:
            self._streams = self._value == b"true"
        elif do is _Do.HOLD:
            self._hold(at)
            self._take_options()
        return at

    def _take_options(self) -> None:
        key, value = self.held[: self._value_at], self.held[self._value_at :]
        if value == b"null" and self._options is not _Options.CLIENT:
            self.held = b""  # as if it were not there: it is asked for at the end
            return
        self._has_member = True
        try:
            not_asked = len(self.held) <= LONGEST_HELD and json.loads(value) in _NOT_ASKED
        except ValueError:
            not_asked = False
        if not_asked and self._options is _Options.NOBODY:
            self._options = _Options.WE
            self._out += [key, _USAGE]
            self.held = b""
        else:
            if not not_asked:
                self._options = _Options.CLIENT
            self._release()

    def _behind_value(self, at: int) -> int:
        at = self._spaces(at)
        if at == len(self._data):
            return at
        found = self._data[at]
        if found == _COMMA:
            self._next = Editor._key
            if self._has_member:
                self._comma = at
            else:  # what stood before it has been left out
                self._pass(at)
                self._begin = at + 1
            return at + 1
        if found == _CLOSE:
            return self._finish(at)
        self._stop()
        return at

    def _finish(self, at: int) -> int:
        """The object is over: add what it lacks."""
        self._pass(at)
        if self._edit.model is not None and not self._has_model:
            self._add(b'"model":' + self._edit.model)
        if self._streams and self._options is _Options.NOBODY:
            self._options = _Options.WE
            self._add(_ASKED)
        self._stop()
        return at

    def _add(self, member: bytes) -> None:
        self._out.append(b"," + member if self._has_member else member)
        self._has_member = True


#: Where it is not decided yet whether what was read passes.
_BEFORE_DECISION = frozenset({Editor._key, Editor._rest_of_key})  # noqa: SLF001 - its own
_IN_VALUE = frozenset(
    {Editor._rest_of_text, Editor._in_scalar, Editor._in_brackets}  # noqa: SLF001
)


def cant_edit(head: RequestHead) -> str | None:
    """Why the body of a request can't be edited: it is no JSON, or compressed."""
    return _cant_edit(head) if head.size > LONGEST_REMEMBERED else _remembered(head)


def _cant_edit(head: RequestHead) -> str | None:
    for low, _, value in head.fields:
        if low == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind != b"application/json" and not kind.endswith(b"+json"):
                return "not_json"
        elif low == b"content-encoding" and value.lower() != b"identity":
            return "compressed"
    return None


_remembered = lru_cache(REMEMBERED)(_cant_edit)


def _unescaped(raw: bytes) -> bytes:
    try:
        return b'"%b"' % json.loads(raw).encode()
    except (ValueError, AttributeError):
        return raw
