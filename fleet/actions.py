"""How a server is restarted: the machine behind it, and the action there."""

import posixpath
import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from fleet.arguments import Arguments
from fleet.duration_fields import Duration, within
from fleet.durations import parse
from fleet.gpu_memory import GpuMemory
from fleet.policy import STRICT, HostBudget, Policy, Positive
from fleet.refusal import refusal

_DOCKER_NAME = r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$"
_UNIT_NAME = r"^[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*$"


class Host(BaseModel):
    """A machine that is reached over SSH. Its key must be in ``known_hosts``: no first trust.

    ``kernel_log`` prints the kernel's log, each line with its time in ISO 8601; without it
    journalctl and dmesg are tried. ``stack_dump`` is a tool that gets the PID of a server's main
    process as its last argument, such as ``["sudo", "-n", "py-spy", "dump", "--pid"]``; without it
    no stack is dumped.
    """

    model_config = STRICT

    address: str = Field(min_length=1, max_length=253)
    port: int = Field(default=22, ge=1, le=65535, strict=True)
    user: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+$\\-]*$",
        description="a user name",
        examples=["steady"],
    )
    key: str = Field(min_length=1, description="private key file")
    known_hosts: str = Field(default="~/.ssh/known_hosts", min_length=1)
    connect_timeout: Annotated[Duration, within("1ms", "5m")] = parse("10s")
    kernel_log: Arguments = ()
    stack_dump: Arguments = ()
    budget: HostBudget = HostBudget()

    @field_validator("address")
    @classmethod
    def _only_an_address(cls, address: str) -> str:
        if "@" in address or "/" in address:
            raise refusal(
                f"{address!r} is more than an address",
                "write a host name or IP address alone; user and port have keys of their own",
            )
        if address.count(":") == 1:
            raise refusal(
                f"{address!r} holds a port", f"write port = {address.partition(':')[2] or 22}"
            )
        if address.startswith("-") or re.search(r"[\s\[\]]", address):
            raise refusal(f"{address!r} is no host name or IP address", "write it bare")
        return address


_StopTimeout = Annotated[Duration, within("0s", "1h")]
_Group = Annotated[tuple[str, ...], Field(max_length=16, examples=['["proxy", "vllm"]'])]


class Drill(BaseModel):
    """Marks a server for drills: that its process is frozen on purpose, to see it found and healed.

    ``freeze`` and ``thaw`` are argument lists for its host, in place of SIGSTOP and SIGCONT to the
    container's main process or to all of the unit's. ``spare`` restarts must be left in the budget
    beside the one that the drill costs. For ``wait_for_work`` it is waited until the server works,
    since one that is frozen at rest shows no hang.
    """

    model_config = STRICT

    freeze: Arguments = ()
    thaw: Arguments = ()
    spare: int = Field(default=1, ge=0, le=100, strict=True)
    wait_for_work: Annotated[Duration, within("1s", "24h")] = parse("10m")


class _Action(BaseModel):
    """What every action has. ``also_restarts`` names servers that it takes along, on purpose.

    The times are the policy's, where the action has none of its own.
    """

    model_config = STRICT

    host: str
    cooldown: Positive | None = None
    verify_after: Positive | None = None
    load_limit: Positive | None = None
    also_restarts: tuple[str, ...] = Field(default=(), max_length=50, examples=['["gpu-2"]'])

    def times(self) -> dict[str, Any]:
        """The thresholds that this action has for itself."""
        own = {key: getattr(self, key) for key in ("cooldown", "verify_after", "load_limit")}
        return {key: span for key, span in own.items() if span is not None}

    def policy(self, policy: Policy) -> Policy:
        """The policy that holds after this action."""
        return policy.model_copy(update=self.times())


def _check_group(group: tuple[str, ...], own: str, pattern: str) -> None:
    """A group holds the server's own name and others, each once, in the order of their start."""
    if not group:
        return
    if own not in group or len(group) < 2:
        raise refusal(
            f"the group must hold {own} itself and at least one other",
            "name all that is restarted together, in the order of their start",
        )
    if len(set(group)) < len(group):
        raise refusal("the group names one of them twice", "name each once")
    odd = [name for name in group if not re.fullmatch(pattern, name)]
    if odd:
        raise refusal(f"the group has {odd[0]!r}, which is no name", "write plain names")


class DockerRestart(_Action):
    """``docker restart NAME`` (or Podman by the same verbs).

    ``stop_timeout`` is how long the container may take to stop before it is killed; the bound on
    the SSH command is derived from it. ``cli`` is the program with leading arguments, such as
    ``["sudo", "-n", "docker"]``. ``group`` has all that is restarted with it, itself among them, in
    the order of their start.
    """

    kind: Literal["docker", "podman"]
    name: str = Field(pattern=_DOCKER_NAME, description="a container's name", examples=["vllm"])
    group: _Group = ()
    gpu_memory: GpuMemory | None = None
    stop_timeout: _StopTimeout = parse("10s")
    cli: Arguments = ()

    @model_validator(mode="after")
    def _good_group(self) -> Self:
        _check_group(self.group, self.name, _DOCKER_NAME)
        return self

    @property
    def program(self) -> tuple[str, ...]:
        return self.cli or (self.kind,)


