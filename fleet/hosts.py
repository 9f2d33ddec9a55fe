"""What is asked of a host, as argument lists: to look at the process of a server, to restart it.

Nothing here is ever joined into a text that a shell would split.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from posixpath import normpath

from fleet.actions import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    RebootRestart,
    Restart,
    SystemdRestart,
)
from fleet.contracts.host import HostState, HostStatus

Argv = tuple[str, ...]

#: What a restart may take beyond the time that the old process has to stop.
MARGIN = timedelta(seconds=60)

UNIT_PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "FreezerState",
    "InvocationID",
    "MainPID",
    "ExecMainStartTimestamp",
)

_STATE = (
    '{"id":"{{.Id}}","status":{{json .State.Status}},"started":{{json .State.StartedAt}}'
    ',"exit":{{json .State.ExitCode}},"restarts":{{json .RestartCount}}}'
)
_NEIGHBOUR = (
    '{"id":"{{.Id}}","name":{{json .Name}},"network":{{json .HostConfig.NetworkMode}}'
    ',"rm":{{json .HostConfig.AutoRemove}}}'
)
_LABEL = "com.docker.compose"


def restart_timeout(restart: Restart) -> timedelta:
    """How long the restart command may take; always longer than the stop time-out."""
    return restart.stop_timeout + MARGIN


def settle_time(restart: Restart) -> timedelta:
    """How long the host may take until it shows what a command came to."""
    bound = restart_timeout(restart)
    return max(bound, restart.back_within) if isinstance(restart, RebootRestart) else bound


def restart_argv(restart: Restart, services: Sequence[str] = ()) -> Argv:
    """``services`` are those of a whole Compose project that run: no other is to be started."""
    match restart:
        case DockerRestart():
            return (*restart.program, "restart", "-t", seconds(restart), restart.name)
        case ComposeRestart():
            return compose_argv(restart, "restart", "-t", seconds(restart), services=services)
        case SystemdRestart():
            return systemctl_argv(restart, "restart")
        case RebootRestart():
            return (*restart.cli, "reboot")
        case CommandRestart():
            return restart.argv


def compose_argv(
    restart: ComposeRestart, verb: str, *options: str, services: Sequence[str] = ()
) -> Argv:
    """A verb of Compose for the service, or for the services given."""
    place = ("compose", "--project-directory", restart.directory)
    these = (restart.service,) if restart.service else tuple(services)
    return (*restart.cli, *place, verb, *options, *these)


def systemctl_argv(restart: SystemdRestart, verb: str) -> Argv:
    return (*_systemctl(restart), verb, "--", restart.unit)


def find_argv(restart: ComposeRestart) -> Argv:
    """Lists the service's containers, as ``ID ONEOFF`` lines, by the labels that Compose gives.

    ``docker compose ps`` would list one-off containers of ``docker compose run`` as well.
    """
    return (
        *_listed(restart),
        *("--filter", f"label={_LABEL}.service={restart.service}"),
        *("--format", f'{{{{.ID}}}} {{{{.Label "{_LABEL}.oneoff"}}}}'),
    )


def project_argv(restart: ComposeRestart) -> Argv:
    """Lists the project's containers, as ``ID STATE SERVICE ONEOFF`` lines."""
    shown = f'{{{{.ID}}}} {{{{.State}}}} {{{{.Label "{_LABEL}.service"}}}}'
    return (*_listed(restart), "--format", f'{shown} {{{{.Label "{_LABEL}.oneoff"}}}}')


def _listed(restart: ComposeRestart) -> Argv:
    return (
        *restart.cli,
        *("ps", "--all", "--no-trunc"),
        *("--filter", f"label={_LABEL}.project.working_dir={normpath(restart.directory)}"),
    )


def container_argv(program: Argv, *containers: str) -> Argv:
    return (*program, "inspect", "--type", "container", "--format", _STATE, *containers)


def running_argv(program: Argv) -> Argv:
    """Lists the full IDs of all containers that run, a line each."""
    return (*program, "ps", "--quiet", "--no-trunc")


def neighbours_argv(program: Argv, containers: Sequence[str]) -> Argv:
    """Shows names and network modes of containers, as ``fleet.neighbours`` reads them."""
    return (*program, "inspect", "--type", "container", "--format", _NEIGHBOUR, *containers)


def pids_argv(restart: Restart, container: str | None) -> Argv | None:
    """Lists the processes of a container by their numbers on the host; none where nobody can.

    ``container`` is the container of a Compose service. A unit's are listed by ``cgroup_argv``.
    """
    match restart:
        case DockerRestart():
            asked = ("hpid",) if restart.kind == "podman" else ("-eo", "pid")
            return (*restart.program, "top", restart.name, *asked)
        case ComposeRestart() if container:
            return (*restart.cli, "top", container, "-eo", "pid")
    return None


def cgroup_argv(restart: SystemdRestart) -> Argv:
    """Prints the unit's control group, in whose file ``cgroup.procs`` its processes stand."""
    return (*_systemctl(restart), "show", "--property=ControlGroup", "--value", "--", restart.unit)


def members_argv(cgroup: str) -> Argv:
    return ("cat", f"/sys/fs/cgroup{normpath(cgroup)}/cgroup.procs")


def states_argv(pids: Sequence[int]) -> Argv:
    """Prints the states of processes, as ``fleet.host_replies.why_alive`` reads them."""
    return ("cat", *(f"/proc/{pid}/stat" for pid in pids))


def unit_argv(restart: SystemdRestart) -> Argv:
    """``TZ=UTC`` since systemctl prints times in the zone of its caller, with ambiguous names."""
    shown = ("show", f"--property={','.join(UNIT_PROPERTIES)}")
    return ("env", "TZ=UTC", *_systemctl(restart), *shown, "--", restart.unit)


def _systemctl(restart: SystemdRestart) -> Argv:
    return (*restart.cli, *(("--user",) if restart.user else ()))


def seconds(restart: DockerRestart | ComposeRestart) -> str:
    return str(math.ceil(restart.stop_timeout.total_seconds()))


def must_not_restart(restart: Restart, expected: HostState, now: HostState) -> str | None:
    """Why the restart must not be sent, going by the host's own words; none where it may be.

    A server of the operator's own command that has no identity can't be compared.
    """
    nameless = isinstance(restart, CommandRestart) and not restart.identity
    if nameless and not expected.identity:
        return None
    if now.status is not HostStatus.RUNNING:
        return f"it is {now.status} now ({now.detail})"
    if not now.same_object(expected):
        return "it was replaced by another one"
    if not now.same_process(expected):
        return f"it was started anew meanwhile: {now.started}"
    if now.own_start != expected.own_start:
        return f"the server was started anew meanwhile: {now.own_start}"
    return None
