"""``steady audit --live`` on a real Temporal with a real worker, store and receiver of alerts."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from temporalio.client import Client, WorkflowExecution

from activities.ledgers import GuardReader
from fleet.alerts import RECOVERED_LATER
from fleet.contracts.alerts import AlertAction, AlertMessage
from fleet.contracts.names import alert_id, health_id
from tests.parts.ended import Ended
from tests.parts.ports import free_port
from tests.parts.receiver import receiver
from tests.parts.stores import valkey
from tests.parts.temporal import DevServer, dev_server
from tests.parts.vllm import Vllm, sim_vllm
from worker.connection import connect
from worker.settings import Settings
from worker.worker import build_worker

pytestmark = pytest.mark.anyio

STEADY = Path(sys.executable).with_name("steady")

FLEET = """
[fleet]
sweep_every = "1s"
probe_every = "2s"

[alerts]
webhook = {{ env = "STEADY_TEST_HOOK" }}

[hosts.box]
address = "127.0.0.1"
port = {ssh}
user = "ops"
key = "{key}"
known_hosts = "{key}"

[defaults]
stale_after = "2s"
persist_hung = "1h"
unattended_after = "4s"

[servers.works]
source = {{ kind = "redis", key = "works" }}
policy = {{ stale_after = "1h" }}

[servers.gone]
source = {{ kind = "redis", key = "gone" }}

[servers.paused]
source = {{ kind = "redis", key = "paused" }}

[servers.cared-for]
source = {{ kind = "redis", key = "cared-for" }}
restart = {{ kind = "docker", host = "box", name = "cared-for" }}

[servers.engine]
source = {{ kind = "vllm", url = "{engine}", deadline = "1s" }}
policy = {{ mode = "alert_only", confirm_wait = "200ms", persist_hung = "1s", remind_after = "3s" }}