class ComposeRestart(_Action):
    """``docker compose restart SERVICE`` in a project directory on the host.

    Without a service it is the whole project: every service of it that runs.
    """

    kind: Literal["compose"]
    directory: str = Field(
        pattern=r"^/[^\x00]*$", description="an absolute path on the host", examples=["/srv/vllm"]
    )
    service: str | None = Field(
        default=None,
        pattern=_DOCKER_NAME,
        description="a service's name in the compose file",
        examples=["vllm"],
    )
    group: _Group = ()
    gpu_memory: GpuMemory | None = None
    stop_timeout: _StopTimeout = parse("10s")
    cli: Arguments = ("docker",)

    @model_validator(mode="after")
    def _good_group(self) -> Self:
        if self.service is None and (self.group or self.gpu_memory):
            raise refusal(
                "a whole project has neither group nor gpu_memory",
                "name the service, and as its group those that are restarted with it",
            )
        _check_group(self.group, self.service or "", _DOCKER_NAME)
        return self


class SystemdRestart(_Action):
    """``systemctl restart UNIT``; ``stop_timeout`` should be the unit's ``TimeoutStopSec``."""

    kind: Literal["systemd"]
    unit: str = Field(
        pattern=_UNIT_NAME,
        description="a unit's name",
        examples=["vllm.service"],
    )
    user: bool = False
    group: _Group = ()
    gpu_memory: GpuMemory | None = None
    stop_timeout: _StopTimeout = parse("90s")
    cli: Arguments = ("systemctl",)

    @model_validator(mode="after")
    def _good_group(self) -> Self:
        _check_group(self.group, self.unit, _UNIT_NAME)
        return self


class CommandRestart(_Action):
    """An argument list of the operator's own; it is never split or expanded by a shell.

    ``identity`` prints one line that is another after every start of the process (a PID with its
    start time, say). Without it a lost connection can't be settled, and goes to a person.
    """

    kind: Literal["command"]
    argv: Annotated[Arguments, Field(min_length=1)]
    identity: Arguments = ()
    stop_timeout: _StopTimeout = parse("30s")


class RebootRestart(_Action):
    """``systemctl reboot`` of the whole host, with all that runs there.

    ``boot_id`` prints one line that is another after every boot. ``back_within`` is how long the
    host may take until it answers again and the server's process runs.
    """

    kind: Literal["reboot"]
    cli: Arguments = ("systemctl",)
    boot_id: Annotated[Arguments, Field(min_length=1)] = (
        "cat",
        "/proc/sys/kernel/random/boot_id",
    )
    back_within: Annotated[Duration, within("1s", "1h")] = parse("10m")

    @property
    def stop_timeout(self) -> timedelta:
        """The command only orders the reboot."""
        return timedelta(0)


Restart = Annotated[
    DockerRestart | ComposeRestart | SystemdRestart | RebootRestart | CommandRestart,
    Field(discriminator="kind"),
]


def named(restart: Restart) -> str:
    """What is restarted, in a few words for people."""
    match restart:
        case DockerRestart() | ComposeRestart() | SystemdRestart() if restart.group:
            return f"group {', '.join(restart.group)}"
        case DockerRestart():
            return f"container {restart.name}"
        case ComposeRestart():
            whole = f"compose project {restart.directory}"
            return f"compose service {restart.service}" if restart.service else whole
        case SystemdRestart():
            return f"unit {restart.unit}"
        case RebootRestart():
            return f"reboot of {restart.host}"
        case CommandRestart():
            return f"command {posixpath.basename(restart.argv[0])}"


def machine(host: Host) -> str:
    """The machine by its address and port: whatever its table in the fleet file is called."""
    address = host.address.lower().rstrip(".")
    return f"[{address}]:{host.port}" if ":" in address else f"{address}:{host.port}"


def target(restart: Restart, host: Host) -> tuple[object, ...]:
    """What is restarted, in one spelling: two servers with the same target are one too many."""
    where = machine(host)
    match restart:
        case DockerRestart():
            # Docker has one daemon a machine; Podman has containers of their own for each user.
            shared = restart.kind == "docker" or restart.program[0] == "sudo"
            return (where, restart.kind, restart.name, None if shared else host.user)
        case ComposeRestart():
            return (where, "compose", posixpath.normpath(restart.directory), restart.service)
        case SystemdRestart():
            unit = restart.unit if "." in restart.unit else f"{restart.unit}.service"
            return (where, "systemd", unit, host.user if restart.user else None)
        case RebootRestart():
            return (where, "reboot")
        case CommandRestart():
            return (where, "command", restart.argv, host.user)
