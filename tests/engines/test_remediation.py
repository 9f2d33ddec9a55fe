"""A real vLLM server freezes under load, and the whole of steady restarts it over a real sshd."""

import asyncio
import os
import shlex
import signal
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
from tests.engines.real import Real, running
from tests.engines.test_vllm import OFFLINE, argv
from tests.parts.ports import free_port
from tests.parts.sshd import Sshd, sshd
from tests.parts.temporal import dev_server
from worker.apply import apply_fleet
from worker.settings import Settings
from worker.worker import build_worker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500), pytest.mark.needs("openssh-server")]

#: Ends the process group in whose file it finds a leader, starts another, and notes that it did.
_RESTART = """\
#!/bin/sh
kill -9 "-$(cat {pid})" 2>/dev/null
{variables} setsid {command} >{log} 2>&1 </dev/null &
echo $! >{pid}
echo restarted >>{count}
"""
_POLICY: dict[str, Any] = {
    "confirm_wait": "1s",
    "persist_hung": "3s",
    "reading_max_age": "30s",
    "cooldown": "5s",
    "verify_after": "60s",
    "load_limit": "5m",
    "budget": {"limit": 3, "window": "24h"},
}


async def test_frozen_under_load_it_is_restarted_once_and_answers_again(tmp_path: Path) -> None:
    port = free_port()
    files = {name: tmp_path / name for name in ("pid", "log", "count", "restart.sh")}
    with (
        sshd(tmp_path / "sshd") as host,
        running("vllm", argv(), within=600, port=port, variables=OFFLINE) as real,
    ):
        _write_restart(files, port)
        files["pid"].write_text(f"{real.process.pid}\n")
        try:
            async with dev_server(tmp_path / "temporal") as temporal:
                client = await temporal.client()
                async with build_worker(client, Settings(state_dir=tmp_path / "state")):
                    fleet = _fleet(host, port, files)
                    await apply_fleet(client, ApplyRequest(fleet=fleet, search_attributes=True))
                    await _freezes_and_is_healed(client, real, files)
        finally:
            os.killpg(int(files["pid"].read_text()), signal.SIGKILL)


async def _freezes_and_is_healed(client: Client, real: Real, files: dict[str, Path]) -> None:
    asked = [real.ask() for _ in range(2)]
    await real.working("vllm:num_requests_running")
    await asyncio.sleep(10)
    handle = client.get_workflow_handle(remediation_id("real"), result_type=RemediationStatus)
    with pytest.raises(RPCError):
        await handle.describe()

    real.signal(signal.SIGSTOP, "VLLM::EngineCore")
    status = await asyncio.wait_for(_ended(handle), 500)
    assert (status.outcome, status.verdict) == (Outcome.RESOLVED, Verdict.STUCK), status
    assert files["count"].read_text().split() == ["restarted"]
    assert not any(task.done() and not task.exception() for task in asked)
    await real.let_go()
    body = {"model": "tiny", "prompt": "Hi", "max_tokens": 2}
    assert await real.post("/v1/completions", body) == 200


async def _ended(handle: Any) -> RemediationStatus:
    while True:
        try:
            status: RemediationStatus = await handle.result()
        except RPCError:
            await asyncio.sleep(0.5)
        else:
            return status


def _write_restart(files: dict[str, Path], port: int) -> None:
    text = _RESTART.format(
        pid=files["pid"],
        log=files["log"],
        count=files["count"],
        variables=shlex.join(f"{name}={value}" for name, value in OFFLINE.items()),
        command=shlex.join(each.replace("PORT", str(port)) for each in argv()),
    )
    files["restart.sh"].write_text(text)


def _fleet(host: Sshd, port: int, files: dict[str, Path]) -> Fleet:
    source = {"kind": "vllm", "url": f"http://127.0.0.1:{port}", "deadline": "10s"}
    restart = {
        "kind": "command",
        "host": "real",
        "argv": ["sh", str(files["restart.sh"])],
        "identity": ["cat", str(files["pid"])],
        "stop_timeout": "10s",
    }
    return Fleet.model_validate(
        {
            "fleet": {"sweep_every": "2s", "probe_every": "1m"},
            "defaults": _POLICY,
            "hosts": {"real": host.host()},
            "servers": {"real": {"source": source, "restart": restart}},
        }
    )