[servers.given-up]
source = {{ kind = "redis", key = "given-up" }}
restart = {{ kind = "docker", host = "box", name = "given-up" }}
"""


@dataclass
class Place:
    temporal: DevServer
    client: Client
    folder: Path
    engine: Vllm

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

    async def told(self, alert: str) -> AlertMessage:
        """The first message of which the ID begins so, once there is one."""
        query = f"WorkflowId STARTS_WITH '{alert}'"
        runs: list[WorkflowExecution] = []
        async with asyncio.timeout(90):
            while not runs:
                await asyncio.sleep(0.5)
                runs = [run async for run in self.client.list_workflows(query)]
        handle = self.client.get_workflow_handle(runs[-1].id)
        started = await anext(handle.fetch_history_events())
        words = started.workflow_execution_started_event_attributes.input.payloads
        [message] = await self.client.data_converter.decode(words, [AlertMessage])
        assert isinstance(message, AlertMessage)
        return message

    async def listed(self, *servers: str) -> dict[str, Any]:
        """The audit, once it lists just these servers."""
        document: dict[str, Any] = {}
        for _ in range(40):
            ended = await self.steady("audit", "--live", "--json")
            document = ended.document
            if sorted(each["server"] for each in document["unattended"]) == sorted(servers):
                assert ended.code == (1 if servers or document["blind"] else 0)
                return document
            await asyncio.sleep(0.5)
        pytest.fail(f"it never listed {servers}: {document}")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("STEADY_TEST_HOOK", f"http://127.0.0.1:{free_port()}/nobody-listens")
        temporal = await stack.enter_async_context(dev_server(tmp_path / "temporal"))
        store = stack.enter_context(valkey(tmp_path / "valkey"))
        with Redis.from_url(store.url) as redis:
            for name in ("works", "cared-for", "given-up"):
                record = {"state": "processing", "heartbeat": time.time() - 60}
                redis.hset(name, mapping=record)
        settings = Settings(state_dir=tmp_path / "state", embedded_store=store.url)
        client = await connect(settings, address=temporal.address)
        await stack.enter_async_context(build_worker(client, settings))
        engine = await stack.enter_async_context(sim_vllm())
        text = FLEET.format(ssh=free_port(), key=tmp_path / "key", engine=engine.url)
        (tmp_path / "fleet.toml").write_text(text)
        here = Place(temporal, client, tmp_path, engine)
        applied = await here.steady("apply", "--remote-worker", tmp_path / "fleet.toml")
        assert applied.code == 0, applied.err
        yield here


async def test_what_nobody_acts_on_is_listed_with_the_reason(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await place.steady("pause", "paused", "--for", "1h")).code == 0
    for _ in range(40):
        said = await place.steady("cancel", "given-up", "--why", "mine")
        if said.code == 0:
            break
        await asyncio.sleep(0.5)
    # Nobody has heard of either; the remediation of ``cared-for`` waits, and ``paused`` may.
    document = await place.listed("gone", "given-up")
    found = {each["server"]: each for each in document["unattended"]}
    assert found["gone"]["verdict"] == "missing"
    assert found["gone"]["acted_at"] is None
    assert "on its way" in found["gone"]["why"]
    assert found["given-up"]["why"].startswith("closed to automation: cancelled by ")
    assert document["blind"] == []

    shown = await place.steady("audit", "--live")
    assert shown.code == 1
    assert any(line.split()[:2] == ["gone", "missing"] for line in shown.out.splitlines())

    with receiver() as people:
        # What is told counts as care for as long; then the message alone is not enough any more.
        monkeypatch.setenv("STEADY_TEST_HOOK", people.url("/hook"))
        assert (await place.steady("resume", "paused")).code == 0
        late: dict[str, Any] = {}
        async with asyncio.timeout(90):
            while "ago, and nothing since" not in late.get("why", ""):
                document = (await place.steady("audit", "--live", "--json")).document
                found = {each["server"]: each for each in document["unattended"]}
                late = found.get("paused", {})
        assert late["acted_at"] is not None


async def test_an_engine_that_only_an_incident_knows_for_frozen_is_listed(place: Place) -> None:
    """To every sweep it is idle, which is a good verdict."""
    await place.engine.say("freeze")
    document: dict[str, Any] = {}
    found: dict[str, Any] = {}
    async with asyncio.timeout(90):
        while "engine" not in found:
            document = (await place.steady("audit", "--live", "--json")).document
            found = {each["server"]: each for each in document["unattended"]}
    assert found["engine"]["verdict"] == "unresponsive"
    assert found["engine"]["why"].startswith("closed to automation: ")
    assert document["problems"] == []
    seen = (await place.steady("status", "--json")).document["servers"]
    [engine] = [each for each in seen if each["server"] == "engine"]
    assert (engine["verdict"], engine["phase"]) == ("unresponsive", None)
    assert engine["why"].startswith("a request was not answered; to a sweep it is idle")


async def test_people_are_reminded_of_it_and_hear_that_it_is_over(place: Place) -> None:
    """By the probes: sweeps have nothing to say of an engine that looks idle to them."""
    await place.engine.say("freeze")
    incident = ""
    async with asyncio.timeout(60):
        while not incident:
            await asyncio.sleep(0.5)
            incident = await GuardReader(place.client).open_incident("engine") or ""
    reminded = await place.told(alert_id(incident, "reminder"))
    assert reminded.title.startswith("engine is still unresponsive, for ")
    await place.engine.say("thaw")
    over = await place.told(alert_id(incident, RECOVERED_LATER))
    assert (over.title, over.action) == ("engine has recovered", AlertAction.RESOLVE)


async def test_a_shard_that_no_sweep_looks_at_is_listed_too(place: Place) -> None:
    await place.client.get_schedule_handle(health_id(0)).pause()
    blinds: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while not blinds:
            blinds = (await place.steady("audit", "--live", "--json")).document["blind"]
    [blind] = blinds
    assert blind["why"] == "the schedule health/0 is paused in Temporal"
    assert sorted(blind["servers"]) == [
        *("cared-for", "engine", "given-up", "gone", "paused", "works")
    ]
