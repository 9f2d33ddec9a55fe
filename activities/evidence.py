"""Keeps what a host shows before a restart destroys it: bounded in time and bytes, redacted."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from activities.bundle import KEEP, Bundle
from activities.inspection import service_of
from activities.ssh import Completed, Limits, LostTrackError, Shell
from activities.ssh_trust import NotSentError
from fleet import evidence, gpus, kernel_log, nvidia_smi
from fleet.actions import ComposeRestart, Host, Restart
from fleet.contracts.host import HostStatus
from fleet.evidence import Look, Subject
from fleet.hosts import Argv
from fleet.kernel_log import Xid
from fleet.policy import Policy

#: Seconds for one command, after which the host ends it; and for all of them.
_SECONDS = 10.0
_WITHIN = 58.0
#: A command with less time than this would only be cut off.
_LEAST = 2.0
#: Seconds that the host may take over a command beyond its time, the way there included.
_LATE = 4.0
_FLOOD = 64 * 1024 * 1024
#: The kernel's log is read as a whole, and only the lines of interest are kept.
_KERNEL_KEEP = 16 * 1024 * 1024
#: What `timeout` gives back where the command ended when asked to, and where it was killed.
_ASKED_TO_END, _KILLED = 124, 137


@dataclass(frozen=True)
class Target:
    """What is looked at, where, and what counts as a fault there."""

    restart: Restart
    host: Host
    policy: Policy


def deadline() -> float:
    """When a visit that begins now has to be over, by the monotonic clock."""
    return time.monotonic() + _WITHIN


class Collection:
    """One visit to a host. What can't be had is listed as missing, and nothing is raised."""

    def __init__(self, shell: Shell, target: Target, bundle: Bundle, until: float) -> None:
        self._shell, self._bundle, self._until = shell, bundle, until
        self._restart, self._host, self._policy = target.restart, target.host, target.policy

    async def run(self) -> None:
        container = None
        if isinstance(self._restart, ComposeRestart):
            container = await self._find_service(self._restart)
        subject = await self._subject(container)
        self._bundle.process = subject.process
        log = evidence.log_look(self._restart, container)
        if log is not None:
            await self._keep(log)
        errors = await self._kernel(subject)
        smi, works = await self._gpus()
        self._judge(errors, smi, subject)
        if works:
            await self._keep(evidence.GPU_TABLE)
        for look in evidence.last_looks(self._restart, container, self._host, subject):
            await self._keep(look)
        if self._host.stack_dump and subject.pid is None:
            self._bundle.lack("stack.txt", "the PID of the server's process is not known")

    def _judge(self, errors: Sequence[Xid], smi: nvidia_smi.Smi, subject: Subject) -> None:
        self._bundle.faults = gpus.incurable(
            errors,
            smi,
            gpus.Scope(subject.since(datetime.now(UTC)), subject.devices),
            codes=self._policy.incurable_xids,
            states=self._policy.incurable_gpu_states,
        )

    async def _find_service(self, restart: ComposeRestart) -> str | None:
        try:
            container = await service_of(self._shell, restart)
        except NotSentError as problem:
            self._bundle.lack("container", str(problem))
            return None
        if container is None:
            self._bundle.lack("container", "the service has none")
        return container

    async def _subject(self, container: str | None) -> Subject:
        look = evidence.first_look(self._restart, container)
        if look is None:
            return Subject()
        completed = await self._keep(look)
        if completed is None:
            return Subject()
        subject = evidence.subject(self._restart, completed.reply)
        known = subject.process is not None and subject.process.status is not HostStatus.UNKNOWN
        return subject if known else Subject(None, subject.pid, subject.devices)

    async def _kernel(self, subject: Subject) -> list[Xid]:
        """Keep the lines of interest; the errors of GPUs among them, as far as they have times."""
        name, why = "kernel.txt", ""
        since = subject.since(datetime.now(UTC))
        for argv in evidence.kernel_looks(self._host, since):
            completed, why = await self._ask(argv, _KERNEL_KEEP)
            if completed is None:
                continue
            text = completed.out.decode(errors="replace")
            lines = kernel_log.telling(text)
            if completed.status == 0 and kernel_log.has_times(text):
                await self._bundle.keep(name, "\n".join([*lines, ""]).encode())
                return list(kernel_log.xids(lines))
            why = why or f"{argv[0]} shows no line with a time in ISO 8601"
            if lines and self._host.kernel_log:
                await self._bundle.keep(name, "\n".join([*lines, ""]).encode())
        self._bundle.lack(name, why)
        return []

    async def _gpus(self) -> tuple[nvidia_smi.Smi, bool]:
        completed = await self._keep(evidence.GPU_LOOK)
        if completed is None or completed.status == 127:
            return nvidia_smi.Smi(), False
        return nvidia_smi.read(completed.out.decode(errors="replace")), completed.status == 0

    async def _keep(self, look: Look) -> Completed | None:
        completed, why = await self._ask(look.argv, KEEP)
        if why:
            self._bundle.lack(look.name, why)
        if completed is not None and completed.out and completed.status != 127:
            await self._bundle.keep(look.name, completed.out, cut=completed.cut)
        return completed

    async def _ask(self, argv: Argv, keep: int) -> tuple[Completed | None, str]:
        """What the command printed, none where that is not known; and what is wrong with it."""
        seconds = min(_SECONDS, self._until - time.monotonic())
        if seconds < min(_LEAST, _SECONDS):
            return None, f"no time left after {_WITHIN:g} s"
        limits = Limits(seconds=seconds + _LATE, keep=keep, flood=_FLOOD)
        began = time.monotonic()
        try:
            completed = await self._shell.run(evidence.bounded(argv, seconds), limits, merged=True)
        except (NotSentError, LostTrackError) as problem:
            return None, str(problem)
        late = time.monotonic() - began >= seconds * 0.9
        if completed.status == _ASKED_TO_END or (completed.status == _KILLED and late):
            return completed, f"cut off after {seconds:.3g} s"
        return completed, _complaint(completed, argv, keep)


def _complaint(completed: Completed, argv: Argv, keep: int) -> str:
    match completed:
        case Completed(status=0, cut=False):
            return ""
        case Completed(cut=True):
            return f"only the last {keep // 1024} KiB were kept"
        case Completed(status=127):
            return f"the host has no {argv[0]}"
        case _:
            said = completed.reply.tail(100)
            return f"{argv[0]} ended with status {completed.status}" + (f": {said}" if said else "")
