"""``steady up``: servers, worker, fleet and a live view in one.

Ctrl-C stops the worker first, then the servers. A second run goes on where the first stopped.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live

from fleet.config import Fleet
from fleet.contracts.fleet import ApplyResult
from fleet.durations import brief
from worker.embedded_gateway import embedded_gateway
from worker.errors import EndedError, SetupError
from worker.house import House, house, needs_store
from worker.live import changes, screen
from worker.loading import FleetFileError, load
from worker.logs import set_up_logging
from worker.room import fitted
from worker.settings import Settings
from worker.snapshot import Snapshot, SnapshotReader
from worker.state import made
from worker.stopping import cancelled_by, stop_event, unless
from worker.worker import SETTLE_SECONDS

DEFAULT_FILE = Path("fleet.toml")
DEMONSTRATION = "demonstration fleet"
_LOOK_EVERY = 1.0


def up(fleet_file: Path | None, settings: Settings) -> int:
    """Run everything until Ctrl-C or SIGTERM, and return 0.

    Without ``fleet_file`` it is ``fleet.toml`` of this folder; where there is none, the
    demonstration fleet.

    Raises:
        FleetFileError: the file is no good; nothing was started.
        SettingError: the state folder can't be used.
        SetupError: something that is needed is not there, or ended.
    """
    file = fleet_file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    fleet = load(file) if file is not None else None
    log = settings.state_dir / "logs" / "worker.log"
    made(settings.state_dir)
    set_up_logging(settings, to=log)
    try:
        return asyncio.run(_up(file, fleet, settings, log))
    except EndedError as ended:
        again = "start again with `make run` or `steady up`: it goes on where it stopped"
        raise SetupError(f"{ended}\n{again}") from ended


async def _up(file: Path | None, fleet: Fleet | None, settings: Settings, log: Path) -> int:
    console = Console()
    place = str(file) if file is not None else DEMONSTRATION
    with stop_event() as told, cancelled_by(told) as starting:
        console.print("starting …", style="dim")
        async with (
            house(fleet, settings) as running,
            embedded_gateway(file, running.fleet, settings.state_dir) as gateway,
        ):
            _introduce(console, running, await running.apply(running.fleet), place, log)
            if gateway is not None:
                console.print(f"Gateway: {gateway}", highlight=False)
            starting.cancel()
            watch = asyncio.create_task(_watch(file, running, console))
            await _show(running, place, console, told)
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            patience = f"a restart under way has {brief(settings.graceful_shutdown)} to end"
            console.print(f"stopping: the worker first ({patience}), then the servers")
    console.print("stopped; the next `steady up` goes on from here")
    await asyncio.sleep(SETTLE_SECONDS)
    return 0


def _introduce(
    console: Console, running: House, applied: ApplyResult, place: str, log: Path
) -> None:
    whose = " (not started by steady)" if running.ui_url is None else ""
    console.print(f"Temporal: {running.address}{whose}", highlight=False)
    if running.ui_url is not None and not console.is_terminal:
        console.print(f"Temporal UI: {running.ui_url}", highlight=False)
    lacks = "; there is no fleet.toml here" if place == DEMONSTRATION else ""
    console.print(f"Fleet: {place}, {_applied(applied)}{lacks}", highlight=False)
    if not running.attributes.available:
        console.print(running.attributes.line, style="yellow", highlight=False)
    console.print(f"Log: {log}", highlight=False, soft_wrap=True)


def _applied(result: ApplyResult) -> str:
    counts = {
        "added": len(result.added),
        "altered": len(result.altered),
        "removed": len(result.removed),
    }
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    otherwise = "settings changed" if result.changed else "unchanged"
    return f"version {result.version} ({said or otherwise})"


async def _show(running: House, place: str, console: Console, told: asyncio.Event) -> None:
    """Show until told to stop: a live view on a terminal, else a line for each change."""
    reader = SnapshotReader(running.client)
    if not console.is_terminal:
        await _print_changes(running, reader, console, told)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not told.is_set():
            if (seen := await unless(told, reader.fetch())) is None:
                break
            alerts = running.alerts()
            room = fitted(seen, len(alerts), *console.size)
            live.update(screen(seen, place, running.ui_url, alerts, room), refresh=True)
            await _pause(told)


async def _print_changes(
    running: House, reader: SnapshotReader, console: Console, told: asyncio.Event
) -> None:
    before: Snapshot | None = None
    told_of = 0
    while not told.is_set():
        if (seen := await unless(told, reader.fetch())) is None:
            break
        alerts, told_of = running.alerts(since=told_of), running.inbox.received
        for line in [*changes(before, seen), *alerts]:
            console.print(f"{seen.at:%H:%M:%S} {line}", highlight=False, soft_wrap=True)
        before = seen
        await _pause(told)


async def _pause(told: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(told.wait(), _LOOK_EVERY)


async def _watch(file: Path | None, running: House, console: Console) -> None:
    """Apply the file whenever it changes; where it is no good the fleet in force stays."""
    if file is None:
        return
    seen = _signature(file)
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        now = _signature(file)
        if now == seen:
            continue
        seen = now
        try:
            await _reapply(file, running, console)
        except (FleetFileError, SetupError) as problem:
            console.print(f"{problem}\nthe fleet in force stays", style="red", highlight=False)


async def _reapply(file: Path, running: House, console: Console) -> None:
    fleet = await asyncio.to_thread(load, file)
    if needs_store(fleet) and not running.has_store:
        raise SetupError(
            f"{file}: a server now has its record in the embedded Valkey, which does not run:"
            " stop and start `steady up`, or name a store"
        )
    result = await running.apply(fleet)
    console.print(f"{file} has changed: {_applied(result)}", highlight=False)
    begun = running.fleet
    if (fleet.endpoints, fleet.gateway) != (begun.endpoints, begun.gateway):
        console.print(
            "the gateway serves what it began with: stop and start `steady up`", style="yellow"
        )


def _signature(file: Path) -> tuple[int, int] | None:
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size
