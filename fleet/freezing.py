"""What is asked of a host in a drill, as argument lists: to stop a process in its tracks, to let it
go on, and whether that left something behind.

SIGSTOP can't be caught or ignored, and a process that it stopped looks like one that hangs: it is
there, its port is open, and it does nothing.
"""

from fleet.actions import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Drill,
    RebootRestart,
    Restart,
    SystemdRestart,
)
from fleet.hosts import Argv

#: Containers with these policies are started by nobody when their process ends.
_NEVER = frozenset({"", "no"})


def freeze_argv(restart: Restart, drill: Drill) -> Argv:
    return drill.freeze or _signal(restart, "STOP")


def thaw_argv(restart: Restart, drill: Drill) -> Argv:
    return drill.thaw or _signal(restart, "CONT")


def restart_policy_argv(restart: Restart, container: str) -> Argv:
    """Prints the container's own restart policy; empty where the restart is of no container."""
    program = _program(restart)
    if not program:
        return ()
    shown = ("--format", "{{.HostConfig.RestartPolicy.Name}}")
    return (*program, "inspect", "--type", "container", *shown, container)


def left_behind(policy: str) -> str:
    """What a container that was let go on has lost, going by its restart policy; maybe nothing.

    Docker takes any ``docker kill`` for the wish of a person that the container ends, and does not
    start it again by itself. It forgets that at the container's next start, and at nothing else:
    setting the policy anew does not help (seen in 20.10).
    """
    if policy.strip() in _NEVER:
        return ""
    return (
        f'its own restart policy ("{policy.strip()[:40]}") may not act until it is started anew:'
        " restart it when it suits you"
    )


def _signal(restart: Restart, name: str) -> Argv:
    match restart:
        case DockerRestart():
            return (*restart.program, "kill", f"--signal={name}", restart.name)
        case ComposeRestart():
            place = ("compose", "--project-directory", restart.directory)
            service = (restart.service,) if restart.service else ()
            return (*restart.cli, *place, "kill", f"--signal=SIG{name}", *service)
        case SystemdRestart():
            user = ("--user",) if restart.user else ()
            return (*restart.cli, *user, "kill", f"--signal=SIG{name}", "--", restart.unit)
        case CommandRestart() | RebootRestart():
            return ()


def _program(restart: Restart) -> Argv:
    match restart:
        case DockerRestart():
            return restart.program
        case ComposeRestart():
            return restart.cli
        case _:
            return ()
