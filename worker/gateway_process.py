"""``python -m worker.gateway_process FD``: one of several processes that serve a gateway's port.

It is told what to serve, and asked, over the socket FD, by the process that started it; when that
is gone, it ends as if it had been told to stop.
"""

import asyncio
import socket
import struct
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as TookTooLong
from typing import Any

import structlog
import uvloop

from gateway.figures import packed, read
from gateway.kept import Kept
from gateway.limits import Share, limits
from gateway.metrics import Metrics
from gateway.plane import Local, NotTaken
from gateway.server import Gateway
from worker.garbage import leave_loaded_alone
from worker.gateway_talk import LAST, LONGEST, PREPARED, Ask, Begin, Reply, line
from worker.logs import set_up_logging
from worker.settings import Settings
from worker.stopping import stop_event

#: For the parent to take what is said to it.
_TAKEN_WITHIN = 10
#: To listen; a name may have to be looked up.
_LISTENS_WITHIN = 10.0

_log = structlog.get_logger(__name__)


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        # Of sending alone: a time-out of the socket would end the wait for the next question too.
        bound = struct.pack("ll", _TAKEN_WITHIN, 0)
        parent.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
        lines = parent.makefile("rb")
        raw = lines.readline(LONGEST)
        if not raw:
            return
        begin = Begin.model_validate_json(raw)
        set_up_logging(Settings())
        structlog.contextvars.bind_contextvars(process=begin.number)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(begin, Line(parent, lines)))


class Line:
    """The way to the parent and back. One that is gone, or does not listen, hears no more."""

    def __init__(self, parent: socket.socket, lines: Any) -> None:
        self._parent, self._lines = parent, lines
        self._lock = threading.Lock()
        self._is_broken = False

    def say(self, reply: Reply) -> None:
        with self._lock:
            if self._is_broken:
                return
            try:
                self._parent.sendall(line(reply))
            except OSError:  # what was said in part would spoil what comes after it
                self._is_broken = True

    def next(self) -> Ask | None:
        """The next question; none where the parent is gone."""
        try:
            raw = self._lines.readline(LONGEST)
        except OSError:
            return None
        return Ask.model_validate_json(raw) if raw else None


async def _serve(begin: Begin, to_parent: Line) -> None:
    secrets = {(endpoint, name): secret for endpoint, name, secret in begin.secrets}
    bounds = limits(begin.settings, Share(begin.number - 1, begin.of))
    gateway = Gateway(begin.endpoints, bounds, secrets, begin.marker)
    member = Member(gateway, begin)
    leave_loaded_alone()
    with stop_event() as told_to_stop:
        loop = asyncio.get_running_loop()

        def answer() -> None:
            to_parent.say(Reply(number=PREPARED))
            while (ask := to_parent.next()) is not None:
                to_parent.say(member.answer(ask))
            loop.call_soon_threadsafe(told_to_stop.set)

        threading.Thread(target=answer, name="orders", daemon=True).start()
        await told_to_stop.wait()
        await gateway.stop()
    to_parent.say(Reply(number=LAST, figures=member.figures()))


class Member:
    """What the parent asks, answered in a thread: it outlives a blocked event loop."""

    def __init__(self, gateway: Gateway, begin: Begin) -> None:
        self._gateway, self._begin = gateway, begin
        self._core = gateway.core
        self._plane = Local(gateway, begin.endpoints)
        self._metrics = Metrics(gateway.core, gateway.mirrors)

    def answer(self, ask: Ask) -> Reply:
        try:
            return self._answered(ask)
        except NotTaken as no:
            return Reply(number=ask.number, fault=str(no))
        except Exception as fault:  # noqa: BLE001 - the parent must hear of it
            _log.exception("a question of the gateway's first process")
            return Reply(number=ask.number, fault=f"a fault of its own: {type(fault).__name__}")

    def figures(self) -> list[Any]:
        return packed(read(self._metrics.families()))

    def _answered(self, ask: Ask) -> Reply:
        match ask.what:
            case "listen":
                return self._listen(ask)
            case "apply":
                self._plane.apply(ask.kept or Kept())
                return Reply(number=ask.number)
            case "loads":
                return self._loads(ask)
            case "figures":
                return Reply(number=ask.number, figures=self.figures())

    def _listen(self, ask: Ask) -> Reply:
        async def begin() -> str:
            self._plane.put_in_force(ask.kept or Kept())
            try:
                for place in self._begin.places:
                    await self._gateway.start(*place, beside_others=True)
            except OSError as problem:
                return (problem.strerror or str(problem)).lower()
            return ""

        return Reply(number=ask.number, fault=self._on_loop(begin()))

    def _on_loop(self, work: Coroutine[Any, Any, str]) -> str:
        future = asyncio.run_coroutine_threadsafe(work, self._core.loop)
        try:
            return future.result(_LISTENS_WITHIN)
        except TookTooLong:
            future.cancel()
            raise NotTaken("it does not listen in time") from None

    def _loads(self, ask: Ask) -> Reply:
        loads = self._plane.loads()
        return Reply(
            number=ask.number,
            backends=dict(loads.backends),
            candidates=[(*at, count) for at, count in loads.candidates.items()],
            clients=len(self._core.clients),
            still=time.monotonic() - self._core.sweeper.now,
        )


if __name__ == "__main__":
    main()
