"""A stream of production that is asked for its usage where its client did not ask, and from which
that is left out again.
"""

import json
import re

from gateway.editing import COMPLETIONS, Edit, Editor, cant_edit
from gateway.heads import STREAM, AnswerHead, RequestHead

#: The event with the usage is shorter; a longer one passes as it comes.
LONGEST = 64 * 1024

_EDIT = Edit(model=None, asks=True)
_END = (b"\n\n", b"\n\r\n")
_ENDS = re.compile(rb"\n\r?\n")
_NO_CHOICES = re.compile(rb'"choices"\s{0,16}:\s{0,16}\[\s{0,16}\]')
#: Lines may end with CR alone, which no engine does; such a stream is not looked into.
_LONE_CR = re.compile(rb"\r[^\n]")


def may_ask(head: RequestHead) -> bool:
    """Whether a request may be one for a stream that tells its usage only where asked."""
    return (
        head.method == b"POST"
        and head.path.endswith(COMPLETIONS)
        and (head.chunked or bool(head.length))
        and cant_edit(head) is None
    )


class Asking:
    """The body of a request, with usage asked for where it is one for a stream.

    It is given to the backend as it comes. Where its length had to be said before its end, it is
    filled up with spaces, which mean nothing behind a JSON object.
    """

    def __init__(self, head: RequestHead) -> None:
        self._promised = head.length
        self._editor: Editor | None = Editor(_EDIT)
        self._began = self._is_said = self._ended = False
        self._sent = 0

    @property
    def asked(self) -> bool:
        """Usage was asked for, and not by the client."""
        return self._editor is not None and self._editor.asked

    def feed(self, data: bytes) -> bytes:
        if not self._began:
            self._began = True
            is_whole = len(data) == self._promised
            if _EDIT.is_not_for(data) or (is_whole and _EDIT.leaves(data)):
                self._editor = None
        if self._editor is not None:
            data = b"".join(self._editor.feed(data))
        self._sent += len(data)
        return data

    def end(self) -> bytes:
        """What is still to be sent once the client's body has ended."""
        rest = b"".join(self._editor.end()) if self._editor is not None else b""
        self._sent += len(rest)
        self._ended = True
        if self._promised is None:
            return rest
        if not self._is_said:
            self._promised = self._sent
        return rest + b" " * (self._promised - self._sent)

    def head(self, head: RequestHead) -> RequestHead:
        """The head as the backend gets it: with a length that holds, and nothing compressed asked
        for, in which no event could be found.
        """
        if self._promised is not None and not self._is_said:
            self._is_said = True
            if not self._ended and self._editor is not None:
                self._promised += _EDIT.growth
        if self._editor is None or (self._ended and self._promised == head.length):
            return head
        fields = tuple(field for field in head.fields if field[0] != b"accept-encoding")
        return head.changed(self._promised, fields)

    def hides(self, head: AnswerHead) -> bool:
        """Whether an answer may tell what its client did not ask for."""
        return self.asked and head.form == STREAM and 200 <= head.status < 300


class Hider:
    """A stream of events without the one that only tells usage: no choices, and the usage.

    Each event is passed on as soon as it is whole; of one that is not, a client can make nothing.
    """

    __slots__ = ("_held", "_passes")

    def __init__(self) -> None:
        self._held = b""
        self._passes = False  # what is held is the end of what was passed on already

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; gives those that the client may have."""
        if not self._held and data.endswith(b"\n\n") and b'"usage"' not in data:
            return data  # whole events, as nearly all come
        if self._held:
            data, self._held = self._held + data, b""
        begin = 0
        if self._passes:
            found = _ENDS.search(data)
            if found is None:
                return self._pass(data)
            begin, self._passes = found.end(), False
        end = max([begin, *(at + len(end) for end in _END if (at := data.rfind(end)) >= begin)])
        rest = data[end:]
        whole = data[:end] if rest else data
        if _seems_usage(whole):
            whole = whole[:begin] + _without_usage(whole[begin:])
        if len(rest) > LONGEST or _LONE_CR.search(rest) is not None:
            return whole + self._pass(rest)
        self._held = rest
        return whole

    def end(self) -> bytes:
        """The stream is over: what is held of an event that did not come to its end."""
        held, self._held = self._held, b""
        return b"" if not self._passes and _seems_usage(held) else held

    def _pass(self, part: bytes) -> bytes:
        """Pass on a part of an event, but for what may begin its end."""
        self._passes = True
        cut = max(0, len(part) - len(_END[1]) + 1)
        self._held = part[cut:]
        return part[:cut]


def _without_usage(events: bytes) -> bytes:
    left, at = [], 0
    for found in _ENDS.finditer(events):
        event, at = events[at : found.end()], found.end()
        if not _is_usage(event):
            left.append(event)
    return b"".join([*left, events[at:]])


def _is_usage(event: bytes) -> bool:
    if not _seems_usage(event):
        return False
    lines = [line for line in event.splitlines() if line.startswith(b"data:")]
    try:
        said = json.loads(b"\n".join(line[5:] for line in lines))
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("choices") == [] and bool(said.get("usage"))


def _seems_usage(event: bytes) -> bool:
    return b'"usage"' in event and _NO_CHOICES.search(event) is not None
