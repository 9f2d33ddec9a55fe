"""The simulated host: real processes behind real SSH, so that what steady does to them is real."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from activities.bundle import Bundle
from activities.evidence import Collection, Target, deadline
from activities.ssh import Limits, Shell, connected
from fleet.actions import DockerRestart, Drill, Host
from fleet.contracts.host import HostState, HostStatus
from fleet.freezing import freeze_argv, thaw_argv
from fleet.host_replies import container_state
from fleet.hosts import container_argv, restart_argv
from fleet.policy import Policy
from simulator import vllm
from simulator.heartbeat import Options
from simulator.host import SimHost, sim_host
from simulator.weather import Weather
from tests.parts.ports import free_port
from worker.children import command_line
from worker.embedded import embedded_valkey

pytestmark = pytest.mark.anyio

_LIMITS = Limits(seconds=20, keep=10_000)
_ACTION = DockerRestart(kind="docker", host="sim", name="gpu-1", stop_timeout=timedelta(seconds=1))

_HOST_SCRIPT = """
import asyncio
from pathlib import Path
from simulator.engine import Engine
from simulator.heartbeat import Options

async def main():
    engine = Engine(Path({folder!r}), [Options(**{options!r})])
    await engine.open()
    print(engine.container("gpu-1").process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[str]:
    async with embedded_valkey(tmp_path) as url:
        yield url


@pytest.fixture
async def host(tmp_path: Path, store: str) -> AsyncIterator[SimHost]:
    async with sim_host(tmp_path / "host", [_options(store)]) as running:
        yield running


@pytest.fixture
async def shell(host: SimHost) -> AsyncIterator[Shell]:
    async with connected(_as_host(host)) as open_shell:
        yield open_shell


def _options(store: str) -> Options:
    return Options(url=store, key="worker:gpu-1", name="gpu-1", boot=0.2, interval=0.1, rest=0.2)


def _as_host(host: SimHost) -> Host:
    return Host(
        address=host.address,
        port=host.port,
        user=host.user,
        key=str(host.key),
        known_hosts=str(host.known_hosts),
    )


async def _inspect(shell: Shell) -> HostState:
    return container_state((await shell.run(container_argv(("docker",), "gpu-1"), _LIMITS)).reply)


async def _restart(shell: Shell) -> None:
    done = await shell.act(restart_argv(_ACTION), _LIMITS, lambda: None)
    assert done.status == 0, done.err


async def _record(store: str) -> dict[str, str]:
    client: Any = Redis.from_url(store, decode_responses=True)
    async with client:
        record: dict[str, str] = await client.hgetall("worker:gpu-1")
        return record


async def _until(store: str, **wanted: str) -> dict[str, str]:
    for _ in range(300):
        record = await _record(store)
        if wanted.items() <= record.items():
            return record
        await asyncio.sleep(0.05)
    pytest.fail(f"the record never showed {wanted}; it shows {await _record(store)}")


async def _is_still(store: str) -> bool:
    before = await _record(store)
    await asyncio.sleep(1)
    return before == await _record(store)


async def test_a_restart_gives_the_same_container_a_new_process(
    host: SimHost, shell: Shell, store: str
) -> None:
    before = await _inspect(shell)
    first = await _until(store, state="processing")
    await _restart(shell)
    after = await _inspect(shell)
    assert after.status is HostStatus.RUNNING
    assert after.same_object(before)
    assert not after.same_process(before)
    assert host.restarts() == {"gpu-1": 1}
    for _ in range(300):
        if (await _record(store))["process"] != first["process"]:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the new process never published")


async def test_it_freezes_in_the_middle_of_a_job_and_its_record_stays(
    host: SimHost, shell: Shell, store: str
) -> None:
    await _until(store, state="processing")
    host.engine.freeze("gpu-1")
    await asyncio.sleep(1)
    assert await _is_still(store)
    assert (await _record(store))["state"] == "processing"
    assert (await _inspect(shell)).status is HostStatus.RUNNING


async def test_a_frozen_one_that_thaws_works_on_as_the_same_process(
    host: SimHost, store: str
) -> None:
    first = await _until(store, state="processing")
    host.engine.freeze("gpu-1")
    await asyncio.sleep(1)
    host.engine.thaw("gpu-1")
    assert not await _is_still(store)
    assert (await _record(store))["process"] == first["process"]


async def test_it_is_stopped_where_it_stands_and_goes_on_by_the_commands_of_a_drill(
    host: SimHost, shell: Shell
) -> None:
    process = host.engine.container("gpu-1").process
    assert process is not None
    for argv, is_stopped in ((freeze_argv, True), (thaw_argv, False)):
        done = await shell.run(argv(_ACTION, Drill()), _LIMITS)
        assert done.status == 0
        assert (_state(process.pid) == "T") is is_stopped
    unknown = await shell.run(("docker", "kill", "--signal=HUP", "gpu-1"), _LIMITS)
    assert unknown.status == 1


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_cure_that_fails_comes_up_and_freezes_again(
    host: SimHost, shell: Shell, store: str
) -> None:
    first = await _until(store, state="processing")
    host.engine.cure_fails("gpu-1")
    host.engine.freeze("gpu-1")
    await _restart(shell)
    await asyncio.sleep(2)
    record = await _record(store)
    assert record["process"] != first["process"]
    assert record["state"] == "processing"
    assert await _is_still(store)


async def test_it_says_error_and_works_on_again(host: SimHost, store: str) -> None:
    await _until(store, state="processing")
    host.engine.toggle_error("gpu-1")
    await _until(store, state="error")
    host.engine.toggle_error("gpu-1")
    await _until(store, state="processing")


async def test_a_crashed_one_is_stopped_on_the_host(host: SimHost, shell: Shell) -> None:
    host.engine.crash("gpu-1")
    await asyncio.sleep(0.5)
    assert (await _inspect(shell)).status is HostStatus.STOPPED


async def test_a_container_that_is_not_there_is_gone(shell: Shell) -> None:
    reply = (await shell.run(container_argv(("docker",), "other"), _LIMITS)).reply
    assert container_state(reply).status is HostStatus.GONE


async def test_it_has_the_evidence_that_a_container_has(
    host: SimHost, shell: Shell, store: str, tmp_path: Path
) -> None:
    await _until(store, state="processing")
    bundle = Bundle(tmp_path, "gpu-1@now", datetime.now(UTC))
    machine = Host(address=host.address, user=host.user, key=str(host.key))
    await Collection(shell, Target(_ACTION, machine, Policy()), bundle, deadline()).run()
    assert "began job-1" in (bundle.folder / "logs.txt").read_text()
    assert '"Status": "running"' in (bundle.folder / "container.json").read_text()
    assert "simulated-worker gpu-1" in (bundle.folder / "processes.txt").read_text()
    assert bundle.missing == [
        "kernel.txt: the host has no dmesg",
        "nvidia-smi-q.txt: the host has no nvidia-smi",
    ]
    assert bundle.process is not None
    assert bundle.process.same_process(await _inspect(shell))


async def test_a_frozen_one_comes_up_frozen_when_the_host_does(tmp_path: Path, store: str) -> None:
    async with sim_host(tmp_path / "host", [_options(store)]) as host:
        await _until(store, state="processing")
        host.engine.freeze("gpu-1")
        await asyncio.sleep(1)
    async with sim_host(tmp_path / "host", [_options(store)]) as host:
        assert await _is_still(store)
        host.engine.thaw("gpu-1")
        await asyncio.sleep(1)
        assert not await _is_still(store)


async def test_the_weather_brings_each_fault_and_mends_what_it_broke(
    tmp_path: Path, store: str
) -> None:
    names = ("gpu-a", "gpu-b", "gpu-c", "gpu-d")
    options = [Options(url=store, key=name, name=name, boot=0.1) for name in names]
    weather = Weather(*names[:3], engines=("gpu-d",), calm=0.7, blip=0.5, mended_after=1)
    async with sim_host(tmp_path / "host", options) as host:
        blowing = asyncio.create_task(weather.blow(host.engine))
        frozen: set[str] = set()
        while host.restarts()["gpu-c"] == 0:
            frozen |= {one.options.name for one in host.engine.containers if one.is_frozen}
            await asyncio.sleep(0.05)
        blowing.cancel()
        assert frozen == set(names)
        assert [one.options.name for one in host.engine.containers if one.is_frozen] == [
            "gpu-a",
            "gpu-d",
        ]


async def test_what_a_model_server_was_asked_is_counted_over_its_restarts(tmp_path: Path) -> None:
    server = vllm.Options(name="vllm", port=free_port(), boot=0)
    async with sim_host(tmp_path / "host", [server]) as host, httpx.AsyncClient() as client:
        for asked in (1, 2):
            await _complete(client, server)
            assert host.requests() == {"vllm": asked}
            await host.engine.restart("vllm", 5)
        assert host.restarts() == {"vllm": 2}


async def _complete(client: httpx.AsyncClient, server: vllm.Options) -> None:
    body = {"model": server.model, "prompt": "hi", "max_tokens": 1}
    async with asyncio.timeout(20):
        while True:
            try:
                url = f"http://127.0.0.1:{server.port}/v1/completions"
                assert (await client.post(url, json=body)).status_code == 200
            except httpx.TransportError:
                await asyncio.sleep(0.1)
            else:
                return


async def test_no_process_outlives_the_host(tmp_path: Path, store: str) -> None:
    async with sim_host(tmp_path / "host", [_options(store)]) as host:
        process = host.engine.container("gpu-1").process
        assert process is not None
        await _until(store, state="processing")
        host.engine.freeze("gpu-1")
    assert command_line(process.pid) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_a_frozen_process_dies_when_its_host_is_killed(tmp_path: Path, store: str) -> None:
    folder, options = str(tmp_path / "engine"), vars(_options(store))
    script = _HOST_SCRIPT.format(folder=folder, options=options)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            await _until(store, state="processing")
            os.kill(child, signal.SIGSTOP)
        finally:
            parent.kill()
    for _ in range(100):
        if command_line(child) == "":
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"process {child} lives on")
