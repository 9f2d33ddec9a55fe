"""A storm on real parts: all servers freeze at once; nothing is restarted until a person opens."""

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
from temporalio.client import Client

from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest
from simulator.heartbeat import Options
from simulator.host import SimHost, sim_host
from simulator.inbox import Inbox, inbox
from tests.parts.ended import Ended
from tests.parts.simulated import in_fleet
from tests.parts.stores import valkey
from tests.parts.temporal import DevServer, dev_server
from worker.apply import apply_fleet
from worker.connection import connect
from worker.settings import Settings
from worker.worker import build_worker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

NAMES = ["gpu-1", "gpu-2", "gpu-3"]
STEADY = Path(sys.executable).with_name("steady")


@dataclass
class Place:
    temporal: DevServer
    client: Client
    host: SimHost
    inbox: Inbox
    folder: Path

    async def steady(self, *arguments: str) -> Ended:
        process = await asyncio.create_subprocess_exec(
            STEADY,
            *arguments,
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

    async def storm(self) -> Any:
        return (await self.steady("storm", "--json")).document

    @property
    def causes(self) -> list[Any]:
        return [each["cause"] for each in self.inbox.messages if each["server"] is None]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        temporal = await enter(dev_server(tmp_path / "temporal"))
        store = stack.enter_context(valkey(tmp_path / "valkey"))
        workers = [
            Options(url=store.url, key=f"worker:{name}", name=name, boot=0.3) for name in NAMES
        ]
        host = await enter(sim_host(tmp_path / "host", workers))
        box = await enter(inbox())
        (tmp_path / "webhook").write_text(box.url)
        settings = Settings(state_dir=tmp_path / "state", embedded_store=store.url)
        client = await connect(settings, address=temporal.address)
        await enter(build_worker(client, settings))
        fleet = _fleet(host, tmp_path / "webhook")
        await apply_fleet(client, ApplyRequest(fleet=fleet, search_attributes=True))
        yield Place(temporal, client, host, box, tmp_path)
        await asyncio.sleep(0.2)


def _fleet(host: SimHost, webhook: Path) -> Fleet:
    def server(name: str) -> dict[str, Any]:
        restart = {"kind": "docker", "host": "sim", "name": name, "stop_timeout": "1s"}
        return {"source": {"kind": "redis", "key": f"worker:{name}"}, "restart": restart}

    return Fleet.model_validate(
        {
            "fleet": {"name": "test", "sweep_every": "1s"},
            "alerts": {"webhook": {"file": str(webhook)}},
            "storm": {"cooldown": "1h"},
            "defaults": {
                "stale_after": "2s",
                "persist_hung": "1s",
                "reading_max_age": "20s",
                "cooldown": "1s",
                "verify_after": "2s",
                "load_limit": "60s",
            },
            "hosts": {"sim": in_fleet(host)},
            "servers": {name: server(name) for name in NAMES},
        }
    )


async def test_all_freeze_nothing_is_restarted_until_a_person_opens_then_one_after_the_other(
    place: Place,
) -> None:
    calm = await place.storm()
    assert (calm["at_once"], calm["blocked_by"], calm["holders"]) == (1, "", [])
    nothing = await place.steady("storm", "--open")
    assert (nothing.code, nothing.out.splitlines()[0]) == (1, "nothing was blocked")

    async def all_work() -> bool:
        seen = (await place.steady("status", "--json")).document["servers"]
        return all(each["verdict"] in ("busy", "idle") for each in seen)

    await _until(all_work)
    for name in NAMES:
        place.host.engine.freeze(name)

    async def all_wait() -> bool:
        return len((await place.storm())["waiting"]) == len(NAMES)

    await _until(all_wait)
    seen = await place.storm()
    assert seen["blocked_by"].startswith("fleet-wide suspicion (3 of 3 servers of shard 0")
    assert sorted(seen["bad"]) == NAMES
    assert place.host.restarts() == dict.fromkeys(NAMES, 0)
    opened = (await place.steady("status", "--json")).document["open"]
    assert {each["phase"] for each in opened} == {"waiting for a slot"}
    assert all(each["next_step"].startswith("blocked by fleet-wide") for each in opened)
    assert place.causes == ["fleet_suspicion"]

    done = await place.steady("storm", "--open", "--why", "the switch is mended")
    assert done.code == 0
    assert done.out.splitlines()[0] == "opened: 3 restarts that waited will be judged anew"

    async def all_healed() -> bool:
        closed = (await place.steady("incidents", "--json")).document["incidents"]
        return [each["outcome"] for each in closed] == ["resolved"] * len(NAMES)

    await _until(all_healed)
    assert place.host.restarts() == dict.fromkeys(NAMES, 1)

    async def is_told() -> bool:
        return place.causes == ["fleet_suspicion", "suspicion_over"]

    await _until(is_told)
    assert "the switch is mended" in place.inbox.messages[-1]["text"] or any(
        "the switch is mended" in str(each["text"]) for each in place.inbox.messages
    )


async def _until(is_so: Any, within: float = 90) -> None:
    deadline = time.monotonic() + within
    while not await is_so():
        assert time.monotonic() < deadline, f"not in time: {is_so.__name__}"
        await asyncio.sleep(0.3)
