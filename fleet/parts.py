"""A restart in parts: what belongs together is stopped in the reverse order and started in order.

So it is for a group (ranks of one engine, containers that share a network), and wherever something
has to be waited for between the stop and the start. Each member is an action of its own.
"""

import shlex
from collections.abc import Sequence
from datetime import timedelta

from fleet.actions import ComposeRestart, DockerRestart, Restart, SystemdRestart
from fleet.contracts.host import HostState, HostStatus
from fleet.gpu_memory import GpuMemory
from fleet.hosts import Argv, compose_argv, seconds, systemctl_argv

#: Between the members' words in the state of all.
_BETWEEN = "\n"
_ALONE = {"group": (), "gpu_memory": None}


def in_parts(action: Restart) -> bool:
    """Whether it is stopped and started by commands of their own."""
    return len(members(action)) > 1 or gpu_memory(action) is not None


def gpu_memory(action: Restart) -> GpuMemory | None:
    """What is waited for between the stop and the start, where anything is."""
    match action:
        case DockerRestart() | ComposeRestart() | SystemdRestart():
            return action.gpu_memory
    return None


def members(action: Restart) -> list[Restart]:
    """What is restarted together, in the order of the start; each as an action alone."""
    match action:
        case DockerRestart(group=names) if names:
            return [action.model_copy(update={**_ALONE, "name": name}) for name in names]
        case ComposeRestart(group=names) if names:
            return [action.model_copy(update={**_ALONE, "service": name}) for name in names]
        case SystemdRestart(group=names) if names:
            return [action.model_copy(update={**_ALONE, "unit": name}) for name in names]
        case DockerRestart() | ComposeRestart() | SystemdRestart():
            return [action.model_copy(update=_ALONE)]
    return [action]


def stop_time(action: Restart) -> timedelta:
    """How long all members may take to stop, one after the other."""
    return action.stop_timeout * len(members(action))


def stop_argv(member: Restart) -> Argv:
    match member:
        case DockerRestart():
            return (*member.program, "stop", "-t", seconds(member), member.name)
        case ComposeRestart():
            return compose_argv(member, "stop", "-t", seconds(member))
        case SystemdRestart():
            return systemctl_argv(member, "stop")
    raise ValueError(f"{member.kind} can't be stopped and started in parts")


def start_argv(member: Restart) -> Argv:
    """Starts what is stopped; what runs already is left as it is by all of these programs."""
    match member:
        case DockerRestart():
            return (*member.program, "start", member.name)
        case ComposeRestart():
            return compose_argv(member, "start")
        case SystemdRestart():
            return systemctl_argv(member, "start")
    raise ValueError(f"{member.kind} can't be stopped and started in parts")


def by_hand(action: Restart) -> str:
    """What a person would type on the host to start it."""
    return " && ".join(shlex.join(start_argv(member)) for member in members(action))


def together(states: Sequence[tuple[str, HostState]], own: int) -> HostState:
    """What the host shows of all members as one; ``own`` is the place of the server's own.

    ``identity`` and ``started`` hold those of all, in order; ``running`` says how many run.
    """
    every = [state for _, state in states]
    odd = [(name, state) for name, state in states if state.status is not HostStatus.RUNNING]
    detail = "; ".join(f"{name}: {state.detail or state.status}" for name, state in odd or states)
    return HostState(
        status=odd[0][1].status if odd else HostStatus.RUNNING,
        identity=_BETWEEN.join(state.identity for state in every),
        started=_BETWEEN.join(state.started for state in every),
        started_at=every[own].started_at,
        process=every[own].started,
        detail=detail[:500],
        running=len(every) - len(odd),
    )


def of_member(state: HostState, at: int) -> tuple[str, str]:
    """Identity and start of one member in the state of all; empty where it is not there."""
    ids, starts = state.identity.split(_BETWEEN), state.started.split(_BETWEEN)
    every = list(zip(ids, starts, strict=False))
    return every[at] if at < len(every) else ("", "")


def own_place(action: Restart) -> int:
    """Where the server's own container or unit stands among the members."""
    match action:
        case DockerRestart(group=names, name=own) if names:
            return names.index(own)
        case ComposeRestart(group=names, service=own) if names and own:
            return names.index(own)
        case SystemdRestart(group=names, unit=own) if names:
            return names.index(own)
    return 0


def is_stopped(state: HostState) -> bool:
    """Whether none of the members runs."""
    return not state.running and state.status in (HostStatus.STOPPED, HostStatus.GONE)
