"""Ends what is too old or too much on the shelf of evidence, and touches nothing else.

Only real folders of the form INCIDENT/TIME directly on the shelf are bundles; a link is never
followed. A bundle leaves by one rename into a folder of what goes, and is deleted there: whoever
dies in between leaves what the next one deletes, and of two workers on one disk only one gets it.
"""

import asyncio
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import structlog

from activities.bundle import incident_folder, shelf
from fleet.retention import Kept, Limits, leaving

_BUNDLE = re.compile(r"\d{8}T\d{6}\.\d{6}Z", re.ASCII)
_GOING = ".going"
#: How many incidents are asked about at most in one go; the others' newest bundles stay.
_MOST_ASKED = 100
_ASKING_WITHIN = 15.0
#: Seconds between two looks at the whole shelf, from one worker.
EVERY = 3600.0

_log = structlog.get_logger(__name__)


class OpenIncidents(Protocol):
    """Who knows which incident of a server is open."""

    async def open_incident(self, server: str) -> str | None:
        """The ID of the server's open incident, none where there is none.

        Raises:
            Exception: that can't be found out.
        """
        ...


class Retention:
    def __init__(self, state_dir: Path, limits: Limits, incidents: OpenIncidents) -> None:
        self._shelf = shelf(state_dir)
        self._limits = limits
        self._incidents = incidents

    async def run(self) -> None:
        """Tidy now and then until cancelled."""
        while True:
            await self.tidy()
            await asyncio.sleep(EVERY)

    async def tidy(self, current: str = "") -> None:
        """End what is over the limits; trouble is logged, and never raised.

        The incident ``current`` is open, whatever its guard says.
        """
        try:
            await self._tidy(incident_folder(current) if current else "")
        except OSError as problem:
            _log.warning("evidence can't be tidied", problem=problem.strerror)

    async def _tidy(self, current: str) -> None:
        bundles = await asyncio.to_thread(lambda: list(_bundles(self._shelf)))
        now = datetime.now(UTC)
        # Without asking, each is taken for closed: these are all that may have to be asked about.
        first = leaving(bundles, self._limits, now)
        if first:
            asked = dict.fromkeys(each.incident for each in first if each.incident != current)
            still_open = await self._open(asked) | {current}
            gone = leaving(bundles, self._limits, now, still_open.__contains__)
            for each in gone:
                await asyncio.to_thread(_take_away, self._shelf, each)
            if gone:
                _log.info("evidence expired", bundles=len(gone), bytes=sum(b.size for b in gone))
        await asyncio.to_thread(_sweep, self._shelf / _GOING)

    async def _open(self, incidents: dict[str, None]) -> set[str]:
        """Which of these are open, or may be: what can't be found out in time counts as open."""
        unsure = set(incidents)
        asked = list(incidents)[:_MOST_ASKED]
        slots = asyncio.Semaphore(8)

        async def ask(incident: str) -> None:
            async with slots:
                with suppress(Exception):
                    held = await self._incidents.open_incident(incident.rpartition("@")[0])
                    if held is None or incident_folder(held) != incident:
                        unsure.discard(incident)

        with suppress(TimeoutError):
            async with asyncio.timeout(_ASKING_WITHIN):
                await asyncio.gather(*(ask(incident) for incident in asked))
        return unsure


def _bundles(place: Path) -> Iterator[Kept]:
    for incident in _folders(place):
        for folder in _folders(incident):
            if not _BUNDLE.fullmatch(folder.name):
                continue
            with suppress(ValueError):
                at = datetime.strptime(folder.name, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
                yield Kept(incident.name, folder.name, at, _size(folder))


def _folders(place: Path) -> list[Path]:
    """The real folders in one; none where it can't be read."""
    try:
        with os.scandir(place) as found:
            return [
                Path(each.path)
                for each in found
                if each.is_dir(follow_symlinks=False) and not each.name.startswith(".")
            ]
    except OSError:
        return []


def _size(folder: Path) -> int:
    total = 0
    with suppress(OSError), os.scandir(folder) as found:
        for each in found:
            with suppress(OSError):
                total += each.stat(follow_symlinks=False).st_size
    return total


def _take_away(place: Path, each: Kept) -> None:
    going = place / _GOING
    going.mkdir(mode=0o700, exist_ok=True)
    if going.is_symlink():
        return
    with suppress(FileNotFoundError):
        (place / each.incident / each.name).rename(
            going / f"{each.name}-{os.getpid()}-{time.monotonic_ns()}"
        )
    # It is empty where this was its last bundle.
    with suppress(OSError):
        (place / each.incident).rmdir()


def _sweep(going: Path) -> None:
    if going.is_symlink():
        return
    for folder in _folders(going):
        shutil.rmtree(folder, ignore_errors=True)
