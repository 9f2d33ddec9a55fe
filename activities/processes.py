"""Asks a host for the processes of a server, by their numbers there."""

from activities.inspection import look, service_of
from activities.ssh import Shell
from activities.ssh_trust import NotSentError
from fleet.actions import ComposeRestart, Restart, SystemdRestart
from fleet.host_replies import pids, why_alive
from fleet.hosts import cgroup_argv, members_argv, pids_argv, states_argv
from fleet.parts import members

#: So many are asked for their state: the first that can't be killed says enough.
_MOST = 200


async def processes(shell: Shell, restart: Restart) -> list[int]:
    """The numbers of all processes of the container or unit; none where nobody knows them.

    Raises:
        NotSentError: the host can't say.
    """
    if isinstance(restart, SystemdRestart):
        cgroup = (await look(shell, cgroup_argv(restart))).out.strip()
        return pids(await look(shell, members_argv(cgroup))) if cgroup.startswith("/") else []
    container = await service_of(shell, restart) if isinstance(restart, ComposeRestart) else None
    argv = pids_argv(restart, container)
    return pids(await look(shell, argv)) if argv is not None else []


async def cannot_be_killed(shell: Shell, restart: Restart) -> str:
    """Which process of the server outlives a SIGKILL and why; empty where none is seen to."""
    try:
        found = [pid for each in members(restart) for pid in await processes(shell, each)]
        return why_alive(await look(shell, states_argv(found[:_MOST]))) if found else ""
    except NotSentError:
        return ""
