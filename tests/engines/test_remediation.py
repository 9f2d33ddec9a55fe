"""Real servers under the whole of steady, with a real sshd and a real Temporal server: a vLLM that
freezes is restarted once, and a llama.cpp that loads is left alone.
"""

import asyncio
import os
import shlex
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from tests.engines import test_llamacpp as llamacpp
from tests.engines import test_vllm as vllm
from tests.engines.real import Real
from tests.engines.threads import stopped
from tests.parts.sshd import Sshd, sshd
from tests.parts.temporal import dev_server
from worker.apply import apply_fleet
from worker.settings import Settings
from worker.snapshot import fetch_snapshot
from worker.worker import build_worker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(2400), pytest.mark.needs("openssh-server")]

#: Ends the process group in whose file it finds a leader, starts another, and notes that it did.
_RESTART = """\
#!/bin/sh
kill -9 "-$(cat {pid})" 2>/dev/null
{variables} setsid {command} >{log} 2>&1 </dev/null &
echo $! >{pid}
echo restarted >>{count}
"""
_ENGINE = "VLLM::EngineCore"
_POLICY: dict[str, Any] = {
    "confirm_wait": "1s",
    "persist_hung": "3s",
    "reading_max_age": "30s",
    "cooldown": "5s",
    "verify_after": "60s",
    "load_limit": "15m",
    "budget": {"limit": 3, "window": "24h"},
}


@dataclass
class House:
    """A real server that steady watches. ``files`` are those of its restart."""

    real: Real
    client: Client
    files: Mapping[str, Path]

    @property
    def restarts(self) -> int:
        count = self.files["count"]
        return len(count.read_text().split()) if count.exists() else 0

    async def began(self) -> bool:
        try:
            await self.client.get_workflow_handle(remediation_id("real")).describe()
        except RPCError:
            return False
        return True

    async def shows(self, verdict: Verdict) -> None:
        """Until `steady status` says so."""
        async with asyncio.timeout(120):
            while True:
                views = (await fetch_snapshot(self.client)).servers
                if [each.verdict for each in views] == [verdict]:
                    return
                await asyncio.sleep(0.5)

    async def ended(self) -> RemediationStatus:
        handle = self.client.get_workflow_handle(
            remediation_id("real"), result_type=RemediationStatus
        )
        async with asyncio.timeout(1000):
            while True:
                try:
                    status: RemediationStatus = await handle.result()
                except RPCError:
                    await asyncio.sleep(0.5)
                else:
                    return status


@asynccontextmanager
async def watched(
    folder: Path, real: Real, argv: Sequence[str], variables: Mapping[str, str], **policy: Any
) -> AsyncIterator[House]:
    files = {name: folder / name for name in ("pid", "log", "count", "restart.sh")}
    files["pid"].write_text(f"{real.process.pid}\n")
    files["restart.sh"].write_text(
        _RESTART.format(
            pid=files["pid"],
            log=files["log"],
            count=files["count"],
            variables=shlex.join(f"{name}={value}" for name, value in variables.items()),
            command=shlex.join(each.replace("PORT", str(real.port)) for each in argv),
        )
    )
    with sshd(folder / "sshd") as host:
        async with dev_server(folder / "temporal") as temporal:
            client = await temporal.client()
            house = House(real, client, files)
            fleet = _fleet(host, real, files, {**_POLICY, **policy})
            try:
                async with build_worker(client, Settings(state_dir=folder / "state")):
                    await apply_fleet(client, ApplyRequest(fleet=fleet, search_attributes=True))
                    yield house
            finally:
                if house.restarts:
                    os.killpg(int(files["pid"].read_text()), signal.SIGKILL)


def _fleet(host: Sshd, real: Real, files: Mapping[str, Path], policy: dict[str, Any]) -> Fleet:
    restart = {
        "kind": "command",
        "host": "real",
        "argv": ["sh", str(files["restart.sh"])],
        "identity": ["cat", str(files["pid"])],
        "stop_timeout": "10s",
    }
    source = {"kind": real.kind, "url": real.url, "deadline": "10s"}
    return Fleet.model_validate(
        {
            "fleet": {"sweep_every": "2s", "probe_every": "20s"},
            "defaults": policy,
            "hosts": {"real": host.host()},
            "servers": {"real": {"source": source, "restart": restart}},
        }
    )


@pytest.mark.parametrize(
    ("loaded", "verdict"), [(True, Verdict.STUCK), (False, Verdict.UNRESPONSIVE)]
)
async def test_a_frozen_vllm_is_restarted_once_and_answers_again(
    tmp_path: Path, loaded: bool, verdict: Verdict
) -> None:
    with vllm.server() as real:
        async with watched(tmp_path, real, vllm.argv(), vllm.OFFLINE) as house:
            asked = [real.ask() for _ in range(2)] if loaded else []
            await house.shows(Verdict.BUSY if loaded else Verdict.IDLE)
            await asyncio.sleep(10)
            assert not await house.began()

            real.signal(signal.SIGSTOP, _ENGINE)
            status = await house.ended()
            assert (status.outcome, status.verdict) == (Outcome.RESOLVED, verdict), status
            assert house.restarts == 1
            assert not any(task.done() and not task.exception() for task in asked)
            await real.let_go()
            body = {"model": "tiny", "prompt": "Hi", "max_tokens": 2}
            assert await real.post("/v1/completions", body) == 200


async def test_a_llamacpp_that_loads_is_left_alone_also_past_its_limit(tmp_path: Path) -> None:
    """The thread that loads stands still, so that the load lasts."""
    with llamacpp.server(until=503) as real, stopped(real.process.pid):
        limits = {"load_limit": "20s"}
        async with watched(
            tmp_path, real, llamacpp.argv(), llamacpp.variables(), **limits
        ) as house:
            await house.shows(Verdict.LOADING)
            await house.shows(Verdict.OVERDUE)
            await asyncio.sleep(10)
            assert (await house.began(), house.restarts) == (False, 0)
