"""Groups, and the wait for GPU memory, on a real Docker; nvidia-smi is a stand-in."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from fleet.actions import ComposeRestart, DockerRestart
from fleet.contracts.host import Effect, HostErrorType, HostStatus
from fleet.gpu_memory import GpuMemory
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
    return f"group-{time.monotonic_ns()}"


@pytest.fixture
def start(docker: Docker, name: str) -> Iterator[Start]:
    def run(container: str, *, network: str = "host", service: str = "") -> str:
        labels = {
            "com.docker.compose.project.working_dir": f"/srv/{name}",
            "com.docker.compose.service": service,
            "com.docker.compose.oneoff": "False",
        }
        return docker.run_container(
            container,
            [sys.executable, "-c", SLEEP],
            network=network,
            labels=labels if service else {},
        )

    yield run
    for container in docker("ps", "--all", "--quiet", "--filter", f"name={name}").split():
        docker.rm(container)


def grouped(
    docker: Docker, own: str, *group: str, memory: GpuMemory | None = None
) -> DockerRestart:
    return DockerRestart(
        kind="docker",
        host="h",
        name=own,
        group=group,
        gpu_memory=memory,
        stop_timeout=timedelta(seconds=1),
        cli=docker.cli,
    )


def moments(docker: Docker, container: str) -> tuple[datetime, datetime]:
    """When it ended last, and when it was started."""
    state = docker.inspect(container)["State"]
    ended, began = (str(state[key])[:26].rstrip("Z") for key in ("FinishedAt", "StartedAt"))
    return datetime.fromisoformat(ended), datetime.fromisoformat(began)


async def test_containers_that_share_a_network_are_restarted_as_one_in_order(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    owner, joined = f"{name}-proxy", f"{name}-vllm"
    start(owner, network="none")
    start(joined, network=f"container:{owner}")
    server = OnHost.of(sshd.host(), grouped(docker, joined, owner, joined))
    before = await server.inspect(before_restart=True)
    assert (before.status, before.running, before.hindrance) == (HostStatus.RUNNING, 2, "")
    assert (await server.stop(before)).effect is Effect.DONE
    down = await server.inspect()
    assert (down.status, down.running) == (HostStatus.STOPPED, 0)
    assert (await server.start(before)).effect is Effect.DONE
    after = await server.inspect()
    assert (after.status, after.running) == (HostStatus.RUNNING, 2)
    assert after.same_object(before)
    (owner_ended, owner_began), (ended, began) = moments(docker, owner), moments(docker, joined)
    assert ended <= owner_ended < owner_began <= began


async def test_a_group_in_the_wrong_order_or_without_one_of_them_is_found_before_the_command(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    owner, joined, third = f"{name}-proxy", f"{name}-vllm", f"{name}-metrics"
    start(owner, network="none")
    start(joined, network=f"container:{owner}")
    wrong = OnHost.of(sshd.host(), grouped(docker, joined, joined, owner))
    assert f"name {owner} before {joined}" in (await wrong.inspect(before_restart=True)).hindrance
    start(third, network=f"container:{owner}")
    lacks = OnHost.of(sshd.host(), grouped(docker, joined, owner, joined))
    assert f"{third} runs in its network" in (await lacks.inspect(before_restart=True)).hindrance


async def test_stop_and_start_may_be_gone_on_with_and_never_hit_another_process(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    first, second = f"{name}-rank0", f"{name}-rank1"
    for container in (first, second):
        start(container)
    server = OnHost.of(sshd.host(), grouped(docker, first, first, second))
    before = await server.inspect()
    docker.stop(second)
    with pytest.raises(ApplicationError) as caught:
        await server.stop(before)
    assert caught.value.type == HostErrorType.SUPERSEDED
    assert docker.inspect(first)["State"]["Running"]
    assert (await server.stop(before, begun=True)).effect is Effect.DONE
    assert (await server.inspect()).running == 0
    for _ in range(2):
        assert (await server.start(before)).effect is Effect.DONE
    after = await server.inspect()
    with pytest.raises(ApplicationError, match="started anew meanwhile"):
        await server.stop(before, begun=True)
    assert await server.inspect() == after


async def test_a_container_that_was_replaced_meanwhile_is_not_started(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    other = f"{name}-b"
    start(name)
    start(other)
    server = OnHost.of(sshd.host(), grouped(docker, name, name, other))
    before = await server.inspect()
    assert (await server.stop(before)).effect is Effect.DONE
    docker.rm(name)
    docker("create", "--name", name, "steady-test", "/bin/true")
    with pytest.raises(ApplicationError, match="replaced by another one"):
        await server.start(before)
    assert docker.inspect(other)["State"]["Status"] == "exited"


async def test_services_of_a_compose_project_are_a_group(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    """By a stand-in for the Compose plugin, which Debian's docker.io does not bring."""
    program, real = tmp_path / "docker", shlex.join(docker.cli)
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" != compose ]; then exec {real} "$@"; fi\n'
        f'[ "$2 $3" = "--project-directory /srv/{name}" ] || exit 9\n'
        f'verb=$4; [ $verb = stop ] && shift 2; echo "$verb $5" >> {tmp_path}/said\n'
        f'exec {real} $verb "$({real} ps -aq --filter label=com.docker.compose.service=$5'
        f' --filter name={name})"\n'
    )
    program.chmod(0o755)
    for service in ("rank0", "rank1"):
        start(f"{name}-{service}", service=service)
    action = ComposeRestart(
        kind="compose",
        host="h",
        directory=f"/srv/{name}",
        service="rank1",
        group=("rank0", "rank1"),
        stop_timeout=timedelta(seconds=1),
        cli=(str(program),),
    )
    server = OnHost.of(sshd.host(), action)
    before = await server.inspect(before_restart=True)
    assert (before.running, before.hindrance) == (2, "")
    assert (await server.stop(before)).effect is Effect.DONE
    assert (await server.start(before)).effect is Effect.DONE
    said = (tmp_path / "said").read_text().splitlines()
    assert said == ["stop rank1", "stop rank0", "start rank0", "start rank1"]
    assert not (await server.inspect()).same_process(before)


