"""Servers without counters under the whole of steady: real HTTP, real SSH, a real Temporal server.

Two freeze. Of one people hear, and nobody touches it; the other's operator has said that it may be
restarted, and it is. The model that an Ollama has unloaded stays unloaded.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest
from fleet.contracts.names import remediation_id
from fleet.contracts.remediation import Outcome, RemediationStatus
from fleet.verdicts import Verdict
from simulator.host import SimHost, sim_host
from simulator.plain import Options
from tests.parts.plain import PlainServer
from tests.parts.ports import free_port
from tests.parts.simulated import in_fleet, ready
from tests.parts.temporal import dev_server
from worker.apply import apply_fleet
from worker.settings import Settings
from worker.snapshot import fetch_snapshot
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
}
_KINDS = {"told": "openai", "cured": "openai", "unloaded": "ollama"}


def fleet(host: SimHost, ports: dict[str, int]) -> Fleet:
    def server(name: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{ports[name]}"
        return {
            "source": {"kind": _KINDS[name], "url": url, "deadline": "1s"},
            "restart": {"kind": "docker", "host": "sim", "name": name, "stop_timeout": "1s"},
            "policy": {"restart_unproven": name == "cured"},
        }

    return Fleet.model_validate(
        {
            "fleet": {"sweep_every": "1s", "probe_every": "2s"},
            "defaults": _POLICY,
            "hosts": {"sim": in_fleet(host)},
            "servers": {name: server(name) for name in ports},
        }
    )


async def _ends(client: Client, server: str) -> RemediationStatus:
    handle = client.get_workflow_handle(remediation_id(server), result_type=RemediationStatus)
    async with asyncio.timeout(_WITHIN):
        while True:
            try:
                status: RemediationStatus = await handle.result()
            except RPCError:
                await asyncio.sleep(0.2)
            else:
                return status


async def _alerts(client: Client) -> list[str]:
    return [each.id async for each in client.list_workflows("WorkflowId STARTS_WITH 'alert/'")]


async def _shown(client: Client, server: str) -> Verdict | None:
    """What ``steady status`` says of it."""
    views = (await fetch_snapshot(client)).servers
    return next((each.verdict for each in views if each.server == server), None)


async def test_no_answer_is_a_persons_and_an_action_only_where_the_operator_says_so(
    tmp_path: Path,
) -> None:
    ports = {name: free_port() for name in _KINDS}
    containers = [
        Options(name=name, port=ports[name], kind=kind, boot=0.5) for name, kind in _KINDS.items()
    ]
    async with (
        dev_server(tmp_path / "temporal") as temporal,
        sim_host(tmp_path / "host", containers) as host,
    ):
        client = await temporal.client()
        servers = {name: PlainServer(port, _KINDS[name]) for name, port in ports.items()}
        for each in servers.values():
            await ready(each.url)
        await servers["unloaded"].say("unload")
        host.engine.freeze("told")
        host.engine.freeze("cured")
        async with build_worker(client, Settings(state_dir=tmp_path / "state")):
            await apply_fleet(
                client, ApplyRequest(fleet=fleet(host, ports), search_attributes=True)
            )
            cured = await _ends(client, "cured")
            assert (cured.outcome, cured.verdict) == (Outcome.RESOLVED, Verdict.UNRESPONSIVE)
            async with asyncio.timeout(_WITHIN):
                while not any(
                    "told" in each and each.endswith("unproven") for each in await _alerts(client)
                ):
                    await asyncio.sleep(0.2)
            async with asyncio.timeout(_WITHIN):
                while await _shown(client, "told") is not Verdict.UNPROVEN:
                    await asyncio.sleep(0.2)
        assert host.restarts() == {"told": 0, "cured": 1, "unloaded": 0}
        assert not any("unloaded" in each for each in await _alerts(client))
        assert (await servers["unloaded"].say())["asked"] == 0
        assert (await servers["told"].say())["asked"] >= 1
        with pytest.raises(RPCError):
            await client.get_workflow_handle(remediation_id("told")).describe()
