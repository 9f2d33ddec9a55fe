"""Time-outs of a whole process by one timer, instead of one for each wait of each connection.

A wait ends up to one tick after its bound. What has a bound is watched, and asked at each tick.
"""

import asyncio
import time
from typing import Protocol

_EVERY = 0.1


class Swept(Protocol):
    def sweep(self, now: float) -> None: ...


class Sweeper:
    """``now`` is the monotonic clock in seconds, a tick old at most: near enough for bounds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = time.monotonic()
        self._loop = loop
        self._watched: set[Swept] = set()
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
        self._timer = self._loop.call_later(_EVERY, self._tick)
        for one in tuple(self._watched):
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
