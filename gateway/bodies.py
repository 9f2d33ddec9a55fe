"""Bodies of HTTP/1.1 messages, read as they come, by exactly one framing each.

A reader takes what arrived and gives the body's bytes in it, joined, and what lies behind the body.
"""

from typing import Protocol

from gateway.faults import Fault, Refused
from gateway.heads import trailer_fields

#: Digits of a chunk's size; more bytes than any body here may have.
_MOST_DIGITS = 12
#: A line with a chunk's size and its extensions, which are ignored.
_LONGEST_LINE = 256
_LONGEST_TRAILERS = 8192
_DIGITS = frozenset(b"0123456789abcdefABCDEF")


class Reader(Protocol):
    """``done`` once the body has ended; ``trailers`` are those that may be passed on, written."""

    done: bool
    trailers: bytes

    def feed(self, data: bytes) -> tuple[bytes, bytes]: ...


class Counted:
    """A body of a known length, which may be 0."""

    __slots__ = ("_left", "done", "trailers")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.trailers = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        if len(data) <= self._left:
            self._left -= len(data)
            self.done = self._left == 0
            return data, b""
        body, rest = data[: self._left], data[self._left :]
        self._left, self.done = 0, True
        return body, rest


#: Of this nothing is left to read.
NO_BODY = Counted(0)


class UntilClose:
    """An answer that ends with its connection; ``done`` is set by whoever sees that."""

    __slots__ = ("done", "trailers")

    def __init__(self) -> None:
        self.done = False
        self.trailers = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""


class Chunked:
    """A chunked body. Every line ends with CR and LF; a size is hexadecimal digits and no more."""

    __slots__ = ("_ends_chunk", "_held", "_in_trailers", "_left", "done", "trailers")

    def __init__(self) -> None:
        self._held = b""  # a line of which the end has not arrived
        self._left = 0
        self._ends_chunk = False
        self._in_trailers = False
        self.done = False
        self.trailers = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Take what arrived.

        Raises:
            Refused: the framing is broken.
        """
        if self._held:
            data, self._held = self._held + data, b""
        parts: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.done:
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                self._ends_chunk = self._left == 0
            elif self._ends_chunk:
                if end - at < 2:
                    self._hold(data[at:], b"\r")
                    at = end
                elif data[at : at + 2] == b"\r\n":
                    at += 2
                    self._ends_chunk = False
                else:
                    raise _bad("a chunk is longer than its size")
            elif self._in_trailers:
                at = self._read_trailers(data, at)
            else:
                at = self._read_size(data, at)
        return (parts[0] if len(parts) == 1 else b"".join(parts)), data[at:]

    def _hold(self, part: bytes, beginning: bytes) -> None:
        if not beginning.startswith(part):
            raise _bad("a chunk is longer than its size")
        self._held = part

    def _read_size(self, data: bytes, at: int) -> int:
        stop = data.find(b"\n", at, at + _LONGEST_LINE)
        if stop < 0:
            if len(data) - at >= _LONGEST_LINE:
                raise _bad("the line with a chunk's size is too long")
            self._held = data[at:]
            return len(data)
        line = data[at:stop]
        if not line.endswith(b"\r") or b"\r" in line[:-1]:
            raise _bad("a line ends without CR and LF")
        self._left = _size(line[:-1])
        self._in_trailers = self._left == 0
        return stop + 1

    def _read_trailers(self, data: bytes, at: int) -> int:
        if data.startswith(b"\r\n", at):
            self.done = True
            return at + 2
        stop = data.find(b"\r\n\r\n", at, at + _LONGEST_TRAILERS)
        if stop < 0:
            if len(data) - at >= _LONGEST_TRAILERS:
                raise Refused(Fault.HEAD_TOO_LARGE, "the trailers are too long")
            if b"\n" in data[at:].replace(b"\r\n", b""):
                raise _bad("a line ends without CR and LF")
            self._held = data[at:]
            return len(data)
        self.trailers = trailer_fields(data[at : stop + 4])
        self.done = True
        return stop + 4


def chunk(data: bytes) -> bytes:
    """Some bytes as one chunk; they must not be empty, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _size(line: bytes) -> int:
    digits, _, extension = line.partition(b";")
    if extension:
        digits = digits.rstrip(b" \t")
    if not digits or len(digits) > _MOST_DIGITS or not _DIGITS.issuperset(digits):
        raise _bad("a chunk's size is no hexadecimal number")
    return int(digits, 16)


def _bad(message: str) -> Refused:
    return Refused(Fault.BAD_REQUEST, f"the chunked body is broken: {message}")
