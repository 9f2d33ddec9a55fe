"""The embedded servers: data that stays, addresses that stay, and no process that stays."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from fleet.contracts.names import SearchAttribute
from worker.children import Program, command_line, running
from worker.connection import connect
from worker.embedded import embedded_temporal, embedded_valkey
from worker.errors import EndedError, SetupError
from worker.settings import Settings
from worker.state import owned

pytestmark = pytest.mark.anyio

_RUN = """
import asyncio, sys
from pathlib import Path
from worker.embedded import embedded_temporal, embedded_valkey
from worker.state import owned

async def main():
    with owned(Path(sys.argv[1])) as folder:
        async with (
            embedded_temporal(folder, port=None, ui_port=None) as temporal,
            embedded_valkey(folder) as store,
        ):
            print(temporal.address, store, flush=True)
            await asyncio.sleep(300)

asyncio.run(main())
"""


async def _start_workflow(address: str) -> str:
    client = await Client.connect(address)
    handle = await client.start_workflow("Nothing", id="kept", task_queue="nobody")
    return str(handle.first_execution_run_id)


async def test_a_second_run_has_the_same_address_and_the_same_workflows(tmp_path: Path) -> None:
    async with embedded_temporal(tmp_path, port=None, ui_port=None) as first:
        run = await _start_workflow(first.address)
    async with embedded_temporal(tmp_path, port=None, ui_port=None) as second:
        assert second == first
        client = await Client.connect(second.address)
        assert (await client.get_workflow_handle("kept").describe()).run_id == run


async def test_it_knows_steadys_search_attributes(tmp_path: Path) -> None:
    async with embedded_temporal(tmp_path, port=None, ui_port=None) as where:
        client = await Client.connect(where.address)
        known = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace="default")
        )
        assert set(SearchAttribute) <= set(known.custom_attributes)


async def test_valkey_keeps_its_records_over_a_restart(tmp_path: Path) -> None:
    async with embedded_valkey(tmp_path) as first:
        store: Any = Redis.from_url(first, decode_responses=True)
        async with store:
            await store.hset("worker:a", "state", "idle")
    async with embedded_valkey(tmp_path) as second:
        assert second == first
        store = Redis.from_url(second, decode_responses=True)
        async with store:
            assert await store.hget("worker:a", "state") == "idle"


async def test_a_command_without_an_address_finds_the_temporal_of_its_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    with owned(tmp_path) as folder:
        async with embedded_temporal(folder, port=None, ui_port=None) as where:
            client = await connect(Settings(state_dir=folder))
            assert client.service_client.config.target_host == where.address


async def test_a_server_that_is_not_there_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"127\.0\.0\.1:1 within 1s.*steady up.*TEMPORAL_ADDRESS"):
        await connect(
            Settings(state_dir=tmp_path), address="127.0.0.1:1", within=timedelta(seconds=1)
        )


async def test_a_program_that_ends_too_early_ends_the_block_with_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('the disk is full')"]
    program = Program("Broken", argv, tmp_path / "log", tmp_path / "pid")
    with pytest.raises(SetupError, match=r"(?s)Broken ended with exit code 1.*disk is full"):
        async with running(program):
            await asyncio.sleep(30)


async def test_what_an_earlier_run_logged_is_not_told_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("an older complaint\n")
    argv = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    program = Program("Killed", argv, tmp_path / "log", tmp_path / "pid")
    with pytest.raises(EndedError, match=r"^Killed ended by SIGKILL. It logged nothing.$"):
        async with running(program):
            await asyncio.sleep(30)


async def test_a_file_that_is_no_database_is_named_with_the_price_of_moving_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "temporal.db").write_text("no database\n" * 100)
    with pytest.raises(SetupError, match=r"temporal\.db can't be read.*move it away.*budget"):
        async with embedded_temporal(tmp_path, port=None, ui_port=None):
            pytest.fail("it ran on it")


async def test_its_data_are_for_its_user_alone(tmp_path: Path) -> None:
    async with embedded_temporal(tmp_path, port=None, ui_port=None):
        assert (tmp_path / "temporal.db").stat().st_mode & 0o777 == 0o600


async def test_a_cancellation_from_outside_stays_one(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    program = Program("Sleeper", argv, tmp_path / "log", tmp_path / "pid")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5), running(program):
            await asyncio.sleep(30)


async def test_a_child_does_not_hear_the_terminals_ctrl_c(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    program = Program("Sleeper", argv, tmp_path / "log", tmp_path / "pid")
    async with running(program) as child:
        assert os.getpgid(child.process.pid) != os.getpgid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_servers_die_with_a_run_that_is_killed(tmp_path: Path) -> None:
    pids = _killed_run(tmp_path)
    for _ in range(150):
        if not any(command_line(pid) for pid in pids):
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"of {pids} some live on")


async def test_what_a_killed_run_left_is_ended_by_the_next(tmp_path: Path) -> None:
    """As on systems without a parent-death signal: nothing but the PID file knows the orphan."""
    async with embedded_valkey(tmp_path) as url:
        argv = command_line(_pid(tmp_path / "valkey.pid")).split()
    with subprocess.Popen(argv) as orphan:
        while not command_line(orphan.pid):  # a program that has just begun has none for a moment
            await asyncio.sleep(0.01)
        (tmp_path / "valkey.pid").write_text(json.dumps({"pid": orphan.pid}))
        async with embedded_valkey(tmp_path) as again:
            assert again == url
            assert orphan.wait(timeout=10) in (0, -signal.SIGTERM)


async def test_a_stranger_with_a_remembered_pid_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "valkey.pid").write_text(f'{{"pid": {os.getpid()}}}')
    async with embedded_valkey(tmp_path) as url:
        assert url


def _killed_run(folder: Path) -> list[int]:
    with subprocess.Popen(
        [sys.executable, "-c", _RUN, str(folder)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        pids = [_pid(folder / "temporal.pid"), _pid(folder / "valkey.pid")]
        assert all(command_line(pid) for pid in pids)
        run.kill()
        return pids


def _pid(file: Path) -> int:
    return int(json.loads(file.read_text())["pid"])
