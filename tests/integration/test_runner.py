"""A worker is killed, and the next one is asked about a workflow that it has never seen."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker

from tests.parts.temporal import dev_server
from tests.parts.timer_worker import TASK_QUEUE, Waiter
from worker.runner import PunctualRunner

pytestmark = pytest.mark.anyio

SECONDS = 6


async def _ask_for_ever(handle: WorkflowHandle[Waiter, int]) -> None:
    while True:
        with suppress(RPCError, WorkflowQueryFailedError):
            await handle.query(Waiter.is_there)
        await asyncio.sleep(0.2)


async def test_a_timer_that_fires_while_it_is_asked_fires_in_time(tmp_path: Path) -> None:
    """Without the runner the waiter takes its timer for early, starts another, and can't replay."""
    async with dev_server(tmp_path) as temporal:
        client = await Client.connect(temporal.address)
        first = subprocess.Popen(
            [sys.executable, "-m", "tests.parts.timer_worker", temporal.address],
            cwd=Path(__file__).parents[2],
        )
        try:
            handle = await client.start_workflow(
                Waiter.run, SECONDS, id="waiter", task_queue=TASK_QUEUE
            )
            assert await handle.query(Waiter.is_there)
        finally:
            first.kill()
            first.wait()
        second = Worker(
            client, task_queue=TASK_QUEUE, workflows=[Waiter], workflow_runner=PunctualRunner()
        )
        async with second:
            asking = asyncio.create_task(_ask_for_ever(handle))
            timers = await handle.result()
            asking.cancel()
        assert timers == 1
        await Replayer(workflows=[Waiter]).replay_workflow(await handle.fetch_history())
