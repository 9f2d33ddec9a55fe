"""A stream of server-sent events, looked at as it passes: which events carry something generated,
and what they tell of tokens.

Nothing is changed, and nothing is read as JSON: keys are searched for, with their quotes, which no
text of a model can have unescaped. What is kept is an event of which the end has not arrived, up to
``LONGEST``, and the last event that carried something. The figures are the same wherever the chunks
are cut.
"""

import re

from gateway.usage import usage

#: A longer event is not looked into.
LONGEST = 64 * 1024

_END = re.compile(rb"\n\r?\n")
_LONGEST_END = 3
#: The keys whose texts are generated, in the streams of completions, chat, responses and messages.
_GENERATED = re.compile(
    rb'("(?:content|text|reasoning_content|reasoning|thinking|arguments|partial_json|delta|refusal'
    rb'|name)"\s{0,16}:\s{0,16}")(?!")'
)
_FAILED = re.compile(rb'event: ?(?:error|response\.failed)\s|data: ?\{\s{0,16}"error"\s{0,16}:')
_QUOTE, _NEWLINE, _FIRST_OF_DATA = b'"\nd'


class Events:
    """``input`` and ``output`` are tokens as told, ``generated`` the events that carried something.

    ``failed``: the stream told of an error. ``too_long``: events that were not looked into.
    """

    __slots__ = (
        "_at",
        "_held",
        "_key",
        "_last",
        "_skips",
        "failed",
        "generated",
        "input",
        "output",
        "too_long",
    )

    def __init__(self) -> None:
        self.input: int | None = None
        self.output: int | None = None
        self.generated = 0
        self.failed = False
        self.too_long = 0
        self._held = bytearray()
        self._skips = False
        self._key = b'"content":"'
        self._at = 0
        self._last = b""

    def feed(self, data: bytes) -> int:
        """Take the next bytes; gives how many of the events that end in them carry something."""
        size = len(data)
        if (
            not self._held
            and data.find(_NEWLINE) == size - 2
            and data[-1] == _NEWLINE
            and data[0] == _FIRST_OF_DATA
            and size <= LONGEST
        ):
            # One whole event of one line, as an engine writes them: nearly all are of this kind.
            # The key stands where it stood in the event before this one, as a rule.
            at, key = self._at, self._key
            if not data.startswith(key, at):
                at = self._at = data.find(key)
            if at >= 0 and data[at + len(key)] != _QUOTE:
                self._last = data
                self.generated += 1
                return 1
        before = self.generated
        self._take(data)
        return self.generated - before

    def end(self) -> None:
        """The stream is over. Its last event may lack the empty line behind it."""
        if self._held and not self._skips:
            self._event(bytes(self._held))
        self._held = bytearray()
        if self.output is None and self._last:
            self._read_usage(self._last)

    def _take(self, data: bytes) -> None:
        held = self._held
        if held:
            begin = max(0, len(held) - _LONGEST_END + 1)
            held += data
            data = bytes(held) if _END.search(held, begin) else b""
            if not data:
                self._bound()
                return
            held.clear()
        else:
            begin = 0
        at = 0
        for end in _END.finditer(data, begin):
            event, at = data[at : end.end()], end.end()
            if self._skips or len(event) > LONGEST:
                self._skips = False
                self.too_long += 1
            else:
                self._event(event)
        if at < len(data):
            self._held = bytearray(data[at:])
            self._bound()

    def _bound(self) -> None:
        """Of an event that is too long already, only what may begin its end is kept."""
        if len(self._held) > LONGEST:
            self._skips = True
        if self._skips:
            del self._held[: -_LONGEST_END + 1]

    def _event(self, event: bytes) -> None:
        event = event.lstrip(b"\r\n")
        named = event.startswith(b"event:")
        # The events that repeat what was generated have names that end otherwise.
        if not named or event.partition(b"\n")[0].rstrip().endswith(b"delta"):
            found = _GENERATED.search(event)
            if found is not None:
                if not named:
                    self._key = found[1]
                self._last = event
                self.generated += 1
                return
        if b'"usage"' in event:
            self._read_usage(event)
        if _FAILED.match(event):
            self.failed = True

    def _read_usage(self, event: bytes) -> None:
        """What a usage object leaves out stays as an earlier one had it."""
        read, written = usage(event)
        if read is not None:
            self.input = read
        if written is not None:
            self.output = written
