"""Heartbeats while an activity waits on a network: without them no cancellation reaches it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity

_SLOWEST = timedelta(seconds=5)


@asynccontextmanager
async def pulse() -> AsyncIterator[None]:
    """Heartbeat from now until the block ends, four times in each heartbeat time-out."""
    limit = activity.info().heartbeat_timeout or _SLOWEST * 4
    beating = asyncio.create_task(_beat(min(_SLOWEST, limit / 4)))
    try:
        yield
    finally:
        beating.cancel()


async def _beat(every: timedelta) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(every.total_seconds())
