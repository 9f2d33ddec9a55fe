"""A connection to a backend or candidate: it carries one request at a time, and its answer."""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from gateway.bodies import NO_BODY, Chunked, Counted, Reader, UntilClose
from gateway.faults import Fault, Refused
from gateway.heads import END, AnswerHead, answer_head

#: More interim answers to one request are a fault of the backend.
_MOST_INTERIM = 16

#: Parts that are shorter together are joined: one copy is cheaper than many buffers.
_JOINED = 64 * 1024


class User(Protocol):
    """Whoever has the connection. ``on_answer_read``: all that had arrived is handed over.

    After ``on_answer_end`` or ``on_lost`` nothing more is called.
    """

    def on_interim(self, status: int) -> None: ...
    def on_answer_head(self, head: AnswerHead) -> None: ...
    def on_answer_body(self, data: bytes) -> None: ...
    def on_answer_read(self) -> None: ...
    def on_answer_end(self, trailers: bytes) -> None: ...
    def on_lost(self, fault: Fault, message: str) -> None: ...
    def on_blocked(self) -> None: ...
    def on_ready(self) -> None: ...


class Outbound(asyncio.BaseProtocol):
    """``reused`` says that it carried a request before this one, ``heard`` that an answer to this
    one began to arrive, ``blocked`` that what was written has not yet left. ``lost`` says that the
    socket holds nothing more, and ``on_closed`` is called then.
    """

    transport: asyncio.Transport

    def __init__(self, longest_head: int, write_high: int | None = None) -> None:
        self.blocked = False
        self.heard = False
        self.reused = False
        self.idle_since = 0.0
        self.closed = False
        self.lost = False
        self.reusable = False
        self.paused = False
        self.on_closed: Callable[[], None] | None = None
        self._longest_head = longest_head
        self._write_high = write_high
        self._user: User | None = None
        self._used = False
        self._to_head = False
        self._clear()

    def _clear(self) -> None:
        self._held = b""
        self._head: AnswerHead | None = None
        self._reader: Reader | None = None
        self._interim = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._write_high is not None:
            self.transport.set_write_buffer_limits(high=self._write_high)

    def begin(self, user: User, *, to_head: bool) -> None:
        """Carry a request of this user; it writes to ``transport`` itself."""
        self.reused, self._used = self._used, True
        self.heard = self.reusable = False
        self._user, self._to_head = user, to_head
        self._clear()

    def pause_reading(self) -> None:
        self.paused = True
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        self.paused = False
        self.transport.resume_reading()

    def release(self) -> None:
        """The user has gone; what still arrives is nobody's."""
        self._user = None

    def abort(self) -> None:
        """Cancel what is carried: the backend sees its connection closed at once."""
        self._user = None
        self.closed = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        user = self._user
        if user is None:
            self.abort()  # nobody asked
            return
        self.heard = True
        try:
            self._take(data, user)
        except Refused as broken:
            self._fail(Fault.BACKEND_BROKEN, broken.message)

    def eof_received(self) -> None:
        """It is closed; ``connection_lost`` follows."""

    def _take(self, data: bytes, user: User) -> None:
        while data:
            if self._reader is None:
                data = self._read_head(data, user)
                if self._reader is None:
                    return
            else:
                body, data = self._reader.feed(data)
                if body:
                    user.on_answer_body(body)
            if self._user is not user:
                return
            if self._reader.done:
                self._finish(user, rest=data)
                return
        user.on_answer_read()

    def _read_head(self, data: bytes, user: User) -> bytes:
        if self._held:
            data, self._held = self._held + data, b""
        while self._reader is None and self._user is user:
            stop = data.find(END)
            if stop > self._longest_head or (stop < 0 and len(data) > self._longest_head):
                raise Refused(Fault.BACKEND_BROKEN, "the head of the answer is too long")
            if stop < 0:
                self._held = data
                return b""
            head = answer_head(data[: stop + 4])
            data = data[stop + 4 :]
            if head.status < 200:
                self._take_interim(head.status, user)
                continue
            self._head = head
            if head.length == len(data) and not head.has_no_body(self._to_head):
                self._take_whole(head, data, user)
                return b""
            self._reader = self._reader_of(head)
            user.on_answer_head(head)
        return data

    def _take_whole(self, head: AnswerHead, body: bytes, user: User) -> None:
        """It came in one piece, as nearly all do that are no streams."""
        self._reader = NO_BODY
        user.on_answer_head(head)
        if body and self._user is user:
            user.on_answer_body(body)

    def _take_interim(self, status: int, user: User) -> None:
        self._interim += 1
        if status == 101 or self._interim > _MOST_INTERIM:
            raise Refused(Fault.BACKEND_BROKEN, "an interim answer that nobody asked for")
        user.on_interim(status)

    def _reader_of(self, head: AnswerHead) -> Reader:
        if head.has_no_body(self._to_head):
            return NO_BODY
        if head.chunked:
            return Chunked()
        return UntilClose() if head.length is None else Counted(head.length)

    def _finish(self, user: User, rest: bytes) -> None:
        head, reader = self._head, self._reader
        ends_with_it = isinstance(reader, UntilClose)
        self.reusable = bool(head and head.keep_alive and not rest and not ends_with_it)
        self._user = None
        user.on_answer_end(reader.trailers if reader else b"")

    def _fail(self, fault: Fault, message: str) -> None:
        user, self._user = self._user, None
        self.closed = True
        self.transport.abort()
        if user is not None:
            user.on_lost(fault, message)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = self.lost = True
        if self.on_closed is not None:
            self.on_closed()
        user, self._user = self._user, None
        if user is None:
            return
        if exc is None and isinstance(self._reader, UntilClose):
            user.on_answer_end(b"")
        else:
            why = "in the middle of its answer" if self._head else "before it answered"
            user.on_lost(Fault.BACKEND_DIED, f"the backend closed the connection {why}")

    def pause_writing(self) -> None:
        self.blocked = True
        if self._user is not None:
            self._user.on_blocked()

    def resume_writing(self) -> None:
        self.blocked = False
        if self._user is not None:
            self._user.on_ready()


def hand_over(transport: asyncio.Transport, parts: list[bytes]) -> None:
    """Write the parts in one go."""
    if len(parts) == 1:
        transport.write(parts[0])
    elif sum(map(len, parts)) < _JOINED:
        transport.write(b"".join(parts))
    else:
        transport.writelines(parts)
