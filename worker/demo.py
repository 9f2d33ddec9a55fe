"""``steady demo``: the demonstration fleet to its end, on servers of its own."""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from temporalio.client import Client

from fleet.contracts.alerts import Severity
from fleet.contracts.fleet import ApplyRequest
from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from simulator.host import SimHost, sim_host
from simulator.inbox import Inbox, inbox
from worker.apply import apply_fleet
from worker.connection import connect
from worker.demo_fleet import (
    BRISK,
    BROKEN,
    FREEZES,
    FREEZING_ENGINE,
    IDLE_ENGINE,
    NAMES,
    RECOVERS,
    demo_fleet,
    engine_ports,
    simulated_servers,
)
from worker.embedded import embedded_temporal, embedded_valkey
from worker.errors import SetupError
from worker.logs import set_up_logging
from worker.settings import Settings
from worker.snapshot import Snapshot, SnapshotReader
from worker.state import owned
from worker.story import EXPECTED, ServerEnd, Told, untrue
from worker.worker import SETTLE_SECONDS, build_worker

#: Seconds. An idle machine needs 35; a busy one is slow, and no liar for that.
_STORY_WITHIN = 90.0
#: Each look asks every workflow, so it costs what it measures.
_LOOK_EVERY = 1.0
_DELIVERED_WITHIN = 3.0


def demo(as_json: bool) -> int:
    """Play it, print a table or one JSON object, and return 0 only where the story came true."""
    folder = Path(tempfile.mkdtemp(prefix="steady-demo-"))
    set_up_logging(Settings(state_dir=folder, log_level="warning"), to=folder / "logs" / "demo.log")
    try:
        ends, lines = asyncio.run(_run(folder))
    except (SetupError, KeyboardInterrupt, asyncio.CancelledError) as problem:
        lines = [str(problem) or "interrupted"]
    else:
        _print(ends, as_json)
    for line in lines:
        sys.stderr.write(f"not true: {line}\n")
    if lines:
        sys.stderr.write(f"the logs are kept in {folder / 'logs'}\n")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _print(ends: list[ServerEnd], as_json: bool) -> None:
    if as_json:
        servers = [end.model_dump(mode="json") for end in ends]
        sys.stdout.write(json.dumps({"servers": servers}) + "\n")
    else:
        Console().print(table(ends))


