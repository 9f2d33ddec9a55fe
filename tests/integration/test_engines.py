"""Simulated vLLM servers under the whole of steady: real HTTP, real SSH, a real Temporal server.

One is busy all the time, one freezes under load, one while idle, and one has stale gauges.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest
from fleet.contracts.names import probe_id, remediation_id
from fleet.contracts.remediation import Outcome, RemediationStatus
from fleet.verdicts import Verdict
from simulator.host import SimHost, sim_host
from simulator.vllm import Options
from tests.parts.ports import free_port
from tests.parts.simulated import in_fleet, ready
from tests.parts.temporal import dev_server
from tests.parts.vllm import Vllm
from worker.apply import apply_fleet
from worker.settings import Settings
from worker.worker import build_worker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]

_WITHIN = 60.0

_POLICY: dict[str, Any] = {
    "confirm_wait": "500ms",
    "persist_hung": "2s",
    "reading_max_age": "10s",
    "cooldown": "2s",
    "verify_after": "3s",
    "load_limit": "60s",
    "budget": {"limit": 3, "window": "24h"},
}


@dataclass
class House:
    client: Client
    host: SimHost
    ports: dict[str, int]

    def server(self, name: str) -> Vllm:
        return Vllm(self.ports[name])

    def handle(self, name: str) -> WorkflowHandle[Any, RemediationStatus]:
        return self.client.get_workflow_handle(remediation_id(name), result_type=RemediationStatus)

    async def ends(self, name: str) -> RemediationStatus:
        async def has_begun() -> bool:
            return await self.began(name)

        await until(has_begun)
        async with asyncio.timeout(_WITHIN):
            status: RemediationStatus = await self.handle(name).result()
        return status

    async def began(self, name: str) -> bool:
        try:
            await self.handle(name).describe()
        except RPCError:
            return False
        return True


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_WITHIN):
        while not await true():
            await asyncio.sleep(0.1)


@asynccontextmanager
async def house(folder: Path, **servers: dict[str, Any]) -> AsyncIterator[House]:
    """Simulated servers by name with their options, watched by a worker in this process."""
    ports = {name: free_port() for name in servers}
    containers = [
        Options(name=name, port=ports[name], boot=0.5, step=0.05, **options)
        for name, options in servers.items()
    ]
    async with (
        dev_server(folder / "temporal") as server,
        sim_host(folder / "host", containers) as host,
    ):
        client = await server.client()
        for port in ports.values():
            await ready(f"http://127.0.0.1:{port}")
        async with build_worker(client, Settings(state_dir=folder / "state")):
            request = ApplyRequest(fleet=fleet(host, ports), search_attributes=True)
            await apply_fleet(client, request)
            yield House(client, host, ports)
        await asyncio.sleep(0.2)


def fleet(host: SimHost, ports: dict[str, int]) -> Fleet:
    def server(name: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{ports[name]}"
        return {
            "source": {"kind": "vllm", "url": url, "deadline": "2s"},
            "restart": {"kind": "docker", "host": "sim", "name": name, "stop_timeout": "1s"},
        }

    return Fleet.model_validate(
        {
            "fleet": {"sweep_every": "1s", "probe_every": "2s"},
            "defaults": _POLICY,
            "hosts": {"sim": in_fleet(host)},
            "servers": {name: server(name) for name in ports},
        }
    )


async def test_each_is_judged_by_its_own_counters_and_the_busy_one_is_never_asked(
    tmp_path: Path,
) -> None:
    busy = {"load": 4, "slots": 4}
    async with house(tmp_path, busy=busy, loaded={"load": 2}, idle={}, stale={"load": 2}) as h:
        asking = asyncio.create_task(h.server("busy").complete())
        await asyncio.sleep(3)
        assert not any([await h.began(name) for name in h.ports])

        h.host.engine.freeze("loaded")
        h.host.engine.freeze("idle")
        await h.server("stale").say("stale")
        loaded, idle, stale = await asyncio.gather(
            h.ends("loaded"), h.ends("idle"), h.ends("stale")
        )

        assert (loaded.outcome, loaded.verdict) == (Outcome.RESOLVED, Verdict.STUCK)
        assert (idle.outcome, idle.verdict) == (Outcome.RESOLVED, Verdict.UNRESPONSIVE)
        assert stale.outcome is Outcome.NOT_CONFIRMED
        restarts = {"busy": 0, "loaded": 1, "idle": 1, "stale": 0}
        assert h.host.restarts() == restarts
        # A chat request waits in its queue all the while, and it is sent none by steady.
        assert not asking.done()
        assert await h.server("busy").asked() == 1
        assert not await h.began("busy")
        asking.cancel()
        # Whoever has been restarted answers again, and is found well by the next probes.
        assert await h.server("idle").complete() == 200


async def test_probes_have_schedules_of_their_own_only_where_there_are_engines(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, idle={}) as h:
        schedule = h.client.get_schedule_handle(probe_id(0))

        async def has_run() -> bool:
            return len((await schedule.describe()).info.recent_actions) > 2

        await until(has_run)
        assert await h.server("idle").asked() >= 1
        before = fleet(h.host, h.ports)
        source = before.servers["idle"].source.model_copy(update={"probe": False})
        server = before.servers["idle"].model_copy(update={"source": source})
        without = before.model_copy(update={"servers": {"idle": server}})
        await apply_fleet(h.client, ApplyRequest(fleet=without))
        with pytest.raises(RPCError):
            await schedule.describe()
        await h.client.get_schedule_handle("health/0").describe()
        assert not await h.began("idle")
