"""Where an act happens: the step of a server's ladder, and open connections to its machine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from activities.inspection import inspect, project_of
from activities.neighbours import what_hinders
from activities.processes import cannot_be_killed
from activities.ssh import Shell, connected
from activities.ssh_trust import NotSentError
from fleet.actions import ComposeRestart, DockerRestart, Host, Restart
from fleet.contracts.host import HostErrorType, HostRequest, HostState, HostStatus
from fleet.hosts import Argv, restart_argv
from fleet.ladder import Step, beneath

_CONTAINERS = (DockerRestart, ComposeRestart)


@dataclass(frozen=True)
class Site:
    """``first`` is the server's own container, unit or process; ``step``, what is restarted."""

    first: Step
    step: Step

    @property
    def restart(self) -> Restart:
        return self.first.action

    @property
    def host(self) -> Host:
        return self.first.host


@dataclass(frozen=True)
class Place:
    """The connections for one act: ``shell`` for the step, ``own`` for the server itself."""

    site: Site
    shell: Shell
    own: Shell

    @property
    def action(self) -> Restart:
        return self.site.step.action

    async def look(self) -> HostState:
        """What the step would restart, and the server's own process.

        Raises:
            NotSentError: the host can't say.
        """
        state = await inspect(self.shell, self.action)
        if self.site.step == self.site.first:
            return state
        server = await inspect(self.own, self.site.restart)
        if _leaves_out(self.action, self.site.restart, state, server):
            raise NotSentError(
                HostErrorType.MISCONFIGURED,
                f"{self.site.step} does not hold {self.site.first}, so it would not restart it:"
                " mend the ladder of this server",
            )
        return beneath(state, server)

    async def answer(self, request: HostRequest) -> HostState:
        """The same, with what else was asked for."""
        state = await self.look()
        if state.status is not HostStatus.RUNNING:
            return state
        hindrance = ""
        if request.before_restart:
            hindrance = await what_hinders(self.shell, self.action)
        if request.closely:
            hindrance = await cannot_be_killed(self.own, self.site.restart)
        return state.model_copy(update={"hindrance": hindrance[:1000]})

    async def command(self) -> Argv:
        """The argument list that restarts it, as of now.

        Raises:
            NotSentError: the host can't say what of the project runs.
        """
        action = self.action
        if isinstance(action, ComposeRestart) and action.service is None:
            return restart_argv(action, (await project_of(self.shell, action)).services)
        return restart_argv(action)


@asynccontextmanager
async def place(site: Site) -> AsyncIterator[Place]:
    """Connect to the machine, as the user of the step and as that of the server.

    Raises:
        NotSentError: a connection could not be made.
    """
    async with connected(site.step.host) as shell:
        if site.host == site.step.host:
            yield Place(site, shell, shell)
            return
        async with connected(site.host) as own:
            yield Place(site, shell, own)


def _leaves_out(step: Restart, first: Restart, state: HostState, server: HostState) -> bool:
    whole = isinstance(step, ComposeRestart) and step.service is None
    if not whole or not isinstance(first, _CONTAINERS) or not state.identity:
        return False
    ids = state.identity.split()
    return any(each not in ids for each in server.identity.split())
