"""Being told to stop: by Ctrl-C or SIGTERM, while starting as well as while running."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set, for the length of the block."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for one in signals:
        loop.add_signal_handler(one, told.set)
    try:
        yield told
    finally:
        for one in signals:
            loop.remove_signal_handler(one)


@contextmanager
def cancelled_by(told: asyncio.Event) -> Iterator[asyncio.Task[None]]:
    """Leave the block early, as if it had been cancelled, when ``told`` is set.

    That holds until the task that is given is cancelled: then the block looks at the event itself.
    """
    owner = asyncio.current_task()

    async def wait() -> None:
        await told.wait()
        if owner is not None:
            owner.cancel()

    waiting = asyncio.create_task(wait())
    try:
        yield waiting
    except asyncio.CancelledError:
        if owner is None or not waiting.done() or waiting.cancelled():
            raise
        owner.uncancel()
    finally:
        waiting.cancel()


async def unless(told: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What ``work`` gives; none, and the work cancelled, where the event is set first."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(told.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        waiting.cancel()
        working.cancel()
