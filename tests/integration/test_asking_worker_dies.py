"""The worker dies by SIGKILL in the middle of a request to an engine that does not answer."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.asking import AskActivities
from fleet.contracts.engine import AskRequest
from fleet.contracts.names import ask_id
from fleet.engine_sources import EngineSource
from fleet.engines.reading import Came
from fleet.readings import Reading
from tests.parts.asking_worker import OneEngine
from tests.parts.temporal import DevServer, dev_server
from tests.parts.vllm import sim_vllm
from workflows import ask
from workflows.ask import AskEngine

pytestmark = pytest.mark.anyio

_QUEUE = "asking"
_ROOT = Path(__file__).parents[2]


async def start(client: Client) -> WorkflowHandle[AskEngine, Reading]:
    request = AskRequest(server="v-1", suspected=True)
    return await client.start_workflow(AskEngine.run, request, id=ask_id("v-1"), task_queue=_QUEUE)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await true():
            await asyncio.sleep(0.05)


@asynccontextmanager
async def doomed(
    server: DevServer, source: EngineSource
) -> AsyncIterator[asyncio.subprocess.Process]:
    argv = (sys.executable, "-m", "tests.parts.asking_worker")
    process = await asyncio.create_subprocess_exec(
        *argv,
        *(server.address, _QUEUE, source.model_dump_json()),
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_it_is_asked_once_and_the_next_request_waits_until_that_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for the heir to start on a busy machine, before the dead one is given up.
    monkeypatch.setattr(ask, "_HEARTBEAT", timedelta(seconds=12))
    async with dev_server(tmp_path) as server, sim_vllm() as engine:
        client = await server.client()
        await engine.say("freeze")
        # The sandbox would load the module anew, with the 20 s of everyday.
        flows = Worker(
            client,
            task_queue=_QUEUE,
            workflows=[AskEngine],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        heir = AskActivities(OneEngine("v-1", engine.source(deadline="1s")))
        async with flows, doomed(server, engine.source(deadline="5m")) as victim:
            handle = await start(client)

            async def is_asked() -> bool:
                return await engine.asked() == 1

            await until(is_asked)
            victim.kill()
            async with Worker(client, task_queue=_QUEUE, activities=[heir.ask_engine]):
                # Another worker is ready to ask, and what died still holds the engine's one place.
                with pytest.raises(WorkflowAlreadyStartedError):
                    await start(client)
                with pytest.raises(WorkflowFailureError):
                    await asyncio.wait_for(handle.result(), 60)
                assert await engine.asked() == 1

                reading = await asyncio.wait_for((await start(client)).result(), 30)
                assert reading.engine is not None
                assert reading.engine.answer is not None
                assert reading.engine.answer.came is Came.NONE
                assert await engine.asked() == 2
