"""How fast candidates' answers are read: where they come in a flood, production goes first.

An event loop reads a socket that is always full again and again, before it turns to another. So a
candidate that answers without end would take all the time that production has. Here its answer is
read a little at a time, and all floods together get a fifth of the time at most.
"""

import asyncio
import time
from collections import deque

from gateway.outbound import Outbound

#: A read that fills this shows that more is waiting; answers of models hardly ever do.
_AT_ONCE = 16 * 1024
_SHARE = 0.2
#: Seconds that floods may take before they have to wait.
_MOST = 0.001
#: What a read costs the kernel and the loop, beside what is done with the bytes; in seconds.
_READ = 0.00001
_SHORTEST_WAIT = 0.001


class Pace:
    """Of one process. ``buffer`` is read into by all, one after another, and never kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.buffer = memoryview(bytearray(_AT_ONCE))
        self._loop = loop
        self._left = _MOST
        self._as_of = time.monotonic()
        self._waiting: deque[Paced] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def flooded(self, connection: "Paced", began: float) -> None:
        """A connection filled the buffer, and what it brought has been read since ``began``."""
        now = time.monotonic()
        earned = (began - self._as_of) * _SHARE
        self._left = min(self._left + earned, _MOST) - (now - began) - _READ
        self._as_of = now
        if self._left < 0 and not connection.closed:
            connection.pause_reading()
            self._waiting.append(connection)
            if self._timer is None:
                self._wait()

    def _wait(self) -> None:
        seconds = max(-self._left / _SHARE, _SHORTEST_WAIT)
        self._timer = self._loop.call_later(seconds, self._next)

    def _next(self) -> None:
        """Let the one that has waited longest be read."""
        self._timer = None
        while self._waiting:
            connection = self._waiting.popleft()
            if not connection.closed:
                connection.resume_reading()
                break
        if self._waiting:
            self._wait()


class Paced(Outbound, asyncio.BufferedProtocol):
    """A connection to a candidate."""

    def __init__(self, pace: Pace, longest_head: int) -> None:
        # The transport holds nothing back, so that a write is over once the socket has it.
        super().__init__(longest_head, write_high=0)
        self._pace = pace

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the loop's own idea
        return self._pace.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if nbytes < _AT_ONCE:
            self.data_received(bytes(self._pace.buffer[:nbytes]))
            return
        began = time.monotonic()
        self.data_received(bytes(self._pace.buffer))
        self._pace.flooded(self, began)
