"""The stronger steps of a ladder on a real host: a whole project, a reboot by a fake program."""

import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from fleet.actions import ComposeRestart, DockerRestart, RebootRestart
from fleet.contracts.host import Effect, HostErrorType, HostStatus
from fleet.ladder import Step
from tests.parts.docker import Docker
from tests.parts.on_host import OnHost
from tests.parts.sshd import Sshd

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
]

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
Start = Callable[..., str]


@pytest.fixture
def name() -> str:
    return f"step-{time.monotonic_ns()}"


@pytest.fixture
def start(docker: Docker, name: str) -> Iterator[Start]:
    """Starts a container of the test's own project, or of none."""

    def run(container: str, service: str = "") -> str:
        labels = {
            "com.docker.compose.project.working_dir": f"/srv/{name}",
            "com.docker.compose.service": service,
            "com.docker.compose.oneoff": "False",
        }
        return docker.run_container(
            container, [sys.executable, "-c", SLEEP], labels=labels if service else {}
        )

    yield run
    for container in docker("ps", "--all", "--quiet", "--filter", f"name={name}").split():
        docker.rm(container)


def on_host(
    sshd: Sshd, docker: Docker, name: str, action: ComposeRestart | RebootRestart
) -> OnHost:
    first = DockerRestart(
        kind="docker", host="h", name=name, stop_timeout=timedelta(seconds=1), cli=docker.cli
    )
    return OnHost.of(sshd.host(), first, ladder=(Step(action=action, host=sshd.host()),))


def project(docker: Docker, name: str, tmp_path: Path) -> ComposeRestart:
    """A stand-in for the Compose plugin, which Debian's docker.io does not bring.

    It restarts the containers of the services that it is given, and notes their names.
    """
    program = tmp_path / "docker"
    real = shlex.join(docker.cli)
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" != compose ]; then exec {real} "$@"; fi\n'
        f'[ "$2 $3 $4 $5" = "--project-directory /srv/{name} restart -t" ] || exit 9\n'
        f'shift 6; echo "$*" > {tmp_path}/services\n'
        f'for each; do {real} restart -t 1 "$({real} ps -q --filter name={name}'
        ' --filter label=com.docker.compose.service="$each")" || exit 1; done\n'
    )
    program.chmod(0o755)
    return ComposeRestart(kind="compose", host="h", directory=f"/srv/{name}", cli=(str(program),))


def started(docker: Docker, container: str) -> str:
    return str(docker.inspect(container)["State"]["StartedAt"])


async def test_a_whole_project_is_restarted_but_for_what_somebody_stopped(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    for container, service in ((name, "vllm"), (f"{name}-api", "api"), (f"{name}-off", "off")):
        start(container, service)
    docker.stop(f"{name}-off")
    server = on_host(sshd, docker, name, project(docker, name, tmp_path))
    own = await server.inspect()
    before = await server.inspect(rung=1, before_restart=True)
    assert (before.status, before.hindrance, before.own_start) == (
        HostStatus.RUNNING,
        "",
        own.started,
    )
    assert own.identity in before.identity.split()
    assert (await server.restart(before, rung=1)).effect is Effect.DONE
    after = await server.inspect(rung=1)
    assert after.same_object(before)
    assert not set(after.started.split()) & set(before.started.split())
    assert (tmp_path / "services").read_text() == "api vllm\n"
    assert docker.inspect(f"{name}-off")["State"]["Status"] == "exited"
    kind, _ = await server.refused(before, rung=1)
    assert kind is HostErrorType.SUPERSEDED


async def test_a_project_that_does_not_hold_the_server_is_a_mistake_and_not_restarted(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    start(name)
    start(f"{name}-api", "api")
    server = on_host(sshd, docker, name, project(docker, name, tmp_path))
    with pytest.raises(ApplicationError, match=f"does not hold container {name}") as caught:
        await server.inspect(rung=1)
    assert caught.value.type == HostErrorType.MISCONFIGURED


def reboot(docker: Docker, name: str, tmp_path: Path) -> RebootRestart:
    """A program that takes the container down and up again a moment later, with a new boot ID."""
    program = tmp_path / "systemctl"
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("boot-1\n")
    real = shlex.join(docker.cli)
    program.write_text(
        f'#!/bin/sh\n[ "$*" = reboot ] || exit 9\n'
        f"(sleep 1; {real} restart -t 0 {name}; echo boot-2 > {boot_id}) >/dev/null 2>&1 &\n"
    )
    program.chmod(0o755)
    return RebootRestart(
        kind="reboot", host="h", cli=(str(program),), boot_id=("cat", str(boot_id))
    )


async def test_a_reboot_is_done_when_the_host_shows_a_new_boot_and_the_server_runs(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    start(name)
    server = on_host(sshd, docker, name, reboot(docker, name, tmp_path))
    before = await server.inspect(rung=1, before_restart=True)
    assert (before.started, before.own_start) == ("boot-1", started(docker, name))
    result = await server.restart(before, rung=1)
    assert (result.effect, result.later) == (Effect.DONE, True)
    assert result.settle_within == timedelta(minutes=10)
    async with asyncio.timeout(30):
        while (after := await server.inspect(rung=1)).same_process(before):
            await asyncio.sleep(0.2)
    assert (after.status, after.started) == (HostStatus.RUNNING, "boot-2")
    assert after.own_start != before.own_start


async def test_a_host_is_not_rebooted_for_a_container_that_somebody_stopped(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    start(name)
    server = on_host(sshd, docker, name, reboot(docker, name, tmp_path))
    before = await server.inspect(rung=1)
    docker.stop(name)
    kind, words = await server.refused(before, rung=1)
    assert (kind, "it is stopped now" in words) == (HostErrorType.SUPERSEDED, True)
    assert (tmp_path / "boot_id").read_text() == "boot-1\n"
