"""``steady check --watch``: one engine read again and again, and shown. It is never asked."""

import asyncio
import sys
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live

from activities.engine_pages import EnginePages, place
from fleet.engines.judge import changed, find_by
from fleet.engines.place import EnginePlace
from fleet.engines.reading import Page
from fleet.engines.sighting import Sighting, seen_after
from fleet.findings import Finding
from fleet.patience import Patience
from fleet.readings import Reading
from worker.check_view import Watching, line, screen


class Onlooker:
    """Judges look after look as a sweep does: nothing is waited for, and nobody is asked."""

    def __init__(self, policy: Patience) -> None:
        self._policy = policy
        self._last: Sighting | None = None
        self._at: datetime | None = None

    def judge(self, reading: Reading) -> Finding:
        age = reading.at - (self._at or reading.at)
        change = changed(reading, self._last)
        finding = find_by(reading, change, self._policy, None, age)
        if reading.engine is not None and reading.engine.page is Page.OK:
            self._last, self._at = seen_after(reading.engine, change, age), reading.at
        return finding


async def watch(source: EnginePlace, policy: Patience) -> None:
    """Look until it is cancelled; on a terminal one view, else a line for each look."""
    pages, judge = EnginePages(), Onlooker(policy).judge
    seen = Watching(place(source), policy.confirm_wait, datetime.now(UTC))

    async def look() -> None:
        reading = await pages.look(seen.place, source, source.timeout)
        seen.see(reading, judge(reading))

    if not sys.stdout.isatty():
        while True:
            await look()
            sys.stdout.write(f"{line(seen)}\n")
            sys.stdout.flush()
            await asyncio.sleep(policy.confirm_wait.total_seconds())
    with Live(screen(seen), console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            await look()
            live.update(screen(seen), refresh=True)
            await asyncio.sleep(policy.confirm_wait.total_seconds())
