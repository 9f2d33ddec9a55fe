"""One probe of a shard, with real engines and a real Temporal: who is sent a request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from activities.asking import AskActivities
from activities.probing import ProbeActivities
from activities.reports import ReportActivities
from fleet.config import ServerSpec
from fleet.contracts.fleet import Pause, PresentPolicy, ShardSlice
from fleet.contracts.names import REMEDIATION, remediation_id
from fleet.contracts.remediation import RemediationInput
from fleet.contracts.sweep import SweepRequest, SweepResult
from fleet.policy import Policy
from tests.parts.temporal import dev_server
from tests.parts.vllm import Vllm, sim_vllm
from worker.runner import PunctualRunner
from workflows.ask import AskEngine
from workflows.probe import ProbeSweep

pytestmark = pytest.mark.anyio

_QUEUE = "probes"
_PAUSE = Pause(until=datetime(2100, 1, 1, tzinfo=UTC), who="ann")


class Applied:
    """What ``PolicyReader`` answers of a fleet of these engines; one of them is paused."""

    def __init__(self, engines: dict[str, Vllm]) -> None:
        self._specs = {
            name: ServerSpec(
                name=name,
                source=engine.source(deadline="5s"),
                store=None,
                restart=None,
                host=None,
                policy=Policy(),
            )
            for name, engine in engines.items()
        }

    async def present(self, server: str) -> PresentPolicy:
        return PresentPolicy(version=1, spec=self._specs.get(server))

    async def shard(self, number: int) -> ShardSlice:
        return ShardSlice(
            version=1,
            interval=timedelta(seconds=30),
            specs=list(self._specs.values()),
            paused={"paused": _PAUSE},
        )


async def remediation(client: Client, server: str) -> WorkflowHandle[object, object]:
    """One that runs, and of which nobody takes the tasks."""
    return await client.start_workflow(
        REMEDIATION,
        RemediationInput(server=server),
        id=remediation_id(server),
        task_queue="nobody",
    )


async def probe(client: Client) -> SweepResult:
    return await asyncio.wait_for(
        client.execute_workflow(
            ProbeSweep.run, SweepRequest(shard=0), id="a-probe", task_queue=_QUEUE
        ),
        60,
    )


@asynccontextmanager
async def worker(client: Client, engines: dict[str, Vllm]) -> AsyncIterator[None]:
    applied = Applied(engines)
    probing, asking = ProbeActivities(applied, client), AskActivities(applied)
    async with Worker(
        client,
        task_queue=_QUEUE,
        workflows=[ProbeSweep, AskEngine],
        activities=[
            probing.read_engines,
            asking.ask_engine,
            ReportActivities(client).report,
        ],
        workflow_runner=PunctualRunner(),
    ):
        yield


async def test_it_asks_an_idle_engine_and_none_that_works_is_paused_or_is_being_healed(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        client = await (await stack.enter_async_context(dev_server(tmp_path))).client()
        loads = {"idle": 0, "busy": 1, "healed": 0, "paused": 0}
        engines = {
            name: await stack.enter_async_context(sim_vllm(load=load))
            for name, load in loads.items()
        }
        async with worker(client, engines):
            # One that has ended holds nothing up.
            await (await remediation(client, "idle")).terminate()
            healing = await remediation(client, "healed")

            async def asked() -> dict[str, int]:
                return {name: await engine.asked() for name, engine in engines.items()}

            result = await probe(client)
            assert await asked() == {"idle": 1, "busy": 0, "healed": 0, "paused": 0}
            assert set(result.servers) == {"idle", "busy"}

            await healing.terminate()
            await probe(client)
            assert await asked() == {"idle": 2, "busy": 0, "healed": 1, "paused": 0}
