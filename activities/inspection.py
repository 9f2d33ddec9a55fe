"""Asks a host, over an open connection, for the process behind a server."""

from activities.ssh import Limits, LostTrackError, Shell
from activities.ssh_trust import NotSentError
from fleet.actions import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    RebootRestart,
    Restart,
    SystemdRestart,
    named,
)
from fleet.contracts.host import HostErrorType, HostState, HostStatus
from fleet.host_replies import (
    BOOT_IDENTITY,
    Project,
    Reply,
    ReplyError,
    command_state,
    container_state,
    project,
    project_state,
    service_container,
    unit_state,
)
from fleet.hosts import Argv, container_argv, find_argv, project_argv, unit_argv
from fleet.parts import members, own_place, together

_LOOK = Limits(seconds=10, keep=64 * 1024, flood=256 * 1024)


async def inspect(shell: Shell, restart: Restart) -> HostState:
    """The state of the container, unit or process that ``restart`` would restart.

    Raises:
        NotSentError: the host can't say; ``kind`` tells why. Nothing was changed on it.
    """
    every = members(restart)
    try:
        if len(every) == 1:
            return await _inspect(shell, every[0])
        states = [(named(each), await _inspect(shell, each)) for each in every]
        return together(states, own_place(restart))
    except ReplyError as problem:
        raise NotSentError(problem.kind, str(problem)) from None


async def _inspect(shell: Shell, restart: Restart) -> HostState:
    match restart:
        case DockerRestart():
            argv = container_argv(restart.program, restart.name)
            return container_state(await look(shell, argv))
        case ComposeRestart():
            return await _composed(shell, restart)
        case SystemdRestart():
            return unit_state(await look(shell, unit_argv(restart)))
        case RebootRestart():
            return command_state(await look(shell, restart.boot_id), BOOT_IDENTITY)
        case CommandRestart():
            if not restart.identity:
                return HostState(status=HostStatus.UNKNOWN, detail="no identity command is set")
            return command_state(await look(shell, restart.identity))


async def _composed(shell: Shell, restart: ComposeRestart) -> HostState:
    if restart.service is None:
        return await _project(shell, restart)
    container = service_container(await look(shell, find_argv(restart)))
    if container is None:
        return HostState(status=HostStatus.GONE, detail="there is no container of that service")
    return container_state(await look(shell, container_argv(restart.cli, container)))


async def _project(shell: Shell, restart: ComposeRestart) -> HostState:
    running = project(await look(shell, project_argv(restart))).containers
    if not running:
        return HostState(status=HostStatus.GONE, detail="nothing of the project runs")
    return project_state(await look(shell, container_argv(restart.cli, *running)))


async def project_of(shell: Shell, restart: ComposeRestart) -> Project:
    """What of the whole project runs.

    Raises:
        NotSentError: the host can't say.
    """
    try:
        return project(await look(shell, project_argv(restart)))
    except ReplyError as problem:
        raise NotSentError(problem.kind, str(problem)) from None


async def service_of(shell: Shell, restart: ComposeRestart) -> str | None:
    """The ID of the service's container, none where there is none.

    Raises:
        NotSentError: the host can't say.
    """
    try:
        return service_container(await look(shell, find_argv(restart)))
    except ReplyError as problem:
        raise NotSentError(problem.kind, str(problem)) from None


async def look(shell: Shell, argv: Argv) -> Reply:
    """Run a command that only looks, and is quick.

    Raises:
        NotSentError: its end was not seen, or it printed far too much.
    """
    try:
        completed = await shell.run(argv, _LOOK)
    except LostTrackError as problem:
        raise NotSentError(HostErrorType.UNREACHABLE, str(problem)) from None
    if completed.cut:
        raise NotSentError(HostErrorType.MISCONFIGURED, f"{argv[0]} printed far too much")
    return completed.reply
