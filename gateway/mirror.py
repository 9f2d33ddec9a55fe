"""One mirrored request: its own buffer, its own writer, and an answer that is thrown away.

It is never retried or redirected, and whatever becomes of it is counted once. Nothing here is
called while production's bytes wait: it runs at the next turn of the event loop.
"""

import asyncio
import time
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from fleet.endpoints import Candidate
from gateway.chunks import Budget, Buffer
from gateway.core import Core
from gateway.editing import COMPLETIONS, Edit, Part, cant_edit
from gateway.faults import Fault
from gateway.heads import (
    LONGEST_REMEMBERED,
    REMEMBERED,
    AnswerHead,
    RequestHead,
    written,
)
from gateway.mirror_body import Body, OverBudget
from gateway.observing import Observer, observe
from gateway.outbound import Outbound
from gateway.pace import Pace
from gateway.pairing import Pair
from gateway.pool import Address, Pool
from gateway.routing import MIRROR, Route
from gateway.tally import Who

#: What lets its bearer in; a candidate gets its own.
_CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key"})
_COOKIES = frozenset({b"cookie", b"cookie2"})


class Result(StrEnum):
    """What became of a mirrored request; each ends in exactly one."""

    COMPLETED = "completed"
    BUFFER_OVERFLOW = "buffer_overflow"
    BUDGET_EXCEEDED = "budget_exceeded"
    CONCURRENCY_LIMITED = "concurrency_limited"
    CANDIDATE_NOT_READY = "candidate_not_ready"
    CANDIDATE_ERROR = "candidate_error"
    CANDIDATE_TIMEOUT = "candidate_timeout"
    CLIENT_ABORTED = "client_aborted"
    PRODUCTION_REJECTED = "production_rejected"
    SHUTDOWN = "shutdown"

    __hash__ = str.__hash__  # an Enum's own is a call of Python


#: To look a member up in its Enum costs as much as a call.
_COMPLETED = Result.COMPLETED


class CantEdit(Exception):
    """The reason why a body that has to be edited can't be."""


@dataclass(eq=False)
class Target:
    """A candidate, with its own connections; ``secret`` is what it is sent as a bearer token."""

    endpoint: str
    name: str
    spec: Candidate
    core: Core
    budget: Budget
    marker: bytes
    pace: Pace
    secret: str | None = None
    in_flight: int = 0
    resting_until: float = 0.0
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        address = Address.of(self.spec.url)
        self.pool = Pool(address, self.core.limits, self.core.sweeper, self.pace)
        self._remembered = lru_cache(REMEMBERED)(self._written)
        self.timeout = self.spec.timeout.total_seconds()
        self._edit = Edit.of(self.spec.model, asks=False)
        self._edit_of_completions = Edit.of(self.spec.model, asks=self.spec.ask_usage)
        self.most = self.core.limits.share.part(self.spec.max_in_flight)
        self.series = self.core.tally.of(Who(self.endpoint, self.name, MIRROR))
        self.sample_percent(self.spec.sample)

    def sample_percent(self, percent: float) -> None:
        """Take this share of the requests from now on."""
        self.percent, self.sample = percent, percent / 100

    def count(self, result: Result) -> None:
        self.core.tally.results[self.endpoint, self.name, result] += 1

    def edit(self, head: RequestHead) -> Edit | None:
        """What is to change in the body of such a request.

        Raises:
            CantEdit: it has to change, and can't be.
        """
        edit = self._edit_of_completions if head.path.endswith(COMPLETIONS) else self._edit
        if edit is None:
            return None
        reason = cant_edit(head)
        if reason is None:
            return edit
        if edit.model is None:
            return None
        raise CantEdit(reason)

    def head(self, head: RequestHead, prefix: bytes, length: int | None) -> bytes:
        """The head as the candidate gets it; where it repeats, it is not written anew."""
        if head.size > LONGEST_REMEMBERED:
            return self._written(head, prefix, length)
        return self._remembered(head, prefix, length)

    def _written(self, head: RequestHead, prefix: bytes, length: int | None) -> bytes:
        left_out = _COOKIES if self.spec.forward_authorization else _COOKIES | _CREDENTIALS
        fields = written(each for each in head.fields if each[0] not in left_out)
        to = self.pool.address
        own = b"Authorization: Bearer %b\r\n" % self.secret.encode() if self.secret else b""
        if length is None:
            own += b"Transfer-Encoding: chunked\r\n"
        else:
            own += b"Content-Length: %d\r\n" % length
        return b"%b %b HTTP/1.1\r\nHost: %b\r\nSteady-Mirror: %b\r\n%b%b\r\n" % (
            head.method,
            to.path + head.target[len(prefix) :],
            to.authority,
            self.marker,
            fields,
            own,
        )


