"""Understands what a host answers when it is asked for the process behind a server."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from fleet.contracts.host import HostErrorType, HostState, HostStatus
from fleet.redaction import redact

#: ``HostState.identity`` of a server that is restarted by the operator's own command.
COMMAND_IDENTITY = "command"
#: The same of a host that is rebooted.
BOOT_IDENTITY = "boot"

_CONTAINER = {
    "running": HostStatus.RUNNING,
    "paused": HostStatus.PAUSED,
    "restarting": HostStatus.RESTARTING,
    "stopping": HostStatus.RESTARTING,
    "created": HostStatus.STOPPED,
    "configured": HostStatus.STOPPED,
    "initialized": HostStatus.STOPPED,
    "exited": HostStatus.STOPPED,
    "stopped": HostStatus.STOPPED,
    "dead": HostStatus.STOPPED,
    "removing": HostStatus.STOPPED,
}
_UNIT = {
    "active": HostStatus.RUNNING,
    "reloading": HostStatus.RUNNING,
    "refreshing": HostStatus.RUNNING,
    "inactive": HostStatus.STOPPED,
    "failed": HostStatus.STOPPED,
    "maintenance": HostStatus.STOPPED,
    "deactivating": HostStatus.RESTARTING,
}
_NO_CONTAINER = re.compile(r"no such (container|object)|no container with", re.IGNORECASE)
_DENIED = re.compile(
    r"permission denied|password is required|terminal is required|access denied"
    r"|interactive authentication required|not allowed to execute|not in the sudoers",
    re.IGNORECASE,
)
_UNKILLABLE = re.compile(
    r"did not receive an exit event|cannot kill container|could not kill|given PID did not die",
    re.IGNORECASE,
)
_NOT_SYSTEMD = re.compile(r"not been booted with systemd", re.IGNORECASE)


@dataclass(frozen=True)
class Reply:
    """What a command printed, and its exit status; none where it was killed or cut off."""

    status: int | None
    out: str
    err: str = ""

    def tail(self, limit: int = 300) -> str:
        """The end of what it complained, fit for a person's eyes."""
        return redact(" ".join((self.err.strip() or self.out.strip()).split()))[-limit:]


