"""Readings that are kept by real sweeps, and ``steady replay`` over them, on a real Temporal."""

import asyncio
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from fleet.contracts.names import RECORD, record_id
from fleet.contracts.record import KeepRequest, Kept, Look, RecordInput, RecordQuery, RecordSignal
from fleet.recording import ms, unpacked
from tests.parts.ended import Ended
from tests.parts.shard import busy, gone, hung, shard
from tests.parts.stores import valkey
from tests.parts.temporal import QUICK_TIMERS, DevServer, dev_server
from worker.connection import connect
from worker.settings import Settings
from worker.worker import build_worker
from workflows.record import ReadingRecord

pytestmark = pytest.mark.anyio

STEADY = Path(sys.executable).with_name("steady")
WEEK = timedelta(days=7)
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    folder = tmp_path_factory.mktemp("temporal")
    settings = (QUICK_TIMERS, "limit.historyCount.suggestContinueAsNew=40")
    async with dev_server(folder, settings=settings) as running:
        yield running


async def kept(client: Client, number: int) -> Kept:
    """What a record holds; the one whose shard kept nothing is not there."""
    handle = client.get_workflow_handle(record_id(number))
    found: Kept = await handle.query(RecordQuery.KEPT, result_type=Kept)
    return found


async def until(is_so: Callable[[], Awaitable[bool]], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not await is_so():
        assert time.monotonic() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.1)


# --- the record of a shard -----------------------------------------------------------------------


async def test_sweeps_keep_what_was_bad_and_the_first_good_reading_after(
    server: DevServer,
) -> None:
    async with shard(await server.client(), 71) as s, s.worker():
        s.keep_for = WEEK
        await s.sweep(busy(0), busy(30))
        with pytest.raises(RPCError) as quiet:
            await kept(s.client, 71)
        assert quiet.value.status is RPCStatusCode.NOT_FOUND
        await s.sweep(*(hung(30 * n, 30) for n in range(2, 8)), gone(240), busy(270), busy(300))
        found = await kept(s.client, 71)
        assert [look.found for look in unpacked(found.looks)] == ["hung", "missing", "busy"]
        assert found.keep_for == WEEK


async def test_a_record_that_can_not_be_reached_costs_a_sweep_nothing(server: DevServer) -> None:
    async with shard(await server.client(), 72) as s, s.worker():
        s.keep_for, s.record_fails = WEEK, True
        await s.sweep(busy(0), hung(60))
        then = await s.sweep(hung(90))
        assert then.servers[s.server].verdict == "hung"


@asynccontextmanager
async def record(client: Client, number: int) -> AsyncIterator[WorkflowHandle[Any, Any]]:
    queue = f"records-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=queue, workflows=[ReadingRecord]):
        yield await client.start_workflow(
            RECORD, RecordInput(shard=number), id=record_id(number), task_queue=queue
        )


def look(name: str) -> Look:
    at = ms(datetime.now(UTC))
    return Look(name, at, 30_000, "hung", "ok", "processing", at - 180_000)


async def test_what_is_kept_outlives_its_runs_and_nonsense_changes_nothing(
    server: DevServer,
) -> None:
    client = await server.client()
    async with record(client, 73) as first:
        present: WorkflowHandle[Any, Any] = client.get_workflow_handle(first.id)
        number = 0
        while (await present.describe()).run_id == first.first_execution_run_id:
            request = KeepRequest(shard=73, looks=[look(f"gpu-{number}")], keep_for=WEEK)
            await present.signal(RecordSignal.KEEP, request)
            number += 1
        for words in ([], ["nonsense"], [{"looks": 7}], [1, 2, 3]):
            await present.signal(RecordSignal.KEEP, args=words)
        found = await kept(client, 73)
        names = [each.server for each in unpacked(found.looks)]
        assert names == [f"gpu-{n}" for n in range(number)]
        await present.terminate()


async def test_it_ends_when_all_that_it_holds_is_too_old(server: DevServer) -> None:
    async with record(await server.client(), 74) as handle:
        request = KeepRequest(shard=74, looks=[look("gpu-1")], keep_for=2 * SECOND)
        await handle.signal(RecordSignal.KEEP, request)
        await asyncio.wait_for(handle.result(), 30)