def smi(tmp_path: Path) -> tuple[GpuMemory, Path]:
    """A stand-in for nvidia-smi, which prints what stands in a file."""
    program, shown = tmp_path / "nvidia-smi", tmp_path / "apps"
    shown.write_text("")
    program.write_text(
        '#!/bin/sh\ncase "$1" in --query-compute-apps=*) cat '
        f"{shown};; *) echo '0, GPU-aa, 1024';; esac\n"
    )
    program.chmod(0o755)
    return GpuMemory(cli=(str(program),)), shown


async def test_memory_of_the_servers_own_processes_is_told_from_that_of_others(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    memory, shown = smi(tmp_path)
    start(name)
    pid = int(docker.inspect(name)["State"]["Pid"])
    shown.write_text(f"{pid}, 70000, GPU-aa, python3\n1, 500, GPU-aa, other\n")
    server = OnHost.of(sshd.host(), grouped(docker, name, memory=memory))
    before = await server.inspect(before_restart=True)
    assert [(each.pid, each.mib) for each in before.gpu] == [(pid, 70000)]
    assert (await server.stop(before)).effect is Effect.DONE
    held = (await server.gpu([pid])).holders
    assert [(each.pid, each.name) for each in held] == [(pid, "python3")]
    shown.write_text("1, 500, GPU-aa, other\n")
    report = await server.gpu([pid])
    assert (report.holders, report.lacking) == ([], [])
    assert (await server.start(before)).effect is Effect.DONE


async def test_memory_that_is_short_names_whoever_holds_some(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    memory, shown = smi(tmp_path)
    shown.write_text("1, 500, GPU-aa, other\n")
    start(name)
    wants = memory.model_copy(update={"free": "2GiB"})
    report = await OnHost.of(sshd.host(), grouped(docker, name, memory=wants)).gpu([])
    assert report.lacking == ["GPU 0 has 1024 MiB free, 2048 wanted"]
    assert [each.pid for each in report.holders] == [1]


async def test_a_host_whose_gpus_cannot_be_asked_is_found_before_the_stop(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    start(name)
    action = grouped(docker, name, memory=GpuMemory(cli=("/nonexistent/nvidia-smi",)))
    with pytest.raises(ApplicationError) as caught:
        await OnHost.of(sshd.host(), action).inspect(before_restart=True)
    assert caught.value.type == HostErrorType.MISCONFIGURED
    assert docker.inspect(name)["State"]["Running"]