class ReplyError(Exception):
    """The host answered, but not with what was asked for; ``kind`` says what that means."""

    def __init__(self, kind: HostErrorType, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def container_state(reply: Reply) -> HostState:
    """Read the answer to ``container_argv``.

    ``identity`` is the container's full ID and ``started`` its ``StartedAt``, both verbatim.

    Raises:
        ReplyError: the container's state is not known.
    """
    if reply.status != 0 and _NO_CONTAINER.search(reply.err):
        return HostState(status=HostStatus.GONE, detail="there is no such container")
    shown = _json_object(succeeded(reply, "the container engine"))
    identity, word, started = (str(shown.get(key) or "") for key in ("id", "status", "started"))
    if not identity or not word:
        _unreadable("the container engine", reply)
    return HostState(
        status=_CONTAINER.get(word, HostStatus.UNKNOWN),
        identity=identity,
        started=started,
        started_at=container_time(started),
        detail=f"{word}, exit code {shown.get('exit')}, {shown.get('restarts')} automatic restarts",
    )


def service_container(reply: Reply) -> str | None:
    """Read the answer to ``find_argv``: the one container of a Compose service.

    Raises:
        ReplyError: there are several, so that one server is not one process, or it is not known.
    """
    lines = [line.split() for line in succeeded(reply, "the container engine").splitlines()]
    found = [line[0] for line in lines if line and line[1:] != ["True"]]
    if len(found) > 1:
        raise ReplyError(
            HostErrorType.MISCONFIGURED,
            f"the service has {len(found)} containers: a server is one container, so scale the"
            ' service to one or name the container with kind = "docker"',
        )
    return found[0] if found else None


@dataclass(frozen=True)
class Project:
    """What of a Compose project runs: the containers' IDs, and the services that they are of."""

    containers: tuple[str, ...]
    services: tuple[str, ...]


def project(reply: Reply) -> Project:
    """Read the answer to ``project_argv``. A one-off container is none of the project's.

    Raises:
        ReplyError: it is not known, or a restart of a service would start what somebody stopped.
    """
    lines = [line.split() for line in succeeded(reply, "the container engine").splitlines()]
    rows = [line for line in lines if len(line) >= 3 and line[3:] != ["True"]]
    runs = {row[2] for row in rows if row[1] == "running"}
    mixed = sorted({row[2] for row in rows if row[1] != "running"} & runs)
    if mixed:
        raise ReplyError(
            HostErrorType.MISCONFIGURED,
            f"of the service {mixed[0]} some containers run and some don't: a restart would start"
            " what somebody stopped",
        )
    ids = sorted(row[0] for row in rows if row[1] == "running")
    return Project(tuple(ids), tuple(sorted(runs)))


def project_state(reply: Reply) -> HostState:
    """Read the answer to ``container_argv`` for all containers of a project that run.

    ``identity`` is all their IDs, ``started`` all their starts, in the order in which they were
    asked for.

    Raises:
        ReplyError: the state of one of them is not known.
    """
    shown = succeeded(reply, "the container engine").splitlines()
    states = [container_state(Reply(0, line)) for line in shown if line.strip()]
    if not states:
        return HostState(status=HostStatus.GONE, detail="nothing of the project runs")
    odd = [state for state in states if state.status is not HostStatus.RUNNING]
    return HostState(
        status=odd[0].status if odd else HostStatus.RUNNING,
        identity=" ".join(state.identity for state in states),
        started=" ".join(state.started for state in states),
        detail=f"{len(states)} containers, {len(odd)} of them not running",
    )


def unit_state(reply: Reply) -> HostState:
    """Read the answer to ``unit_argv``.

    ``identity`` is the unit's name; ``started`` its invocation ID, which is another after every
    start, or before systemd 232 the PID with its start time.

    Raises:
        ReplyError: the unit's state is not known.
    """
    text = succeeded(reply, "systemd")
    shown = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if "LoadState" not in shown or "ActiveState" not in shown:
        _unreadable("systemd", reply)
    if shown["LoadState"] == "not-found":
        return HostState(status=HostStatus.GONE, detail="there is no such unit")
    began = shown.get("ExecMainStartTimestamp", "")
    return HostState(
        status=_unit_status(shown),
        identity=shown.get("Id", ""),
        started=shown.get("InvocationID") or f"{shown.get('MainPID', '')} {began}".strip(),
        started_at=unit_time(began),
        detail=f"{shown['ActiveState']} ({shown.get('SubState', '')}), {shown['LoadState']}"[:500],
    )


def command_state(reply: Reply, identity: str = COMMAND_IDENTITY) -> HostState:
    """Read what an ``identity`` command printed: its first line is ``started``."""
    line = next((line.strip() for line in reply.out.splitlines() if line.strip()), "")
    if reply.status != 0 or not line:
        ending = f"status {reply.status}: {reply.tail()}" if reply.status else "nothing printed"
        return HostState(status=HostStatus.UNKNOWN, detail=f"identity: {ending}"[:500])
    return HostState(status=HostStatus.RUNNING, identity=identity, started=redact(line)[:200])


def pids(reply: Reply) -> list[int]:
    """Read numbers of processes, one a line under a heading or none."""
    return [int(line) for line in map(str.strip, reply.out.splitlines()) if line.isdecimal()]


def why_alive(stats: Reply) -> str:
    """Why processes outlive their SIGKILL, from their ``/proc/PID/stat``; empty where none does.

    A program's name stands in brackets, and may hold brackets and spaces itself.
    """
    for line in stats.out.splitlines():
        words = line.rpartition(")")[2].split()
        if words[:1] == ["D"] and line[:1].isdecimal():
            return (
                f"process {line.split(maxsplit=1)[0]} is in uninterruptible sleep (state D): it"
                " waits for a driver or a disk, and no signal reaches it. Mostly only a reboot of"
                " the host ends it"
            )
    return ""


def could_not_be_killed(reply: Reply) -> bool:
    """Whether a command says itself that the process outlived its SIGKILL."""
    return bool(_UNKILLABLE.search(reply.err))


def container_time(text: str) -> datetime | None:
    """RFC 3339 with nanoseconds, cut to microseconds; the year 1 stands for *never*."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None or moment.year == 1 else moment


def unit_time(text: str) -> datetime | None:
    """Read ``Mon 2026-11-30 09:12:27 UTC``; other zones have ambiguous names, and give none."""
    try:
        return datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    except ValueError:
        return None


def _unit_status(shown: dict[str, str]) -> HostStatus:
    if shown.get("FreezerState") in {"frozen", "freezing"}:
        return HostStatus.PAUSED
    if shown["ActiveState"] == "activating":
        # A unit that notifies is "activating" for as long as its process loads.
        started = shown.get("MainPID", "0") != "0" and shown.get("SubState") != "auto-restart"
        return HostStatus.RUNNING if started else HostStatus.RESTARTING
    return _UNIT.get(shown["ActiveState"], HostStatus.UNKNOWN)


def succeeded(reply: Reply, who: str) -> str:
    """What the command printed.

    Raises:
        ReplyError: it did not end well; the kind says whether the user or the host is in the way.
    """
    if reply.status == 0:
        return reply.out
    if reply.status == 127 or "command not found" in reply.err:
        raise ReplyError(HostErrorType.MISCONFIGURED, f"the host lacks the program: {reply.tail()}")
    if _DENIED.search(reply.err):
        raise ReplyError(HostErrorType.DENIED, f"{who} refuses this user: {reply.tail()}")
    if _NOT_SYSTEMD.search(reply.err):
        raise ReplyError(HostErrorType.MISCONFIGURED, "the host does not run systemd")
    ending = "was cut off" if reply.status is None else f"ended with status {reply.status}"
    raise ReplyError(HostErrorType.UNREACHABLE, f"{who} does not answer ({ending}): {reply.tail()}")


def _json_object(text: str) -> dict[str, Any]:
    try:
        shown = json.loads(text)
    except ValueError:
        shown = None
    return shown if isinstance(shown, dict) else {}


def _unreadable(who: str, reply: Reply) -> NoReturn:
    raise ReplyError(
        HostErrorType.MISCONFIGURED,
        f"the answer of {who} can't be understood: {reply.tail() or 'it is empty'}",
    )
