"""Keeps what a host shows before a restart destroys it: bounded in time and bytes, redacted."""

import asyncio
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from activities.inspection import service_of
from activities.ssh import Completed, Limits, LostTrackError, Shell
from activities.ssh_trust import NotSentError
from fleet.actions import ComposeRestart, Restart
from fleet.contracts.host import Evidence
from fleet.hosts import Argv, evidence_argvs
from fleet.redaction import redact

_SECONDS = 10
_KEEP = 1024 * 1024
_LIMITS = Limits(seconds=_SECONDS + 4, keep=_KEEP, flood=64 * 1024 * 1024)
_UNSAFE = re.compile(r"[^A-Za-z0-9@._-]|^\.+")


class Bundle:
    """A folder of the worker's disk for one collection; only the worker's user can read it."""

    def __init__(self, state_dir: Path, incident: str, at: datetime) -> None:
        place = state_dir.expanduser().absolute() / "evidence" / _UNSAFE.sub("_", incident)
        self.folder = place / f"{at.astimezone(UTC):%Y%m%dT%H%M%S.%f}Z"
        self.size = 0
        self.missing: list[str] = []

    def write(self, name: str, content: bytes) -> None:
        """Write one file, redacted; trouble with the disk is noted, never raised."""
        clean = redact(content.decode(errors="replace")).encode()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
                folder.chmod(0o700)
            with os.fdopen(
                os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(clean)
        except OSError as problem:
            self.lack(name, f"can't be written: {problem.strerror}")
        else:
            self.size += len(clean)

    def lack(self, name: str, why: str) -> None:
        self.missing.append(f"{name}: {why}"[:200])

    def evidence(self) -> Evidence:
        path = str(self.folder) if self.size else None
        return Evidence(path=path, size=self.size, missing=self.missing)


async def collect(shell: Shell, restart: Restart, bundle: Bundle) -> None:
    """Fill the bundle; what can't be had is listed as missing."""
    container = None
    if isinstance(restart, ComposeRestart):
        container = await _find_service(shell, restart, bundle)
    for name, argv in evidence_argvs(restart, container).items():
        await _collect(shell, name, argv, bundle)


async def _find_service(shell: Shell, restart: ComposeRestart, bundle: Bundle) -> str | None:
    try:
        container = await service_of(shell, restart)
    except NotSentError as problem:
        bundle.lack("container", str(problem))
        return None
    if container is None:
        bundle.lack("container", "the service has none")
    return container


async def _collect(shell: Shell, name: str, argv: Argv, bundle: Bundle) -> None:
    # sshd passes no signal on where it runs as the user itself, as it does for root.
    bounded = ("timeout", "-k", "2", str(_SECONDS), *argv)
    try:
        completed = await shell.run(bounded, _LIMITS, merged=True)
    except (NotSentError, LostTrackError) as problem:
        bundle.lack(name, str(problem))
        return
    why = _complaint(completed, argv)
    if why:
        bundle.lack(name, why)
    if completed.out and completed.status != 127:
        await asyncio.to_thread(bundle.write, name, completed.out)


def _complaint(completed: Completed, argv: Argv) -> str | None:
    match completed:
        case Completed(status=0, cut=False):
            return None
        case Completed(cut=True):
            return f"only the last {_KEEP // 1024} KiB were kept"
        case Completed(status=127):
            return f"the host has no {argv[0]}"
        case Completed(status=124):
            return f"cut off after {_SECONDS} s"
        case _:
            return f"{argv[0]} ended with status {completed.status}"
