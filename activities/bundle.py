"""A bundle of evidence: a folder on the worker's disk, for the worker's user alone, redacted."""

import asyncio
import os
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

from fleet.contracts.host import Evidence, GpuFault, HostState
from fleet.redaction import HIDDEN, redact, without_cut_line

#: Bytes of one file.
KEEP = 1024 * 1024

_MOST_MISSING = 30
_UNSAFE = re.compile(r"[^A-Za-z0-9@._-]|^\.+")


def shelf(state_dir: Path) -> Path:
    """Where a worker keeps its bundles: a folder for each incident, in it one for each bundle."""
    return state_dir.expanduser().absolute() / "evidence"


def incident_folder(incident: str) -> str:
    """The name of an incident's folder, which leads nowhere else."""
    return _UNSAFE.sub("_", incident)


class Bundle:
    """One collection of evidence. ``process`` and ``faults`` are what was understood of it."""

    def __init__(self, state_dir: Path, incident: str, at: datetime) -> None:
        place = shelf(state_dir) / incident_folder(incident)
        self.folder = place / f"{at.astimezone(UTC):%Y%m%dT%H%M%S.%f}Z"
        self.missing: list[str] = []
        self.process: HostState | None = None
        self.faults: list[GpuFault] = []
        self._sizes: dict[str, int] = {}
        self._secrets: set[str] = set()

    @property
    def size(self) -> int:
        return sum(self._sizes.values())

    def hide(self, secret: str) -> None:
        """A secret that steady itself has used, and that may come back in an answer."""
        self._secrets.add(secret)

    async def keep(self, name: str, content: bytes, *, cut: bool = False) -> None:
        """Write one file, redacted; trouble with the disk is noted, never raised.

        ``cut``: the beginning of the content is not there.
        """
        try:
            self._sizes[name] = await asyncio.to_thread(self._write, name, content, cut)
        except OSError as problem:
            self.lack(name, f"can't be written: {(problem.strerror or 'failed').lower()}")

    def lack(self, name: str, why: str) -> None:
        if len(self.missing) < _MOST_MISSING:
            self.missing.append(redact(f"{name}: {why}")[:200])

    def evidence(self) -> Evidence:
        return Evidence(
            path=str(self.folder) if self.size else None,
            size=self.size,
            missing=self.missing,
            kept_on=socket.gethostname(),
            process=self.process,
            faults=self.faults,
        )

    def _write(self, name: str, content: bytes, cut: bool) -> int:
        clean = self._clean(content, cut=cut)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            folder.chmod(0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(self.folder / name, flags, 0o600), "wb") as file:
            file.write(clean)
        return len(clean)

    def _clean(self, content: bytes, *, cut: bool) -> bytes:
        text = content.decode(errors="replace")
        if cut:
            text = without_cut_line(text)
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        clean = redact(text).encode()
        return clean if len(clean) <= KEEP else clean[-KEEP:].partition(b"\n")[2]
