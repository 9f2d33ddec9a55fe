"""Where a worker's signs of life come from: schedules, polls and activities of a real server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    WorkflowFailureError,
)
from temporalio.common import RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from fleet.contracts.names import health_id
from fleet.contracts.sweep import SweepRequest, SweepResult
from tests.parts.temporal import DevServer, dev_server
from worker.sweeps import Shard, SweepReader, stale
from worker.vitals import Stamps, Vitals
from worker.watch import polls

pytestmark = pytest.mark.anyio

QUEUE = "signs"
EVERY = timedelta(hours=1)


@activity.defn
async def look(shard: int) -> None:
    if shard < 0:
        raise ApplicationError("as told", non_retryable=True)


@workflow.defn(name="Sweep", sandboxed=False, failure_exception_types=[Exception])
class Sweep:
    @workflow.run
    async def run(self, request: SweepRequest) -> SweepResult:
        await workflow.execute_activity(
            look,
            request.shard,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        return SweepResult(shard=request.shard, at=workflow.now())


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    folder: Path = tmp_path_factory.mktemp("signs")
    async with dev_server(folder) as running:
        yield running


@pytest.fixture
async def client(server: DevServer) -> Client:
    return await server.client()


async def scheduled(client: Client, number: int, shard: int) -> None:
    """A schedule of a shard whose sweeps are made by hand; a negative shard's sweeps fail."""
    action = ScheduleActionStartWorkflow(
        "Sweep", SweepRequest(shard=shard), id=health_id(number), task_queue=QUEUE
    )
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=EVERY)])
    await client.create_schedule(health_id(number), Schedule(action=action, spec=spec))


async def seen(reader: SweepReader, number: int, taken: int) -> Shard:
    """The shard once so many of its sweeps were started, and a moment later."""
    for _ in range(100):
        found = {shard.number: shard for shard in await reader.fetch()}
        if number in found and found[number].taken == taken:
            await asyncio.sleep(0.5)
            return {shard.number: shard for shard in await reader.fetch()}[number]
        await asyncio.sleep(0.1)
    pytest.fail(f"shard {number} was never listed with {taken} sweeps")


async def test_a_shard_is_read_from_its_schedule_and_its_newest_result(client: Client) -> None:
    reader = SweepReader(client)
    handle = client.get_schedule_handle(health_id(0))
    async with Worker(client, task_queue=QUEUE, workflows=[Sweep], activities=[look]):
        await scheduled(client, 0, shard=0)
        new = await seen(reader, 0, taken=0)
        assert (new.every, new.paused, new.result) == (EVERY, False, None)
        assert "the last sweep of shard 0 is " in stale([new], 1)
        before = datetime.now(UTC) - timedelta(seconds=5)
        await handle.trigger()
        swept = await seen(reader, 0, taken=1)
        assert swept.result is not None
        assert swept.result.at > before
        assert stale([swept], 1) == ""
        assert stale([swept], 2) == "shard 1 has no schedule"
        later = datetime.now(UTC) + 3 * EVERY
        assert stale([swept], 1, later).startswith("the last sweep of shard 0 is ")
        await handle.pause()
        assert (await seen(reader, 0, taken=1)).paused


async def test_a_sweep_that_failed_leaves_the_result_before_as_the_newest(client: Client) -> None:
    reader = SweepReader(client)
    async with Worker(client, task_queue=QUEUE, workflows=[Sweep], activities=[look]):
        await scheduled(client, 1, shard=-1)
        await client.get_schedule_handle(health_id(1)).trigger()
        failed = await seen(reader, 1, taken=1)
    assert failed.result is None


async def test_polls_are_seen_for_both_kinds_and_only_this_workers_own(
    client: Client, server: DevServer
) -> None:
    nobody = {"workflow": None, "activity": None}
    assert await polls(client, "nobody") == nobody
    other = await Client.connect(
        server.address, identity="another", data_converter=pydantic_data_converter
    )
    async with Worker(client, task_queue="polled", workflows=[Sweep], activities=[look]):
        mine = await polls(client, "polled")
        deadline = time.monotonic() + 30
        while None in mine.values() and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            mine = await polls(client, "polled")
        assert set(mine) == set(nobody)
        assert None not in mine.values()
        assert await polls(other, "polled") == nobody
    still_listed = await polls(client, "polled")
    await asyncio.sleep(2)
    assert await polls(client, "polled") == still_listed


async def test_every_activity_that_ends_leaves_its_stamp(client: Client) -> None:
    vitals = Vitals()
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Sweep],
        activities=[look],
        interceptors=[Stamps(vitals)],
    ):
        for shard in (0, 0, -1):
            handle = await client.start_workflow(
                "Sweep", SweepRequest(shard=shard), id=f"stamped-{shard}", task_queue=QUEUE
            )
            with suppress(WorkflowFailureError):
                await handle.result()
    assert vitals.finished_activities() == {("look", "completed"): 2, ("look", "failed"): 1}
    assert vitals.diagnose().ages["activity"] is not None
