"""``python -m tests.parts.timer_worker ADDRESS``: works on one workflow that reads its clock."""

import asyncio
import sys
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

TASK_QUEUE = "timers"


@workflow.defn
class Waiter:
    """Waits for some seconds, going by its own clock; then for one more."""

    @workflow.run
    async def run(self, seconds: int) -> int:
        timers, until = 0, workflow.now() + timedelta(seconds=seconds)
        while (left := until - workflow.now()) > timedelta(milliseconds=100):
            timers += 1
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: False, timeout=left)
        await workflow.sleep(1)
        return timers

    @workflow.query
    def is_there(self) -> bool:
        return True


async def main(address: str) -> None:
    client = await Client.connect(address)
    await Worker(client, task_queue=TASK_QUEUE, workflows=[Waiter]).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