class MirroredRequest:
    """It begins with the first byte of the body, so that what production rejects by its head is
    never sent.
    """

    def __init__(
        self,
        target: Target,
        head: RequestHead,
        route: Route,
        running: set[object],
        edit: Edit | None = None,
    ) -> None:
        self.buffer = Buffer(target.spec.buffer)
        self.over = False
        self._body = Body(head, edit, target.budget)
        self._target = target
        self._head = head
        self._route = route
        self._running = running
        self._connection: Outbound | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._head_sent = self._all_sent = self._request_done = False
        self._scheduled = False
        self._status = 0
        self._read = 0
        self._began = time.monotonic()
        self._first: float | None = None
        self._observer: Observer | None = None
        self.pair: Pair | None = None
        target.in_flight += 1
        running.add(self)
        target.core.sweeper.watch(self)

    @property
    def name(self) -> str:
        return self._target.name

    @property
    def target(self) -> Target:
        return self._target

    # --- what production's side says ---------------------------------------------------------

    def go_on(self) -> None:
        """There is more to send: do so when production's bytes are on their way."""
        if not self._scheduled and not self.over:
            self._scheduled = True
            self._target.core.loop.call_soon(self._turn)

    def on_request_end(self) -> None:
        self._request_done = True
        self.go_on()

    def finish(self, result: Result) -> None:
        """End it, whatever it is at; the first result counts."""
        if self.over:
            return
        self.over = True
        target = self._target
        target.count(result)
        if self._observer is not None:
            self._observer.over(whole=False)
        if self.pair is not None:
            self.pair.candidate_over(target.name, result)
        target.in_flight -= 1
        self._running.discard(self)
        target.core.sweeper.forget(self)
        self.buffer.close()
        if self._connecting is not None:
            self._connecting.cancel()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if result is _COMPLETED and self._all_sent:
            self._body.close()
            target.pool.give(connection)
        else:
            self._let_go_with(connection)
            connection.abort()

    def _let_go_with(self, connection: Outbound) -> None:
        """A socket that is being closed holds what it was handed until it is."""
        if connection.lost:
            self._closed()
        else:
            connection.on_closed = self._closed

    def _closed(self) -> None:
        self.buffer.let_go()
        self._body.close()

    # --- the writer --------------------------------------------------------------------------

    def _turn(self) -> None:
        self._scheduled = False
        if self.over:
            return
        if self._connection is not None:
            self._write(self._connection)
        elif self._connecting is None:
            connection = self._target.pool.take()
            if connection is not None:
                self._attach(connection)
            else:
                self._connecting = self._target.core.loop.create_task(self._connect())

    async def _connect(self) -> None:
        target = self._target
        try:
            connection = await target.pool.connect()
        except OSError:
            self._connecting = None
            target.resting_until = target.core.sweeper.now + target.core.limits.rest
            self.finish(Result.CANDIDATE_NOT_READY)
            return
        self._connecting = None
        self._attach(connection)

    def _attach(self, connection: Outbound) -> None:
        self._connection = connection
        connection.begin(self, to_head=False)
        self._write(connection)

    def _write(self, connection: Outbound) -> None:
        transport = connection.transport
        while not connection.blocked and not self.over:
            try:
                parts = self._next()
            except OverBudget:
                self.finish(Result.BUDGET_EXCEEDED)
                return
            if parts is None:
                break
            if parts:
                transport.writelines(parts)
            if transport.get_write_buffer_size() == 0:
                self._let_go()
                if self.buffer.is_empty:
                    break
        if self._request_done and not self._all_sent and self._head_sent and self.buffer.is_empty:
            self._all_sent = True
            tail = self._body.tail()
            if tail:
                transport.writelines(tail)

    def _next(self) -> list[Part] | None:
        """What the socket is to have now; none where there is nothing."""
        data = self.buffer.take()
        if self._head_sent:
            return self._body.part(data) if data is not None else None
        self._head_sent = True
        parts: list[Part] = []
        if data is not None:
            is_whole = self._request_done and self.buffer.is_last
            parts = self._body.whole(data) if is_whole else self._body.first(data)
        head = self._target.head(self._head, self._route.prefix, self._body.length)
        return [head, *parts]

    def _let_go(self) -> None:
        self.buffer.let_go()
        self._body.let_go()

    def on_blocked(self) -> None:
        """The socket has what it was handed until it says otherwise."""

    def on_ready(self) -> None:
        self._let_go()
        if self._connection is not None:
            self._write(self._connection)

    # --- the answer --------------------------------------------------------------------------

    def on_interim(self, status: int) -> None:
        """Nobody waits for it."""

    def on_answer_head(self, head: AnswerHead) -> None:
        self._status = head.status
        self._observer = observe(self._target.series, self._head, head, self._began)
        if self.pair is not None:
            self._observer = self.pair.of_candidate(head, self._target.name, self._observer)

    def on_answer_body(self, data: bytes) -> None:
        if self._first is None:
            self._first = time.monotonic()
        if self._observer is not None:
            self._observer.body(data)
        self._read += len(data)
        if self._read > self._target.spec.answer_limit:
            self.finish(Result.CANDIDATE_ERROR)

    def on_answer_read(self) -> None:
        """It is thrown away."""

    def on_answer_end(self, trailers: bytes) -> None:  # noqa: ARG002 - thrown away too
        first = self._first - self._began if self._first is not None else None
        self._target.series.ended(self._status, first, time.monotonic() - self._began)
        if self._observer is not None:
            self._observer.over(whole=True)
        self.finish(Result.CANDIDATE_ERROR if self._status >= 500 else _COMPLETED)

    def on_lost(self, fault: Fault, message: str) -> None:  # noqa: ARG002 - one result for all
        connection, self._connection = self._connection, None
        if connection is not None:
            self._let_go_with(connection)
        self.finish(Result.CANDIDATE_ERROR)

    def sweep(self, now: float) -> None:
        if now - self._began > self._target.timeout:
            self.finish(Result.CANDIDATE_TIMEOUT)
