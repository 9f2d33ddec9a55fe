"""A connection from a client: one request after another, each an ``Exchange``.

What a client sends ahead, behind a request that is not yet answered, waits here and is not read
beyond a bound. Every wait for the client has its time-out.
"""

import asyncio
import socket
from enum import Enum, auto
from typing import cast

from gateway.bodies import NO_BODY, Chunked, Counted, Reader, UntilClose
from gateway.core import Core
from gateway.exchange import Exchange
from gateway.faults import Fault, Refused, answer
from gateway.heads import END, RequestHead, request_head
from gateway.outbound import hand_over
from gateway.routing import Route
from gateway.tally import Who

#: States of Linux' TCP (``tcp_states.h``) in which the other side will send nothing more.
_GONE = frozenset({4, 5, 6, 7, 8, 9, 11})


class _Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    EXCHANGE = auto()
    LINGER = auto()


#: Names of the module, since to look a member up in its Enum costs as much as a call.
_IDLE, _HEAD, _EXCHANGE, _LINGER = _Phase


class Inbound(asyncio.Protocol):
    """``blocked`` says that the client does not read what it was sent. ``route`` is where all goes
    that comes in at an endpoint's own address; none where the path decides.
    """

    transport: asyncio.Transport

    def __init__(self, core: Core, route: Route | None = None) -> None:
        self.blocked = False
        self._core = core
        self._route = route
        self._phase = _IDLE
        self._since = core.sweeper.now
        self._held = b""
        self._exchange: Exchange | None = None
        self._reader: Reader = NO_BODY
        self._received = 0
        self._is_head = False
        self._endpoint = self._role = ""
        self._backend_holds = False
        self._ahead = False
        self._is_reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        core = self._core
        core.clients.add(self)
        core.empty.clear()
        core.sweeper.watch(self)
        if len(core.clients) > core.limits.clients:
            self._turn_away(Fault.TOO_MANY_CLIENTS, "the gateway has too many connections")
        elif core.stopping:
            self._turn_away(Fault.SHUTDOWN, "the gateway is stopping")

    def connection_lost(self, _: Exception | None) -> None:
        self._core.clients.discard(self)
        if not self._core.clients:
            self._core.empty.set()
        self._core.sweeper.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()

    # --- what comes in -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._phase is _LINGER:
            return
        if self._held:
            data, self._held = self._held + data, b""
        try:
            self._take(data)
        except Refused as refused:
            self._turn_away(refused.fault, refused.message)

    def _take(self, data: bytes) -> None:
        while data:
            if self._exchange is None:
                data = self._take_head(data)
                if self._exchange is None:
                    return
            elif not self._reader.done:
                data = self._take_body(self._exchange, data)
            else:
                self._held = data
                self._set_ahead(len(data) > self._core.limits.pipelined)
                break
        if self._exchange is not None:
            self._exchange.flush()

    def _take_head(self, data: bytes) -> bytes:
        """Begin an exchange, where the head is whole; gives what lies behind the head."""
        while data.startswith(b"\r\n"):  # some clients send one after a body
            data = data[2:]
        stop = data.find(END)
        most = self._core.limits.head
        if stop > most or (stop < 0 and len(data) > most):
            raise Refused(Fault.HEAD_TOO_LARGE, f"the head of the request is over {most} bytes")
        if stop < 0:
            if b"\n" in data.replace(b"\r\n", b""):
                raise Refused(Fault.BAD_REQUEST, "a line of the head ends without CR and LF")
            if self._phase is _IDLE and data:
                self._phase, self._since = _HEAD, self._core.sweeper.now
            self._held = data
            return b""
        head, rest = request_head(data[: stop + 4]), data[stop + 4 :]
        exchange = self._begin(head)
        if head.length != len(rest):
            self._reader = Chunked() if head.chunked else Counted(head.length or 0)
            self._received = 0
            if self._reader.done:
                exchange.on_request_end(b"")
            return rest
        self._reader = NO_BODY  # it came in one piece with its head, as nearly all do
        if rest:
            exchange.on_request_body(rest)
        exchange.on_request_end(b"")
        return b""

    def _begin(self, head: RequestHead) -> Exchange:
        core = self._core
        self._is_head = head.is_head
        self._endpoint = self._role = ""
        if head.upgrade and head.upgrade != b"h2c":
            name = head.upgrade.decode("latin-1")[:40]
            raise Refused(Fault.UPGRADE_REFUSED, f"an upgrade to {name} is not served here")
        if head.marked is not None and core.mirroring is not None and core.mirroring.is_loop(head):
            raise Refused(Fault.LOOP, "a candidate's URL leads back to this gateway")
        if (head.length or 0) > core.limits.body:
            raise Refused(Fault.BODY_TOO_LARGE, f"the body is over {core.limits.body} bytes")
        route = self._route or core.router.find(head.path)
        if route is None:
            raise Refused(Fault.NO_SUCH_ROUTE, "there is no endpoint at this path")
        self._endpoint, self._role = route.endpoint, route.role
        exchange = Exchange(core, self, head, route)
        exchange.begin()
        self._exchange, self._phase = exchange, _EXCHANGE
        return exchange

    def _take_body(self, exchange: Exchange, data: bytes) -> bytes:
        body, rest = self._reader.feed(data)
        if body:
            self._received += len(body)
            if self._received > self._core.limits.body:
                most = self._core.limits.body
                raise Refused(Fault.BODY_TOO_LARGE, f"the body is over {most} bytes")
            exchange.on_request_body(body)
        if self._reader.done:
            exchange.on_request_end(self._reader.trailers)
        return rest

    def eof_received(self) -> None:
        """Whoever ends its side has gone; ``connection_lost`` follows."""

    # --- what the exchange asks for ----------------------------------------------------------

    def send(self, parts: list[bytes]) -> None:
        hand_over(self.transport, parts)

    def hold(self, held: bool) -> None:
        self._backend_holds = held
        self._set_reading()

    def over(self, *, keep: bool) -> None:
        """The answer has been handed over to its end."""
        self._exchange = None
        self._backend_holds = False
        if not keep or self._core.stopping:
            self._close()
            return
        self._phase, self._since = _IDLE, self._core.sweeper.now
        self._ahead = False
        if not self._is_reading:
            self._set_reading()
        if self._held:
            self._core.loop.call_soon(self._go_on)

    def refuse(self, fault: Fault, message: str) -> None:
        self._exchange = None
        self.send([answer(fault, message, with_body=not self._is_head)])
        self._close()

    def break_off(self) -> None:
        """The answer can't be ended as it was begun: closed early, it shows as broken."""
        self._exchange = None
        self._phase, self._since = _LINGER, self._core.sweeper.now
        if self.blocked:
            self.transport.abort()  # it does not even read what it has
        else:
            self.transport.close()

    def _go_on(self) -> None:
        if self._held and self._phase is _IDLE and not self.transport.is_closing():
            self.data_received(b"")

    def _turn_away(self, fault: Fault, message: str) -> None:
        """Answer a request that can't be read on."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            self._core.tally.faults[Who(self._endpoint, "", self._role), fault] += 1
            self._reader = UntilClose()  # whatever follows is read, and is no request
            self.refuse(fault, message)
        else:
            self._exchange = exchange
            exchange.give_up(fault, message)

    def _close(self) -> None:
        """Close once the client has read what it was sent. To close under an upload would destroy
        the answer on its way, so the rest of it is read for a while.
        """
        if self._reader.done and not self._held:
            self._phase, self._since = _LINGER, self._core.sweeper.now
            self.transport.close()
            return
        self._held = b""
        self._phase, self._since = _LINGER, self._core.sweeper.now
        self._ahead = self._backend_holds = False
        self._set_reading()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()

    # --- flow and time -----------------------------------------------------------------------

    def _set_ahead(self, ahead: bool) -> None:
        if ahead is not self._ahead:
            self._ahead = ahead
            self._set_reading()

    def _set_reading(self) -> None:
        wanted = not (self._backend_holds or self._ahead)
        if wanted is self._is_reading or self.transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self._since = self._core.sweeper.now
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.blocked = True
        if self._exchange is not None:
            self._exchange.client_blocked(True)

    def resume_writing(self) -> None:
        self.blocked = False
        if self._exchange is not None:
            self._exchange.client_blocked(False)

    def sweep(self, now: float) -> None:
        limits, waited = self._core.limits, now - self._since
        match self._phase:
            case _Phase.IDLE if waited > limits.client_idle or self._core.stopping:
                self.transport.close()
            case _Phase.HEAD if waited > limits.head_within:
                self._turn_away(Fault.CLIENT_TOO_SLOW, "the head of the request took too long")
            case _Phase.LINGER if waited > limits.linger:
                self._linger_no_more(waited)
            case _Phase.EXCHANGE if self._exchange is not None:
                if not self._is_reading and self._has_gone():
                    self.transport.abort()
                else:
                    self._exchange.sweep(now)
            case _:
                pass

    def _linger_no_more(self, waited: float) -> None:
        """What is still unread is given as long as any client that stalls."""
        unread = self.transport.get_write_buffer_size()
        if not unread or waited > self._core.limits.client_stall:
            self.transport.abort()

    def _has_gone(self) -> bool:
        """Whether the client closed a connection of which we read nothing at the moment.

        TCP does not say while the client has more to send than our side's buffer takes.
        """
        sock = self.transport.get_extra_info("socket")
        try:
            state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except (AttributeError, OSError):
            return False
        return state in _GONE
