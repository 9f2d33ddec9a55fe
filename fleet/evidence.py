"""What is asked of a host before a restart destroys it, in order of worth, and what it means.

A container is never asked for its environment, where secrets lie.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet.actions import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Host,
    RebootRestart,
    Restart,
    SystemdRestart,
)
from fleet.any_source import Source
from fleet.contracts.host import HostState, HostStatus
from fleet.engine_sources import EngineSource
from fleet.host_replies import Reply, ReplyError, command_state, container_time, unit_state
from fleet.hosts import Argv, unit_argv
from fleet.secret_refs import SecretRef
from fleet.sources import StatusSource

LOG_LINES = "2000"

#: Where the start of a server's process is not known, so old a kernel error may be to matter.
RECENT = timedelta(hours=2)

#: Ends what is left of a command's process group when the command has ended or its time is up.
_BOUND = (
    'k=$1 n=$2; shift 2; timeout -k "$k" "$n" "$@" & p=$!; wait "$p"; s=$?;'
    ' kill -s KILL -- "-$p" 2>/dev/null; exit "$s"'
)
#: The part of its time for which a command was asked to end, and not yet killed: a debugger has to
#: let its process go.
_GRACE = 0.1

_CONTAINER = (
    '{"id":"{{.Id}}","image":{{json .Image}},"restarts":{{json .RestartCount}}'
    ',"state":{{json .State}},"path":{{json .Path}},"args":{{json .Args}}'
    ',"mounts":{{json .Mounts}},"host":{{json .HostConfig}}}'
)
_PROCESSES = ("-eo", "pid,ppid,stat,etime,rss,wchan:24,args")
_PODMAN = ("hpid", "ppid", "state", "etime", "args")


@dataclass(frozen=True)
class Look:
    """A command, and the file that its output goes to."""

    name: str
    argv: Argv


@dataclass(frozen=True)
class Subject:
    """What the first look says of the process that a bundle is about; none is not known.

    ``devices`` are the GPUs that the container was given, as they were named.
    """

    process: HostState | None = None
    pid: int | None = None
    devices: tuple[str, ...] | None = None

    def since(self, now: datetime) -> datetime:
        """The moment from which on the kernel's errors may have to do with it."""
        started = self.process.started_at if self.process is not None else None
        return started if started is not None else now.astimezone(UTC) - RECENT


def bounded(argv: Argv, seconds: float) -> Argv:
    """The command, ended with its process group by the host itself ``seconds`` after its start."""
    grace = seconds * _GRACE
    return ("sh", "-c", _BOUND, "sh", f"{grace:.3f}", f"{seconds - grace:.3f}", *argv)


def first_look(restart: Restart, container: str | None) -> Look | None:
    """The look that says what ``Subject`` holds. ``container`` is a Compose service's."""
    match restart:
        case DockerRestart():
            return Look("container.json", _inspected(restart.program, restart.name))
        case ComposeRestart():
            return Look("container.json", _inspected(restart.cli, container)) if container else None
        case SystemdRestart():
            return Look("unit.txt", unit_argv(restart))
        case CommandRestart():
            return Look("identity.txt", restart.identity) if restart.identity else None
        case RebootRestart():
            return None


def log_look(restart: Restart, container: str | None) -> Look | None:
    match restart:
        case DockerRestart():
            return Look("logs.txt", _logs(restart.program, restart.name))
        case ComposeRestart():
            return Look("logs.txt", _logs(restart.cli, container)) if container else None
        case SystemdRestart():
            journal = (*restart.cli[:-1], "journalctl", *(("--user",) if restart.user else ()))
            lines = (f"--unit={restart.unit}", f"--lines={LOG_LINES}")
            return Look("journal.txt", (*journal, *lines, "--no-pager", "--output=short-iso"))
        case CommandRestart() | RebootRestart():
            return None


def kernel_looks(host: Host, since: datetime) -> tuple[Argv, ...]:
    """Ways to the kernel's log, each tried where the one before shows nothing with a time.

    The journal is first: it keeps what the kernel's own buffer has lost already.
    """
    if host.kernel_log:
        return (host.kernel_log,)
    journal = ("journalctl", "--dmesg", "--no-pager", "--output=short-iso-precise")
    return (
        (*journal, f"--since=@{int(since.timestamp()) - 600}"),
        ("dmesg", "--time-format", "iso"),
    )


