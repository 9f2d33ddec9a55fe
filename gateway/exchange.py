"""One request of a client: to a backend, and the answer back, both as they come.

As long as nothing of an answer has been passed on, and all of the body that was read is still kept,
the request moves once to another backend where its own refuses it or dies.
"""

import asyncio
import time
from typing import Protocol

from gateway.asking import Asking, Hider, may_ask
from gateway.bodies import chunk
from gateway.core import Core, Tee
from gateway.faults import Fault, Refused
from gateway.heads import AnswerHead, RequestHead
from gateway.observing import Observer, observe
from gateway.outbound import Outbound, hand_over
from gateway.rewriting import answer_bytes, last_chunk, new_request_bytes, request_bytes
from gateway.routing import Backend, Route
from gateway.tally import Series, Who

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_SLOW = "the body of the request took too long"
_NOT_CONTINUED = (
    "the body of the request took too long, and the backend sends no 100 Continue: send without"
    " Expect, or wait for it only briefly"
)


class Client(Protocol):
    """The connection on which a request came."""

    blocked: bool

    def send(self, parts: list[bytes]) -> None: ...
    def hold(self, held: bool) -> None: ...
    def refuse(self, fault: Fault, message: str) -> None: ...
    def over(self, *, keep: bool) -> None: ...
    def break_off(self) -> None: ...