def table(ends: list[ServerEnd]) -> Table:
    columns = ("server", "verdict", "found", "asked", "restarts", "pages", "outcome")
    shown = Table(
        *columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for end in ends:
        after = f"{end.detect_s:.1f} s" if end.detect_s is not None else "-"
        shown.add_row(
            end.server,
            str(end.verdict or "-"),
            after,
            str(end.requests) if end.requests is not None else "-",
            str(end.restarts),
            str(end.pages),
            str(end.outcome or "-"),
        )
    return shown


@dataclass
class _Stage:
    """The running fleet, and when each fault was made."""

    client: Client
    host: SimHost
    inbox: Inbox
    began: float
    faults: dict[str, datetime] = field(default_factory=dict)
    last: Snapshot | None = None

    def say(self, text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self.began:5.1f} s  {text}\n")
        sys.stderr.flush()

    def pages(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in NAMES}
        for message in self.inbox.messages:
            if message.get("severity") == Severity.PAGE:
                found.setdefault(str(message.get("server")), []).append(str(message.get("cause")))
        return found


async def _run(folder: Path) -> tuple[list[ServerEnd], list[str]]:
    began, task = time.monotonic(), asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with _stage(folder, began) as stage:
        late = await _play_in_time(stage)
        ends = _ends(stage)
        lines = [*late, *untrue(ends, _told(stage))]
    await asyncio.sleep(SETTLE_SECONDS)
    return ends, lines


@asynccontextmanager
async def _stage(folder: Path, began: float) -> AsyncIterator[_Stage]:
    async with AsyncExitStack() as stack:
        state = stack.enter_context(owned(folder))
        enter = stack.enter_async_context
        temporal = await enter(embedded_temporal(state, port=None, ui_port=None))
        store = await enter(embedded_valkey(state))
        box = await enter(inbox())
        webhook = state / "webhook"
        webhook.write_text(box.url)
        ports = engine_ports(state)
        host = await enter(sim_host(state / "host", simulated_servers(store, ports)))
        settings = Settings(state_dir=state, embedded_store=store)
        client = await connect(settings, address=temporal.address)
        await enter(build_worker(client, settings))
        fleet = demo_fleet(host, BRISK, webhook, ports)
        await apply_fleet(
            client, ApplyRequest(fleet=fleet, who="steady demo", search_attributes=True)
        )
        yield _Stage(client, host, box, began)


async def _play_in_time(stage: _Stage) -> list[str]:
    left = _STORY_WITHIN - (time.monotonic() - stage.began)
    try:
        async with asyncio.timeout(left):
            await _play(stage)
    except TimeoutError:
        return [f"the story was not at its end after {_STORY_WITHIN:.0f} s"]
    return []


async def _play(stage: _Stage) -> None:
    reader = SnapshotReader(stage.client)

    async def until(true: Callable[[Snapshot], bool]) -> None:
        while True:
            stage.last = await reader.fetch()
            if true(stage.last):
                return
            await asyncio.sleep(_LOOK_EVERY)

    await until(_all_seen)
    stage.say("all seven servers work")
    stage.host.engine.cure_fails(BROKEN)
    for name in (BROKEN, IDLE_ENGINE, RECOVERS, FREEZING_ENGINE, FREEZES):
        _freeze(stage, name)
    await until(lambda seen: _phase(seen, RECOVERS) is Phase.PERSISTING)
    stage.host.engine.thaw(RECOVERS)
    stage.say(f"{RECOVERS} was found hung, and works again by itself")
    await until(lambda seen: _incident(seen.closed, FREEZES) is not None)
    stage.say(f"{FREEZES} was restarted, and is healthy")
    await until(lambda seen: _incident(seen.closed, FREEZING_ENGINE) is not None)
    stage.say(f"{FREEZING_ENGINE} was restarted, and is healthy")
    await until(lambda seen: _incident(seen.closed, IDLE_ENGINE) is not None)
    stage.say(f"{IDLE_ENGINE} was found by a probe, restarted, and is healthy")
    await until(lambda seen: _incident(seen.closed, RECOVERS) is not None)
    await until(lambda seen: _phase(seen, BROKEN) is Phase.ESCALATED)
    stage.say(f"{BROKEN} waits for a person")
    await _deliveries(stage)


def _freeze(stage: _Stage, server: str) -> None:
    stage.faults[server] = datetime.now(UTC)
    stage.host.engine.freeze(server)
    stage.say(f"{server} freezes")


async def _deliveries(stage: _Stage) -> None:
    """Alerts are not waited for by anybody else, so the last one may still be on its way."""
    end = time.monotonic() + _DELIVERED_WITHIN
    while time.monotonic() < end:
        if all(EXPECTED[name].pages <= set(causes) for name, causes in stage.pages().items()):
            return
        await asyncio.sleep(_LOOK_EVERY)


def _all_seen(seen: Snapshot) -> bool:
    return {view.server for view in seen.servers if view.verdict is not None} == set(NAMES)


def _phase(seen: Snapshot, server: str) -> Phase | None:
    found = _incident(seen.open, server)
    return found.phase if found is not None else None


def _incident(among: list[RemediationStatus], server: str) -> RemediationStatus | None:
    """The newest that was more than a suspicion."""
    return next((each for each in _incidents(among) if each.server == server), None)


def _incidents(among: list[RemediationStatus]) -> list[RemediationStatus]:
    return [status for status in among if status.outcome is not Outcome.NOT_CONFIRMED]


def _ends(stage: _Stage) -> list[ServerEnd]:
    if stage.last is None:
        return []
    pages, restarts, requests = stage.pages(), stage.host.restarts(), stage.host.requests()
    return [
        _end(stage, stage.last, name).model_copy(
            update={
                "restarts": restarts[name],
                "pages": len(pages[name]),
                "requests": requests.get(name),
            }
        )
        for name in NAMES
    ]


def _end(stage: _Stage, seen: Snapshot, server: str) -> ServerEnd:
    incident = _incident([*seen.open, *seen.closed], server)
    if incident is None:
        view = next((view for view in seen.servers if view.server == server), None)
        return ServerEnd(server=server, verdict=view.verdict if view is not None else None)
    fault, found = stage.faults.get(server), incident.detected_at
    detect = (found - fault).total_seconds() if fault is not None and found is not None else None
    return ServerEnd(
        server=server,
        verdict=incident.verdict,
        detect_s=round(detect, 1) if detect is not None else None,
        outcome=incident.outcome,
    )


def _told(stage: _Stage) -> Told:
    runs = [*stage.last.open, *stage.last.closed] if stage.last is not None else []
    return Told(pages=stage.pages(), incidents=Counter(each.server for each in _incidents(runs)))
