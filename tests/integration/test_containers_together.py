"""Containers that hang together, remove themselves or can't be killed, on a real Docker."""

import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import activities.host as host_module
from fleet.actions import DockerRestart
from fleet.contracts.host import Effect
from tests.parts.docker import Docker
from tests.parts.on_host import OnHost
from tests.parts.sshd import Sshd

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
]

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
#: A parent waits for its child to execute, which can't open what it was told to: state D.
UNINTERRUPTIBLE = """
import os
os.mkfifo("/tmp/never")
print("up", flush=True)
opens = [(os.POSIX_SPAWN_OPEN, 0, "/tmp/never", os.O_RDONLY, 0)]
os.posix_spawn("/bin/true", ["true"], {}, file_actions=opens)
"""

Start = Callable[..., str]


@pytest.fixture
def name() -> str:
    return f"together-{time.monotonic_ns()}"


@pytest.fixture
def start(docker: Docker, name: str) -> Iterator[Start]:
    """Starts containers, waits until they are up, and removes them at the end."""

    def run(
        container: str = name, *options: str, script: str = SLEEP, network: str = "host"
    ) -> str:
        identity = docker.run_container(
            container, [sys.executable, "-c", script], options=options, network=network
        )
        deadline = time.monotonic() + 30
        while not docker("logs", container) and time.monotonic() < deadline:
            time.sleep(0.05)
        return identity

    yield run
    for container in docker("ps", "--all", "--quiet", "--filter", f"name={name}").split():
        docker.rm(container)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is given up after two seconds."""
    monkeypatch.setattr(host_module, "restart_timeout", lambda _: timedelta(seconds=2))


def on_host(
    sshd: Sshd, docker: Docker, name: str, cli: tuple[str, ...] = (), state: Path = Path("/none")
) -> OnHost:
    action = DockerRestart(
        kind="docker",
        host="h",
        name=name,
        stop_timeout=timedelta(seconds=1),
        cli=cli or docker.cli,
    )
    return OnHost.of(sshd.host(), action, state)


def wrapped(docker: Docker, tmp_path: Path, cases: str) -> tuple[str, ...]:
    """A program in front of docker, with cases of its own for some verbs."""
    program = tmp_path / "docker in between"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in\n{cases}\nesac\nexec {shlex.join(docker.cli)} "$@"\n'
    )
    program.chmod(0o755)
    return (str(program),)


async def test_a_container_with_rm_is_found_before_the_command(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    start(name, "--rm")
    state = await on_host(sshd, docker, name).inspect(before_restart=True)
    assert state.hindrance.startswith(f"{name} was started with --rm")


async def test_a_container_that_hangs_on_no_other_has_no_hindrance(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    start()
    assert (await on_host(sshd, docker, name).inspect(before_restart=True)).hindrance == ""


async def test_neither_the_owner_of_a_network_nor_who_runs_in_it_is_restarted_alone(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    owner, joined = f"{name}-owner", f"{name}-joined"
    start(owner, network="none")
    start(joined, network=f"container:{owner}")
    said = (await on_host(sshd, docker, owner).inspect(before_restart=True)).hindrance
    assert f"{joined} runs in its network" in said
    said = (await on_host(sshd, docker, joined).inspect(before_restart=True)).hindrance
    assert f"{joined} runs in the network of {owner}" in said


async def test_who_may_look_at_one_container_only_still_sees_its_own(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    cli = wrapped(docker, tmp_path, "ps) echo 'a password is required' >&2; exit 1;;")
    start()
    assert (await on_host(sshd, docker, name, cli).inspect(before_restart=True)).hindrance == ""
    start(f"{name}-rm", "--rm")
    said = (await on_host(sshd, docker, f"{name}-rm", cli).inspect(before_restart=True)).hindrance
    assert "--rm" in said


@pytest.mark.usefixtures("soon")
async def test_a_restart_that_hangs_ends_within_its_bound_and_the_host_says_what_cannot_die(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    """The process is truly uninterruptible; the command hangs as Docker's does with such a one."""
    start(name, "--tmpfs=/tmp", script=UNINTERRUPTIBLE)
    server = on_host(sshd, docker, name, wrapped(docker, tmp_path, "restart) exec sleep 5;;"))
    before = await server.inspect()
    result = await server.restart(before)
    assert (result.effect, result.hung) == (Effect.UNKNOWN, True)
    async with asyncio.timeout(20):
        while not (now := await server.inspect(closely=True)).hindrance:
            await asyncio.sleep(0.1)
    assert now.same_process(before)
    pid = docker.inspect(name)["State"]["Pid"]
    assert now.hindrance.startswith(f"process {pid} is in uninterruptible sleep (state D)")


async def test_a_restart_that_says_it_could_not_kill_is_told_apart_from_one_that_failed(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    start()
    said = "echo 'tried to kill container, but did not receive an exit event' >&2; exit 1"
    server = on_host(sshd, docker, name, wrapped(docker, tmp_path, f"restart) {said};;"))
    result = await server.restart(await server.inspect())
    assert (result.effect, result.hung) == (Effect.FAILED, True)
    assert (await server.inspect(closely=True)).hindrance == ""