# --- steady replay -------------------------------------------------------------------------------

FLEET = """
[fleet]
sweep_every = "1s"

[hosts.box]
address = "127.0.0.1"
user = "ops"
key = "key"
known_hosts = "known_hosts"

[defaults]
stale_after = "2s"
skew_tolerance = "20m"
persist_hung = "1h"

[servers.hangs]
source = {{ kind = "redis", key = "hangs" }}
restart = {{ kind = "docker", host = "box", name = "hangs" }}

[servers.gone]
source = {{ kind = "redis", key = "gone" }}
"""


@dataclass
class Place:
    temporal: DevServer
    client: Client
    folder: Path
    store: str

    async def steady(self, *arguments: object) -> Ended:
        process = await asyncio.create_subprocess_exec(
            STEADY,
            *map(str, arguments),
            env={
                **os.environ,
                "TEMPORAL_ADDRESS": self.temporal.address,
                "STEADY_STATE_DIR": str(self.folder / "state"),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ended(process.returncode or 0, out.decode(), err.decode())

    def beat(self, ago: float) -> None:
        with Redis.from_url(self.store) as redis:
            record = {"state": "processing", "heartbeat": time.time() - ago}
            redis.hset("hangs", mapping=record)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        temporal = await stack.enter_async_context(dev_server(tmp_path / "temporal"))
        store = stack.enter_context(valkey(tmp_path / "valkey"))
        settings = Settings(state_dir=tmp_path / "state", embedded_store=store.url)
        client = await connect(settings, address=temporal.address)
        await stack.enter_async_context(build_worker(client, settings))
        (tmp_path / "fleet.toml").write_text(FLEET.format())
        here = Place(temporal, client, tmp_path, store.url)
        here.beat(ago=0)
        applied = await here.steady("apply", "--remote-worker", tmp_path / "fleet.toml")
        assert applied.code == 0, applied.err
        yield here


async def test_a_policy_is_tried_on_what_really_happened(place: Place) -> None:
    """A worker hangs for some seconds and recovers, long before the fleet file would restart it."""

    async def showed(*verdicts: str) -> bool:
        try:
            looks = unpacked((await kept(place.client, 0)).looks)
        except RPCError:
            return False
        return [each.found for each in looks if each.server == "hangs"] == list(verdicts)

    await until(lambda: showed("hung"))
    await asyncio.sleep(4)
    place.beat(ago=-3600)
    # No tolerance goes so far; the last one stays fresh for as long as this test may take.
    await until(lambda: showed("hung", "skewed"))
    place.beat(ago=-600)
    await until(lambda: showed("hung", "skewed", "busy"))

    ended = await place.steady("replay", "--set", "persist=1s", "--json", "--server", "hangs")
    assert ended.code == 0, ended.err
    document = ended.document
    [stretch] = document["stretches"]
    assert (stretch["server"], stretch["verdict"]) == ("hangs", "hung")
    assert stretch["now"]["restarted_at"] is None
    assert stretch["then"]["restarted_at"] is not None
    assert stretch["by_itself"] is True
    assert document["set"] == ["persist=1s"]
    assert document["kept_since"] is not None

    shown = await place.steady("replay", "--set", "persist=1s")
    assert "with persist=1s: 1 restart of 1 server; 1 got well without one" in shown.out
    assert "as the fleet file says: 0 restarts of 0 servers" in shown.out
    assert "nothing was kept before " in shown.err

    finer = await place.steady("replay", "--set", "stale_after=1s")
    assert "stale_after was 2s: readings that were good under that were not kept" in finer.err


async def test_what_can_not_be_tried_is_refused(place: Place) -> None:
    ended = await place.steady("replay", "--set", "persist=soon")
    assert ended.code == 2
    assert ended.err.startswith("--set persist_hung: 'soon' is no duration")
    nobody = await place.steady("replay", "--server", "hang")
    assert (nobody.code, "did you mean hangs?" in nobody.err) == (2, True)
    nothing = await place.steady("replay", "--since", "1h")
    assert nothing.code == 0
