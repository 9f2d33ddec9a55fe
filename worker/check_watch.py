"""``steady check --watch``: one engine read again and again, and shown. It is never asked."""

import asyncio
import sys
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live

from activities.engine_pages import EnginePages, place
from fleet.engine_sources import EngineSource
from fleet.engines.proving import Known
from fleet.policy import Policy
from worker.check_view import Watching, line, screen


async def watch(source: EngineSource, policy: Policy) -> None:
    """Look until it is cancelled; on a terminal one view, else a line for each look."""
    pages, known = EnginePages(), Known()
    seen = Watching(place(source), policy.confirm_wait, datetime.now(UTC))

    async def look() -> None:
        reading = await pages.look(seen.place, source, source.timeout)
        seen.see(reading, known.judge(reading, policy))

    try:
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
    finally:
        await pages.close()
