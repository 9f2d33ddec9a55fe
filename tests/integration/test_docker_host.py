"""The host's activities on real containers, reached over a real SSH server."""

import asyncio
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from fleet.actions import ComposeRestart, DockerRestart
from fleet.contracts.host import Effect, HostErrorType, HostStatus
from tests.parts.docker import Docker
from tests.parts.on_host import OnHost
from tests.parts.sshd import Sshd
from tests.parts.wire import wire_to

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
]

SECRET = "hf_thisIsAPlantedSecret1234567890"
SLEEP = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('worker is up', flush=True)
print('using HF_TOKEN=%s', flush=True)
print('a complaint', file=sys.stderr, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
time.sleep(600)
"""

Start = Callable[..., str]


@pytest.fixture
def name() -> str:
    return f"gpu-{time.monotonic_ns()}"


@pytest.fixture
def start(docker: Docker, name: str) -> Iterator[Start]:
    """Starts the test's container, waits until it is up, and removes it at the end."""

    def run(
        script: str = SLEEP % SECRET,
        *,
        labels: dict[str, str] | None = None,
        container: str | None = None,
    ) -> str:
        container = container or name
        argv = [sys.executable, "-c", script]
        identity = docker.run_container(container, argv, labels=labels, env={"HF_TOKEN": SECRET})
        deadline = time.monotonic() + 30
        while not docker("logs", container) and time.monotonic() < deadline:
            time.sleep(0.05)
        return identity

    yield run
    for container in docker("ps", "--all", "--quiet", "--filter", f"name={name}").split():
        docker.rm(container)


@pytest.fixture
def server(sshd: Sshd, docker: Docker, name: str, state_dir: Path) -> OnHost:
    return OnHost.of(sshd.host(), action(docker, name), state_dir)


def action(docker: Docker, name: str, stop: timedelta = timedelta(seconds=2)) -> DockerRestart:
    return DockerRestart(kind="docker", host="h", name=name, stop_timeout=stop, cli=docker.cli)


def started(docker: Docker, name: str) -> str:
    return str(docker.inspect(name)["State"]["StartedAt"])


async def test_a_running_container_is_known_by_its_id_and_start(
    server: OnHost, start: Start, docker: Docker, name: str
) -> None:
    identity = start()
    state = await server.inspect()
    assert (state.status, state.identity) == (HostStatus.RUNNING, identity)
    assert state.started == started(docker, name)
    assert state.started_at is not None
    assert abs(datetime.now(UTC) - state.started_at) < timedelta(minutes=5)


async def test_a_paused_stopped_created_or_missing_container_is_told_apart(
    server: OnHost, start: Start, docker: Docker, name: str
) -> None:
    assert (await server.inspect()).status is HostStatus.GONE
    identity = start()
    docker.pause(name)
    assert (await server.inspect()).status is HostStatus.PAUSED
    docker("unpause", name)
    docker.stop(name)
    stopped = await server.inspect()
    assert (stopped.status, stopped.identity) == (HostStatus.STOPPED, identity)
    docker.rm(name)
    docker("create", "--name", name, "steady-test", "/bin/true")
    created = await server.inspect()
    assert (created.status, created.started_at) == (HostStatus.STOPPED, None)


async def test_what_the_host_shows_holds_no_secret_of_the_container(
    server: OnHost, start: Start
) -> None:
    start()
    assert SECRET not in (await server.inspect()).model_dump_json()


async def test_a_restart_changes_the_start_and_not_the_container(
    server: OnHost, start: Start, docker: Docker, name: str
) -> None:
    identity = start()
    before = await server.inspect()
    result = await server.restart(before)
    after = await server.inspect()
    assert result.effect is Effect.DONE
    assert after.same_object(before)
    assert not after.same_process(before)
    assert (after.status, after.identity) == (HostStatus.RUNNING, identity)
    assert docker("logs", name).count("worker is up") == 2


async def test_one_decision_restarts_once_however_often_it_is_carried_out(
    server: OnHost, start: Start, docker: Docker, name: str
) -> None:
    start()
    before = await server.inspect()
    await server.restart(before)
    once = started(docker, name)
    for _ in range(3):
        kind, _ = await server.refused(before)
        assert kind is HostErrorType.SUPERSEDED
    assert started(docker, name) == once


async def test_a_second_attempt_does_nothing_and_claims_nothing(
    server: OnHost, start: Start, docker: Docker, name: str
) -> None:
    start()
    before = await server.inspect()
    server.attempt(2)
    result = await server.restart(before)
    assert result.effect is Effect.UNKNOWN
    assert started(docker, name) == before.started


async def test_a_container_that_was_replaced_is_left_alone(
    server: OnHost, start: Start, docker: Docker, name: str
) -> None:
    start()
    before = await server.inspect()
    docker.rm(name)
    start()
    replaced = started(docker, name)
    kind, words = await server.refused(before)
    assert (kind, words) == (HostErrorType.SUPERSEDED, "it was replaced by another one")
    assert started(docker, name) == replaced


async def test_a_container_that_somebody_restarted_is_left_alone(
    server: OnHost, start: Start, docker: Docker, name: str
) -> None:
    start()
    before = await server.inspect()
    docker("restart", "-t", "1", name)
    by_hand = started(docker, name)
    kind, words = await server.refused(before)
    assert kind is HostErrorType.SUPERSEDED
    assert "started anew" in words
    assert started(docker, name) == by_hand


@pytest.mark.parametrize("by_hand", ["stop", "pause", "rm"])
async def test_a_container_that_somebody_stopped_paused_or_removed_is_never_started_by_us(
    server: OnHost, start: Start, docker: Docker, name: str, by_hand: str
) -> None:
    start()
    before = await server.inspect()
    getattr(docker, by_hand)(name)
    word = {"stop": "stopped", "pause": "paused", "rm": "gone"}[by_hand]
    kind, words = await server.refused(before)
    assert kind is HostErrorType.SUPERSEDED
    assert f"it is {word} now" in words
    assert (await server.inspect()).status is HostStatus(word)


async def test_a_container_that_ignores_the_request_to_stop_is_restarted_after_its_time(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    start(STUBBORN)
    server = OnHost.of(sshd.host(), action(docker, name, timedelta(seconds=3)))
    before = await server.inspect()
    asked = time.monotonic()
    result = await server.restart(before)
    assert result.effect is Effect.DONE
    assert time.monotonic() - asked >= 2.5
    assert result.settle_within > timedelta(seconds=3)
    assert not (await server.inspect()).same_process(before)


async def test_a_connection_lost_during_the_restart_is_unknown_and_the_restart_happens(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    start(STUBBORN)
    async with wire_to(sshd.port) as wire:
        server = OnHost.of(sshd.host_at(wire.port), action(docker, name, timedelta(seconds=3)))
        before = await server.inspect()
        restarting = asyncio.create_task(server.restart(before))
        await restart_runs(name)
        wire.cut()
        result = await restarting
    assert result.effect is Effect.UNKNOWN
    assert "lost" in result.detail
    await starts_anew(docker, name, before.started)


async def test_a_worker_that_stops_during_the_restart_says_unknown(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    start(STUBBORN)
    server = OnHost.of(sshd.host(), action(docker, name, timedelta(seconds=3)))
    before = await server.inspect()
    restarting = asyncio.create_task(server.restart(before))
    await restart_runs(name)
    server.environment.cancel()
    result = await restarting
    assert result.effect is Effect.UNKNOWN
    await starts_anew(docker, name, before.started)


async def test_a_worker_that_stops_before_the_command_proves_that_nothing_was_sent(
    sshd: Sshd, docker: Docker, start: Start, name: str
) -> None:
    start()
    async with wire_to(sshd.port) as wire:
        server = OnHost.of(sshd.host_at(wire.port), action(docker, name))
        before = await server.inspect()
        wire.freeze()
        restarting = asyncio.create_task(server.refused(before))
        await asyncio.sleep(0.5)
        server.environment.cancel()
        kind, words = await restarting
    assert kind is HostErrorType.SUPERSEDED
    assert "before the command left" in words
    assert started(docker, name) == before.started


async def test_a_restart_that_fails_on_the_host_says_why(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    """The program in front of docker lets every look pass and refuses the restart."""
    start()
    grumpy = tmp_path / "grumpy docker"
    grumpy.write_text(
        '#!/bin/sh\ncase " $* " in *" restart "*)'
        f' echo "no more room, HF_TOKEN={SECRET}" >&2; exit 7;; esac\nexec "$@"\n'
    )
    grumpy.chmod(0o755)
    refusing = action(docker, name).model_copy(update={"cli": (str(grumpy), *docker.cli)})
    server = OnHost.of(sshd.host(), refusing)
    before = await server.inspect()
    result = await server.restart(before)
    assert result.effect is Effect.FAILED
    assert "status 7: no more room" in result.detail
    assert SECRET not in result.detail
    assert started(docker, name) == before.started


async def test_a_daemon_that_does_not_answer_is_no_container_that_is_gone(
    sshd: Sshd, docker: Docker, name: str, tmp_path: Path
) -> None:
    nowhere = action(docker, name).model_copy(
        update={"cli": (docker.client, "-H", f"unix://{tmp_path}/no.sock")}
    )
    server = OnHost.of(sshd.host(), nowhere)
    with pytest.raises(ApplicationError) as caught:
        await server.inspect()
    assert caught.value.type == HostErrorType.UNREACHABLE
    assert not caught.value.non_retryable


async def test_evidence_has_the_logs_and_the_state_and_no_secret(
    server: OnHost, start: Start, state_dir: Path
) -> None:
    identity = start()
    evidence = await server.evidence()
    assert evidence.path is not None
    folder = Path(evidence.path)
    assert folder.is_relative_to(state_dir / "evidence" / "gpu-1@20261130T091227.123Z")
    logs = (folder / "logs.txt").read_text()
    assert "worker is up" in logs
    assert "a complaint" in logs
    assert re.search(r"^\d{4}-\d\d-\d\dT", logs)
    assert identity in (folder / "container.json").read_text()
    for file in folder.iterdir():
        assert SECRET not in file.read_text()
    assert evidence.size == sum(file.stat().st_size for file in folder.iterdir())
    assert SECRET not in evidence.model_dump_json()


async def test_secrets_among_the_arguments_of_a_container_are_in_no_file(
    server: OnHost, docker: Docker, start: Start, name: str
) -> None:
    argv = [
        sys.executable,
        "-c",
        SLEEP,
        "--api-key",
        SECRET,
        f"--hf-token={SECRET}",
        "--port",
        "80",
    ]
    docker.run_container(name, argv, env={"HF_TOKEN": SECRET, "PLAIN": "xyzzy-plugh"})
    evidence = await server.evidence()
    assert evidence.path is not None
    kept = {file.name: file.read_text() for file in Path(evidence.path).iterdir()}
    assert "--port" in kept["container.json"]
    assert "--port 80" in kept["processes.txt"]
    assert not any(planted in text for text in kept.values() for planted in (SECRET, "xyzzy"))


async def test_the_stack_of_a_containers_main_process_is_dumped(
    sshd: Sshd, docker: Docker, start: Start, name: str, state_dir: Path
) -> None:
    identity = start()
    host = sshd.host(stack_dump=["sh", "-c", "cat /proc/$0/cgroup /proc/$0/status"])
    evidence = await OnHost.of(host, action(docker, name), state_dir).evidence()
    assert evidence.path is not None
    stack = (Path(evidence.path) / "stack.txt").read_text()
    assert "Name:\tpython" in stack
    assert identity in (Path(evidence.path) / "container.json").read_text()
    assert evidence.process is not None
    assert evidence.process.identity == identity


async def test_only_the_worker_may_read_the_evidence(
    server: OnHost, start: Start, state_dir: Path
) -> None:
    start()
    evidence = await server.evidence()
    assert evidence.path is not None
    folder = Path(evidence.path)
    for place in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a GPU")
async def test_what_the_host_lacks_is_recorded(server: OnHost, start: Start) -> None:
    start()
    missing = (await server.evidence()).missing
    assert "nvidia-smi-q.txt: the host has no nvidia-smi" in missing
    assert {line.split(":")[0] for line in missing} <= {"nvidia-smi-q.txt", "kernel.txt"}


async def test_evidence_of_a_container_that_is_gone_is_listed_as_missing(server: OnHost) -> None:
    evidence = await server.evidence()
    assert {line.split(":")[0] for line in evidence.missing} >= {"container.json", "logs.txt"}


async def test_logs_beyond_a_mebibyte_keep_their_end(
    server: OnHost, start: Start, docker: Docker, name: str
) -> None:
    start("for n in range(2000): print(n, 'x' * 2000)\nprint('the end', flush=True)")
    await asyncio.to_thread(docker, "wait", name)
    evidence = await server.evidence()
    assert evidence.path is not None
    logs = (Path(evidence.path) / "logs.txt").read_bytes()
    assert len(logs) <= 1024 * 1024
    assert logs.rstrip().endswith(b"the end")
    assert "logs.txt: only the last 1024 KiB were kept" in evidence.missing


def compose(docker: Docker, tmp_path: Path) -> ComposeRestart:
    """A stand-in for the Compose plugin, which Debian's docker.io does not bring.

    It checks what it is given, and restarts the service's container with the real docker.
    """
    program = tmp_path / "docker with compose"
    real = " ".join(docker.cli)
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" != compose ]; then exec {real} "$@"; fi\n'
        '[ "$2" = --project-directory ] && [ "$3" = "/srv/my models" ] || exit 9\n'
        '[ "$4" = restart ] && [ "$5" = -t ] || exit 9\n'
        f'exec {real} restart -t "$6" "$({real} ps -q --filter label=com.docker.compose.service=$7'
        ' --filter label=com.docker.compose.oneoff=False)"\n'
    )
    program.chmod(0o755)
    return ComposeRestart(
        kind="compose",
        host="h",
        directory="/srv/my models",
        service="vllm",
        stop_timeout=timedelta(seconds=1),
        cli=(str(program),),
    )


def labels(*, oneoff: bool = False) -> dict[str, str]:
    return {
        "com.docker.compose.project.working_dir": "/srv/my models",
        "com.docker.compose.service": "vllm",
        "com.docker.compose.oneoff": str(oneoff),
    }


async def test_a_compose_service_is_found_restarted_and_documented_by_its_container(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    server = OnHost.of(sshd.host(), compose(docker, tmp_path), tmp_path / "state")
    assert (await server.inspect()).status is HostStatus.GONE
    identity = start(labels=labels())
    start(labels=labels(oneoff=True), container=f"{name}-run")
    before = await server.inspect()
    assert (before.status, before.identity) == (HostStatus.RUNNING, identity)
    assert (await server.restart(before)).effect is Effect.DONE
    after = await server.inspect()
    assert after.same_object(before)
    assert not after.same_process(before)
    evidence = await server.evidence()
    assert evidence.path is not None
    assert "worker is up" in (Path(evidence.path) / "logs.txt").read_text()


async def test_a_scaled_compose_service_is_refused(
    sshd: Sshd, docker: Docker, start: Start, name: str, tmp_path: Path
) -> None:
    server = OnHost.of(sshd.host(), compose(docker, tmp_path))
    start(labels=labels())
    before = await server.inspect()
    start(labels=labels(), container=f"{name}-2")
    kind, words = await server.refused(before)
    assert kind is HostErrorType.MISCONFIGURED
    assert "2 containers" in words


async def restart_runs(name: str, within: float = 20) -> None:
    """Wait until a `docker restart` of the container runs on the machine."""
    async with asyncio.timeout(within):
        while not await asyncio.to_thread(_restart_runs, name):
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)


def _restart_runs(name: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if name.encode() in words and b"restart" in words:
            return True
    return False


async def starts_anew(docker: Docker, name: str, before: str, within: float = 30) -> None:
    async with asyncio.timeout(within):
        while await asyncio.to_thread(started, docker, name) == before:
            await asyncio.sleep(0.1)
