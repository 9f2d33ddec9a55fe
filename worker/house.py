"""Everything that ``steady up`` runs, started in order and stopped in the opposite one."""

import asyncio
import getpass
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from fleet.config import Fleet, RedisSource
from fleet.contracts.fleet import ApplyRequest, ApplyResult
from simulator.engine import Engine
from simulator.host import sim_host
from simulator.inbox import Inbox, inbox
from simulator.weather import Weather
from worker.apply import apply_fleet, with_ui
from worker.attributes import Attributes, register_search_attributes
from worker.connection import connect, named_address
from worker.demo_fleet import (
    BROKEN,
    CALM,
    FREEZES,
    FREEZING_ENGINE,
    IDLE_ENGINE,
    RECOVERS,
    demo_fleet,
    engine_ports,
    simulated_servers,
)
from worker.embedded import embedded_temporal, embedded_valkey
from worker.settings import Settings
from worker.state import owned, port_for
from worker.vitals import Stamps
from worker.watch import watch
from worker.worker import build_worker


@dataclass(frozen=True)
class House:
    """What runs. ``fleet`` is the first one; ``ui_url`` is none where Temporal is not ours."""

    client: Client
    address: str
    ui_url: str | None
    attributes: Attributes
    fleet: Fleet
    has_store: bool
    inbox: Inbox

    def alerts(self, since: int = 0) -> list[str]:
        """What the demonstration's own receiver of alerts was told after the first ``since``."""
        new = min(self.inbox.received - since, len(self.inbox.messages))
        messages = self.inbox.messages[-new:] if new > 0 else []
        return [f"{said.get('severity')}: {said.get('title')}" for said in messages]

    async def apply(self, fleet: Fleet) -> ApplyResult:
        """Put a fleet in force, with links to our Temporal UI. Raises SetupError."""
        request = ApplyRequest(
            fleet=with_ui(fleet, self.ui_url),
            who=getpass.getuser(),
            search_attributes=self.attributes.available,
        )
        return await apply_fleet(self.client, request)


@asynccontextmanager
async def house(fleet: Fleet | None, settings: Settings) -> AsyncIterator[House]:
    """Run the servers and the worker for the length of the block; no fleet: the demonstration.

    Temporal is embedded unless the environment names one, Valkey where a source names no store.

    Raises:
        SetupError: something can't be started, or ended before the block did.
    """
    async with AsyncExitStack() as stack:
        state = stack.enter_context(owned(settings.state_dir))
        named, temporal, box = named_address(), None, Inbox()
        if named is None:
            temporal = await stack.enter_async_context(embedded_temporal(state))
        store = settings.embedded_store
        if store is None and (fleet is None or needs_store(fleet)):
            store = await stack.enter_async_context(embedded_valkey(state))
        if fleet is None:
            box = await stack.enter_async_context(inbox())
            fleet = await stack.enter_async_context(_demonstration(state, store or "", box))
        own = temporal.address if temporal is not None else None
        client = await connect(settings, address=own, within=settings.connect_within)
        attributes = await register_search_attributes(client)
        ours = settings.model_copy(update={"embedded_store": store, "state_dir": state})
        vitals = await stack.enter_async_context(watch(client, ours))
        await stack.enter_async_context(build_worker(client, ours, [Stamps(vitals)]))
        yield House(
            client=client,
            address=own or named or "",
            ui_url=temporal.ui_url if temporal is not None else None,
            attributes=attributes,
            fleet=fleet,
            has_store=store is not None,
            inbox=box,
        )


def needs_store(fleet: Fleet) -> bool:
    """Whether a server's heartbeat record lies in no store that the fleet names."""
    sources = (server.source for server in fleet.servers.values())
    return any(isinstance(source, RedisSource) and source.store is None for source in sources)


@asynccontextmanager
async def _demonstration(state: Path, store: str, box: Inbox) -> AsyncIterator[Fleet]:
    ports = engine_ports(state)
    servers = simulated_servers(store, ports)
    port = port_for(state, "simulated_ssh", None)
    webhook = state / "webhook"
    webhook.write_text(box.url)
    async with sim_host(state / "simulator", servers, port=port) as host:
        weather = asyncio.create_task(_blow(host.engine))
        try:
            yield demo_fleet(host, CALM, webhook, ports)
        finally:
            weather.cancel()
            with suppress(asyncio.CancelledError):
                await weather


async def _blow(engine: Engine) -> None:
    weather = Weather(FREEZES, RECOVERS, BROKEN, engines=(FREEZING_ENGINE, IDLE_ENGINE))
    await weather.blow(engine)
