"""Asks a container engine what else a restart would hit."""

from collections.abc import Sequence

from activities.inspection import look, project_of, service_of
from activities.ssh import Shell
from activities.ssh_trust import NotSentError
from fleet.actions import ComposeRestart, DockerRestart, Restart
from fleet.host_replies import Reply, ReplyError, succeeded
from fleet.hosts import Argv, neighbours_argv, running_argv
from fleet.neighbours import Neighbour, hindrance, neighbours
from fleet.parts import members


async def what_hinders(shell: Shell, restart: Restart) -> str:
    """Why a restart of the container would do harm; empty where it would not, as far as one sees.

    Who may not list all containers, by a rule for one container only, sees just its own.

    Raises:
        NotSentError: the host can't say what the container itself is like.
    """
    match restart:
        case DockerRestart():
            return await _of(shell, restart.program, restart.group or [restart.name])
        case ComposeRestart(service=None):
            running = (await project_of(shell, restart)).containers
            return await _of(shell, restart.cli, running, in_order=False) if running else ""
        case ComposeRestart():
            found = [await service_of(shell, each) for each in _services(restart)]
            containers = [container for container in found if container is not None]
            return await _of(shell, restart.cli, containers) if containers else ""
    return ""


def _services(restart: ComposeRestart) -> list[ComposeRestart]:
    return [each for each in members(restart) if isinstance(each, ComposeRestart)]


async def _of(
    shell: Shell, program: Argv, containers: Sequence[str], *, in_order: bool = True
) -> str:
    try:
        reply = await look(shell, neighbours_argv(program, containers))
        succeeded(reply, "the container engine")
        own = neighbours(reply)
        return hindrance(own, await running_on(shell, program), in_order=in_order)
    except ReplyError as problem:
        raise NotSentError(problem.kind, str(problem)) from None


async def running_on(shell: Shell, program: Argv) -> list[Neighbour]:
    """All containers that run, as far as this user may look.

    Raises:
        ReplyError: what the engine says can't be understood.
    """
    listed = await _allowed(shell, running_argv(program))
    ids = listed.out.split() if listed is not None else []
    shown = await _allowed(shell, neighbours_argv(program, ids)) if ids else None
    return neighbours(shown) if shown is not None else []


async def _allowed(shell: Shell, argv: Argv) -> Reply | None:
    """The answer; none where this user may not ask for it."""
    try:
        reply = await look(shell, argv)
    except NotSentError:
        return None
    # Of a list in which one went away meanwhile the others are shown, with status 1.
    return reply if reply.status == 0 or reply.out.strip() else None
