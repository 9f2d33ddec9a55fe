"""The worker dies by SIGKILL between the ledger of a server and that of its machine."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.guards import GuardActivities
from activities.ledgers import GuardReader
from fleet.contracts.guard import GuardInput, HostGuardInput, HostShare, TakeRequest, TakeResult
from fleet.contracts.names import HOST_GUARD, SERVER_GUARD, guard_id, host_guard_id
from fleet.contracts.sweep import SweepReadings, SweepResult
from fleet.judge import Memory
from fleet.policy import Policy, RollingBudget
from fleet.readings import Reading, WorkState
from tests.parts.temporal import DevServer, dev_server
from workflows.guard import ServerGuard
from workflows.host_guard import HostGuard
from workflows.starts import book_starts

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

_ROOT = Path(__file__).parents[2]
_POINTS = ("before", "after")
_AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


@workflow.defn(sandboxed=False)
class Sweeping:
    """A sweep that has found another process than before; returns who is to be told of what."""

    @workflow.run
    async def run(self, server: str) -> list[str]:
        def swept(process: str) -> SweepResult:
            memory = Memory(at=_AT, since=_AT, process=process)
            return SweepResult(shard=0, at=_AT, servers={server: memory})

        reading = Reading(server=server, at=_AT, state=WorkState.IDLE)
        seen = SweepReadings(
            version=1,
            interval=timedelta(seconds=30),
            readings=[reading],
            policies=[Policy()],
            policy_of={server: 0},
            guarded={server: machine(server)},
        )
        _, told = await book_starts(seen, swept("a"), swept("b"))
        return [message.cause for message in told]


@workflow.defn(sandboxed=False)
class Taking:
    @workflow.run
    async def run(self, server: str) -> TakeResult:
        budget = RollingBudget(limit=3)
        return await workflow.execute_activity_method(
            GuardActivities.take_budget,
            TakeRequest(
                server=server,
                incident="",
                by="script",
                key="one decision",
                budget=budget,
                cooldown=timedelta(minutes=10),
                host=HostShare(machine=machine(server), budget=budget),
            ),
            start_to_close_timeout=timedelta(seconds=60),
            heartbeat_timeout=timedelta(seconds=15),
        )


@dataclass
class End:
    """What came of it in the hands of the next worker, and who took what by the ledgers then."""

    result: Any
    own: list[str]
    host: list[str]


def machine(server: str) -> str:
    return f"{server}.internal:22"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    async with dev_server(tmp_path_factory.mktemp("temporal")) as running:
        yield running


@pytest.fixture(scope="module")
async def ends(server: DevServer) -> dict[str, End]:
    """By what was done, and where the worker died: at once, as a heartbeat is missed for 15 s."""
    every = [(flow, point) for flow in (Sweeping, Taking) for point in _POINTS]
    found = await asyncio.gather(*(_end(server, *each) for each in every))
    return {
        f"{flow.__name__} {point}": end for (flow, point), end in zip(every, found, strict=True)
    }


async def _end(server: DevServer, flow: type[Sweeping] | type[Taking], point: str) -> End:
    client = await server.client()
    queue = name = f"{flow.__name__.lower()}-{point}"
    flows = Worker(
        client,
        task_queue=queue,
        workflows=[ServerGuard, HostGuard, flow],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    for workflow_type, start, id_ in (
        (SERVER_GUARD, GuardInput(server=name, founding=True), guard_id(name)),
        (HOST_GUARD, HostGuardInput(machine=machine(name), founding=True), _host(name)),
    ):
        await client.start_workflow(workflow_type, start, id=id_, task_queue=queue)
    async with flows, _doomed(server, queue, point) as victim:
        handle = await client.start_workflow(flow.__name__, name, id=name, task_queue=queue)
        assert await asyncio.wait_for(victim.wait(), 60) == -signal.SIGKILL
        guards = GuardActivities(client)
        heir: list[Callable[..., Any]] = [guards.take_budget, guards.report_starts]
        async with Worker(client, task_queue=queue, activities=heir):
            result = await asyncio.wait_for(handle.result(), 90)
        reader = GuardReader(client)
        own, host = await reader.state(name), await reader.host(machine(name))
    assert own is not None
    assert host is not None
    return End(result, [each.by for each in own.takes], [each.by for each in host.takes])


def _host(name: str) -> str:
    return host_guard_id(machine(name))


@asynccontextmanager
async def _doomed(
    server: DevServer, queue: str, point: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.parts.booking_worker", server.address, queue, point),
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert victim.stdout is not None
    try:
        # Before anything waits for it: a slow start would use up the time of what it is to do.
        assert await asyncio.wait_for(victim.stdout.readline(), 120) == b"works\n"
        yield victim
    finally:
        if victim.returncode is None:
            victim.kill()
        await victim.wait()


@pytest.mark.parametrize("point", _POINTS)
async def test_a_start_by_somebody_else_counts_once_in_both_and_is_told_once(
    ends: dict[str, End], point: str
) -> None:
    end = ends[f"Sweeping {point}"]
    assert (end.result, end.own, end.host) == (["foreign_restart"], ["foreign"], ["foreign"])


@pytest.mark.parametrize("point", _POINTS)
async def test_a_restart_that_was_taken_counts_once_in_both_and_is_granted(
    ends: dict[str, End], point: str
) -> None:
    end = ends[f"Taking {point}"]
    assert (end.result["granted"], end.result["left"]) == (True, 2)
    assert (end.own, end.host) == (["script"], ["script"])