#: Whether a GPU works; then who uses it, for a person's eyes.
GPU_LOOK = Look("nvidia-smi-q.txt", ("nvidia-smi", "-q"))
GPU_TABLE = Look("nvidia-smi.txt", ("nvidia-smi",))


def last_looks(
    restart: Restart, container: str | None, host: Host, subject: Subject
) -> Iterator[Look]:
    """What is worth the time that is left. A stack dump may stop the process, so it is the last."""
    match restart:
        case DockerRestart(kind="podman"):
            yield Look("processes.txt", (*restart.program, "top", restart.name, *_PODMAN))
        case DockerRestart():
            yield Look("processes.txt", (*restart.program, "top", restart.name, *_PROCESSES))
        case ComposeRestart() if container is not None:
            yield Look("processes.txt", (*restart.cli, "top", container, *_PROCESSES))
        case SystemdRestart():
            cli = (*restart.cli, *(("--user",) if restart.user else ()))
            status = ("status", "--no-pager", "--full", "--lines=0", "--", restart.unit)
            yield Look("processes.txt", (*cli, *status))
    if host.stack_dump and subject.pid is not None:
        yield Look("stack.txt", (*host.stack_dump, str(subject.pid)))


def subject(restart: Restart, reply: Reply) -> Subject:
    """Understand the answer to ``first_look``; what can't be understood is not known."""
    match restart:
        case DockerRestart() | ComposeRestart():
            return _container(reply)
        case SystemdRestart():
            try:
                process = unit_state(reply)
            except ReplyError:
                return Subject()
            shown = dict(line.split("=", 1) for line in reply.out.splitlines() if "=" in line)
            return Subject(process, _pid(shown.get("MainPID")))
        case CommandRestart():
            return Subject(command_state(reply))
        case RebootRestart():
            return Subject()


def pages(source: Source) -> dict[str, tuple[str, SecretRef | None]]:
    """The pages of a server that are kept: the file's name, its URL, and what opens it.

    None of them makes an engine compute anything.
    """
    if isinstance(source, StatusSource):
        return {"status-page.txt": (source.url, source.token)}
    if isinstance(source, EngineSource):
        paths = {
            "engine-metrics.txt": "/metrics",
            "engine-health.txt": "/health",
            "engine-version.txt": "/version",
            "engine-models.txt": "/v1/models",
        }
        return {name: (f"{source.url}{path}", source.api_key) for name, path in paths.items()}
    return {}


def _inspected(program: Argv, container: str) -> Argv:
    return (*program, "inspect", "--type", "container", "--format", _CONTAINER, container)


def _logs(program: Argv, container: str) -> Argv:
    return (*program, "logs", "--tail", LOG_LINES, "--timestamps", container)


def _container(reply: Reply) -> Subject:
    try:
        shown = json.loads(reply.out) if reply.status == 0 else None
    except ValueError:
        shown = None
    if not isinstance(shown, dict):
        return Subject()
    state = _table(shown.get("state"))
    started = str(state.get("StartedAt") or "")
    process = HostState(
        status=HostStatus.RUNNING if state.get("Running") is True else HostStatus.UNKNOWN,
        identity=str(shown.get("id") or ""),
        started=started,
        started_at=container_time(started),
    )
    requests = _table(shown.get("host")).get("DeviceRequests")
    return Subject(process, _pid(state.get("Pid")), _devices(requests))


def _devices(requests: object) -> tuple[str, ...] | None:
    """The GPUs that a container was given one by one; none where it was given all, or a number."""
    found: list[str] = []
    for request in requests if isinstance(requests, list) else []:
        listed = _table(request).get("DeviceIDs")
        if not isinstance(listed, list) or not listed or "all" in listed:
            return None
        found += [str(device) for device in listed]
    return tuple(found) or None


def _pid(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and int(text) > 1 else None


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
