"""Time-outs of a whole process by one timer, instead of one for each wait of each connection.

What has a bound is watched, and asked in turn, some at a time, so that no round of thousands holds
up what passes through. A wait ends a round after its bound at the latest: 0.1 s, and 10 ms for each
hundred that are watched.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

_EVERY = 0.1
_AT_ONCE = 100
_BETWEEN = 0.01


class Swept(Protocol):
    def sweep(self, now: float) -> None: ...


class Sweeper:
    """``now`` is the monotonic clock in seconds, a tick old at most: near enough for bounds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = time.monotonic()
        self._loop = loop
        self._watched: set[Swept] = set()
        self._round: Iterator[Swept] = iter(())
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(_EVERY, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def watch(self, one: Swept) -> None:
        self._watched.add(one)

    def forget(self, one: Swept) -> None:
        self._watched.discard(one)

    def _tick(self) -> None:
        self.now = time.monotonic()
        some = list(islice(self._round, _AT_ONCE))
        if not some:
            self._round = iter(tuple(self._watched))
        self._timer = self._loop.call_later(_BETWEEN if some else _EVERY, self._tick)
        for one in some:
            if one not in self._watched:
                continue
            try:
                one.sweep(self.now)
            except Exception as fault:  # noqa: BLE001 - one connection's fault ends no other's bounds
                self._watched.discard(one)
                self._loop.call_exception_handler(
                    {
                        "message": "a connection's time-outs are no longer watched",
                        "exception": fault,
                    }
                )
