"""``python -m tests.parts.booking_worker ADDRESS QUEUE POINT``: dies as it books a restart.

By SIGKILL, at the second of two bookings, the one in the machine's ledger: ``before`` or ``after``.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from activities.guards import GuardActivities
from activities.ledgers import Guard, Ledgers
from fleet.contracts.names import HOST_GUARD


def dies(point: str) -> None:
    """Replace what books on a machine by what ends this process at the point."""
    ask, book = Ledgers.ask, Ledgers._book

    async def asked(self: Ledgers, guard: Guard, *words: Any) -> Any:
        is_second = guard.workflow == HOST_GUARD
        answer = await ask(self, guard, *words) if point == "after" or not is_second else None
        if is_second:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    async def booked(self: Ledgers, *words: Any) -> None:
        if point == "after":
            await book(self, *words)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(Ledgers, "ask", asked)  # noqa: B010 - mypy refuses an assignment
    setattr(Ledgers, "_book", booked)  # noqa: B010 - as above


async def main(address: str, queue: str, point: str) -> None:
    dies(point)
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    guards = GuardActivities(client)
    activities: list[Callable[..., Any]] = [guards.take_budget, guards.report_starts]
    async with Worker(client, task_queue=queue, activities=activities):
        print("works", flush=True)  # noqa: T201 - whoever started it waits for this
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
