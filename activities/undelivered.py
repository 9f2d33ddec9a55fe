"""Why an alert did not get out, in words that hold no secret, and how many may wait for it."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

_AT_ONCE = 8
_WAITING = 24
_PATIENCE = timedelta(seconds=5)


class NotDelivered(Exception):
    """``loud`` where only a person can mend it; ``after`` is a wait that the service asks for."""

    def __init__(self, why: str, *, loud: bool = False, after: timedelta | None = None) -> None:
        super().__init__(why)
        self.why, self.loud, self.after = why, loud, after


class Turns:
    """A bound on what is under way to one target.

    In a storm each server has its alert, and a service that hangs would else hold the worker's
    slots for activities, which readings and restarts need too.
    """

    def __init__(self) -> None:
        self._free: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE)
        )
        self._waiting: defaultdict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def turn(self, target: str) -> AsyncIterator[None]:
        """Raises NotDelivered where too many are before this one; it is then tried later."""
        free = self._free[target]
        await self._wait(target, free)
        try:
            yield
        finally:
            free.release()

    async def _wait(self, target: str, free: asyncio.Semaphore) -> None:
        busy = NotDelivered("many other alerts are on their way to it")
        if free.locked() and self._waiting[target] >= _WAITING:
            raise busy
        self._waiting[target] += 1
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                await free.acquire()
        except TimeoutError:
            raise busy from None
        finally:
            self._waiting[target] -= 1