class Exchange:
    """``client`` calls ``on_request_*`` and ``flush``; the backend's connection the rest."""

    def __init__(self, core: Core, client: Client, head: RequestHead, route: Route) -> None:
        self.head = head
        self.route = route
        self.request_done = False
        self.answering = False
        self._core = core
        self._client: Client | None = client
        self._backend: Backend | None = None
        self._connection: Outbound | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._tried: list[Backend] = []
        self._redialled = False
        self._replay: list[bytes] | None = []
        self._replay_bytes = 0
        self._out: list[bytes] = []
        self._down: list[bytes] = []
        self._down_chunked = False
        self._passed_on = False
        self._keep = head.keep_alive
        self._status = 0
        self._began = time.monotonic()
        self._first: float | None = None
        self._touched = core.sweeper.now
        self._trailers = b""
        self._dry_until = 0.0
        self._continued = not head.expects
        self._tee: Tee | None = None
        self._observer: Observer | None = None
        self._series: Series | None = None
        self._holds = False
        self._asking: Asking | None = None
        self._hider: Hider | None = None
        self._head_is_due = False

    # --- the request -------------------------------------------------------------------------

    def begin(self) -> None:
        """Choose a backend and turn to it.

        Raises:
            Refused: there is none.
        """
        backend = self.route.choose(self._core.sweeper.now)
        if backend is None:
            raise Refused(Fault.NO_BACKEND, "no backend takes requests at the moment: all drain")
        if self._core.mirroring is not None and self.route.mirrored:
            self._tee = self._core.mirroring.tee(self.head, self.route)
        if self.route.asks_usage and may_ask(self.head):
            self._asking = Asking(self.head)
        self._dispatch(backend)

    def on_request_body(self, data: bytes) -> None:
        self._touched = self._core.sweeper.now
        edited = data if self._asking is None else self._asking.feed(data)
        if edited:
            self._take(edited)
        if self._tee is not None:
            self._tee.body(data)

    def _take(self, data: bytes) -> None:
        if self._replay is not None:
            self._replay.append(data)
            self._replay_bytes += len(data)
            if self._replay_bytes > self._core.limits.replay:
                self._keep_no_more()
        if self._connection is not None:
            self._out.append(chunk(data) if self.head.chunked else data)

    def on_request_end(self, trailers: bytes) -> None:
        self.request_done = True
        self._touched = self._core.sweeper.now
        self._trailers = trailers
        if self._asking is not None:
            rest = self._asking.end()
            if rest:
                self._take(rest)
        if self._connection is not None and self.head.chunked:
            self._out.append(last_chunk(self._trailers))
        if self._tee is not None:
            self._tee.end(trailers)

    def flush(self) -> None:
        """Hand what was read to the backend, in one go."""
        if self._out and self._connection is not None:
            out, self._out = self._out, []
            if self._head_is_due:
                out[0] = self._asking_head()
            hand_over(self._connection.transport, out)

    def _asking_head(self) -> bytes:
        assert self._asking is not None
        assert self._backend is not None
        self._head_is_due = False
        head = self._asking.head(self.head)
        write = request_bytes if head is self.head else new_request_bytes
        return write(head, self._backend.pool.address, self.route.prefix)

    def _keep_no_more(self) -> None:
        if self._connection is not None:
            self._replay = None
        else:
            self._hold(True)

    def _hold(self, held: bool) -> None:
        if held is not self._holds and self._client is not None:
            self._holds = held
            self._client.hold(held)

    # --- the backend -------------------------------------------------------------------------

    def _dispatch(self, backend: Backend, *, afresh: bool = False) -> None:
        self._backend = backend
        backend.in_flight += 1
        connection = None if afresh else backend.pool.take()
        if connection is not None:
            self._attach(connection)
        else:
            self._connecting = self._core.loop.create_task(self._connect(backend))

    async def _connect(self, backend: Backend) -> None:
        try:
            connection = await backend.pool.connect()
        except OSError as problem:
            self._connecting = None
            backend.resting_until = self._core.sweeper.now + self._core.limits.rest
            why = "took too long" if isinstance(problem, TimeoutError) else "failed"
            self.on_lost(Fault.BACKEND_UNREACHABLE, f"the connection to the backend {why}")
            return
        self._connecting = None
        backend.resting_until = 0.0
        self._attach(connection)
        self.flush()

    def _attach(self, connection: Outbound) -> None:
        head = self.head
        connection.begin(self, to_head=head.is_head)
        self._connection = connection
        self._touched = self._core.sweeper.now
        assert self._backend is not None
        if self._asking is None:
            self._out = [request_bytes(head, self._backend.pool.address, self.route.prefix)]
        else:
            self._out, self._head_is_due = [b""], True  # its length is known with the body
        for part in self._replay or ():
            self._out.append(chunk(part) if head.chunked else part)
        if self.request_done and head.chunked:
            self._out.append(last_chunk(self._trailers))
        if self._replay_bytes > self._core.limits.replay:
            self._replay = None
        if self._holds:
            self._hold(False)
        if self._client is not None and self._client.blocked:
            connection.pause_reading()

    def on_blocked(self) -> None:
        if not self.request_done:
            self._hold(True)

    def on_ready(self) -> None:
        self._touched = self._core.sweeper.now
        self._hold(False)

    def on_lost(self, fault: Fault, message: str) -> None:
        """The backend did not take the request, died, or broke HTTP."""
        connection, backend = self._connection, self._backend
        assert backend is not None
        self._connection = None
        self._out = []
        backend.in_flight -= 1
        if self.answering or self._client is None:
            self._fail(fault, message)
            return
        if fault is Fault.BACKEND_BROKEN or self._replay is None:
            self._fail(fault, message)
            return
        unheard = connection is not None and connection.reused and not connection.heard
        if unheard and not self._redialled:
            # The backend closed an idle connection at the moment that we used it: no fault of its.
            self._redialled = True
            self._dispatch(backend, afresh=True)
            return
        self._tried.append(backend)
        other = self.route.choose(self._core.sweeper.now, self._tried)
        if other is None or len(self._tried) > 1:
            self._fail(fault, message)
            return
        self._core.tally.moved[self.route.endpoint, backend.name] += 1
        self._dispatch(other)
        self.flush()

    # --- the answer --------------------------------------------------------------------------

    def on_interim(self, status: int) -> None:
        if status == 100 and self.head.expects and self._client is not None:
            self._continued = True
            self._client.send([CONTINUE])

    def on_answer_head(self, head: AnswerHead) -> None:
        self._touched = self._core.sweeper.now
        self.answering = True
        self._replay = None
        self._status = head.status
        assert self._backend is not None
        self._series = self._series_of(self._backend)
        self._observer = observe(self._series, self.head, head, self._began)
        if self._tee is not None and self._tee.pair is not None:
            name = self._backend.name
            self._observer = self._tee.pair.of_production(head, name, self._observer)
        if not self.request_done:
            self._keep = False
            if self._tee is not None and head.status >= 400:
                self._tee.rejected()
                self._tee = None
        if self._client is None:
            return
        if self._asking is not None and self._asking.hides(head):
            self._hider = Hider()
            if head.length is not None:
                head = head.of_unknown_length()
        keep = self._keep and not self._core.stopping
        raw, self._keep, self._down_chunked = answer_bytes(head, self.head, keep=keep)
        self._down.append(raw)

    def on_answer_body(self, data: bytes) -> None:
        self._touched = self._core.sweeper.now
        if self._first is None:
            self._first = time.monotonic()
        if self._observer is not None:
            self._observer.body(data)
        if self._client is not None:
            if self._hider is not None:
                data = self._hider.feed(data)
                if not data:
                    return
            self._down.append(chunk(data) if self._down_chunked else data)

    def on_answer_read(self) -> None:
        if self._down and self._client is not None:
            down, self._down = self._down, []
            self._passed_on = True
            self._client.send(down)

    def on_answer_end(self, trailers: bytes) -> None:
        if self._hider is not None:
            self._show_rest()
        if self._down_chunked and self._client is not None:
            self._down.append(last_chunk(trailers))
        self.on_answer_read()
        connection, backend = self._connection, self._backend
        assert connection is not None
        assert backend is not None
        self._connection = None
        if self.request_done and not self._out and not connection.blocked:
            backend.pool.give(connection)
        else:
            connection.abort()
        backend.in_flight -= 1
        self._count()
        self._end()
        if self._client is not None:
            client, self._client = self._client, None
            client.over(keep=self._keep and self.request_done)

    def _show_rest(self) -> None:
        """What was held of an event that did not come to its end."""
        hider, self._hider = self._hider, None
        rest = hider.end() if hider is not None else b""
        if rest and self._client is not None:
            self._down.append(chunk(rest) if self._down_chunked else rest)

    def _count(self) -> None:
        assert self._series is not None
        first = self._first - self._began if self._first is not None else None
        self._series.ended(self._status, first, time.monotonic() - self._began)
        if self._observer is not None:
            self._observer.over(whole=True)
            self._observer = None

    def _broken_off(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.over(whole=False)

    def _series_of(self, backend: Backend) -> Series:
        series = self.route.series.get(backend)
        if series is None:
            series = self.route.series[backend] = self._core.tally.of(self._who())
        return series

    def _who(self) -> Who:
        name = self._backend.name if self._backend is not None else ""
        return Who(self.route.endpoint, name, self.route.role)

    # --- how it ends otherwise ---------------------------------------------------------------

    def client_blocked(self, blocked: bool) -> None:
        self._touched = self._core.sweeper.now
        if self._connection is not None:
            if blocked:
                self._connection.pause_reading()
            else:
                self._connection.resume_reading()

    def client_gone(self) -> None:
        """Cancel the backend's work for nobody; or, where told so, let the answer run dry."""
        self._client = None
        self._down = []
        self._core.tally.faults[self._who(), Fault.CLIENT_GONE] += 1
        if self._tee is not None:
            self._tee.aborted()
            self._tee = None
        if self.route.runs_dry and self.request_done and self._connection is not None:
            self._connection.resume_reading()
            self._dry_until = self._core.sweeper.now + self._core.limits.answer_within
            self._core.dry.add(self)
            self._core.sweeper.watch(self)
        else:
            self.cancel()

    def give_up(self, fault: Fault, message: str) -> None:
        """End it by our own decision: the client is told as far as it still can be."""
        self.cancel()
        self._fail(fault, message)

    def cancel(self) -> None:
        self._broken_off()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        elif self._connection is not None:
            self._connection.abort()
            self._connection = None
        else:
            return
        if self._backend is not None:
            self._backend.in_flight -= 1

    def _fail(self, fault: Fault, message: str) -> None:
        if self._tee is not None and fault is Fault.BACKEND_UNREACHABLE:
            self._tee.rejected()
        self._end()
        if self._hider is not None:
            self._show_rest()
            self.on_answer_read()
        client, self._client = self._client, None
        if client is None:
            return
        self._core.tally.faults[self._who(), fault] += 1
        if self._passed_on:
            client.break_off()
        else:
            client.refuse(fault, message)

    def _end(self) -> None:
        if self._observer is not None:
            self._broken_off()
        if self._tee is not None:
            if not self.request_done:
                self._tee.rejected()
            self._tee.over()
            self._tee = None
        if self._dry_until:
            self._core.dry.discard(self)
            self._core.sweeper.forget(self)

    def sweep(self, now: float) -> None:
        limits, idle = self._core.limits, now - self._touched
        if self._client is None:
            if now > self._dry_until or idle > limits.answer_idle:
                self.cancel()
                self._end()
        elif self._client.blocked:
            if idle > limits.client_stall:
                self.give_up(Fault.CLIENT_STALLED, "")
        elif not self.request_done and not self.answering and not self._waits_for_backend():
            if idle > limits.body_idle:
                self.give_up(Fault.CLIENT_TOO_SLOW, _SLOW if self._continued else _NOT_CONTINUED)
        elif idle > (limits.answer_idle if self.answering else limits.answer_within):
            self.give_up(Fault.BACKEND_TIMEOUT, "the backend did not answer in time")

    def _waits_for_backend(self) -> bool:
        return self._connection is None or self._connection.blocked
