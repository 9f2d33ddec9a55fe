"""Several servers with one ``storm-guard``, as fakes on virtual time: each is a ``World``."""

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities.guards import GuardActivities
from activities.storms import StormActivities, StormReader
from fleet.contracts.alerts import AlertMessage
from fleet.contracts.fleet import PresentPolicy, StormTerms
from fleet.contracts.guard import GuardInput, TakeRequest, TakeResult
from fleet.contracts.host import (
    Evidence,
    EvidenceRequest,
    HostRequest,
    HostState,
    RestartOrder,
    RestartResult,
)
from fleet.contracts.names import (
    SERVER_GUARD,
    STORM_GUARD_ID,
    TASK_QUEUE,
    ServerRequest,
    alert_id,
    guard_id,
)
from fleet.contracts.storm import ShareReport, StormState
from fleet.policy import Policy, Storm
from fleet.readings import Reading
from tests.parts.world import World
from workflows.guard import ServerGuard


class Limits:
    """The part of ``PolicyReader`` that looks at slots."""

    def __init__(self, town: "Town") -> None:
        self._town = town

    async def storm(self) -> StormTerms:
        return self._town.terms


class Town:
    """``worlds`` by server; ``told`` is what people heard of the whole fleet."""

    def __init__(
        self, env: WorkflowEnvironment, names: list[str], policy: Policy, storm: Storm
    ) -> None:
        self.env = env
        self.terms = StormTerms(version=1, servers=len(names), shards=1, storm=storm)
        self.worlds = {name: World(env, name, policy) for name in names}
        for world in self.worlds.values():
            world.storm = self.terms
        self.told: list[AlertMessage] = []
        self.storms = StormActivities(env.client, Limits(self))
        self.guards = GuardActivities(env.client)

    def __getitem__(self, name: str) -> World:
        return self.worlds[name]

    async def found(self) -> None:
        for name in self.worlds:
            await self.env.client.start_workflow(
                SERVER_GUARD,
                GuardInput(server=name, founding=True),
                id=guard_id(name),
                task_queue=TASK_QUEUE,
            )

    @property
    def storm_guard(self) -> WorkflowHandle[Any, Any]:
        return self.env.client.get_workflow_handle(STORM_GUARD_ID)

    async def state(self) -> StormState:
        return await StormReader(self.env.client).state()

    async def sweep(self, *bad: str, managed: int | None = None) -> None:
        """Report as a sweep does: these are bad now, from now on, and no other is."""
        now = await self.env.get_current_time()
        before = (await self.state()).shards.get(0)
        known = before.ill if before is not None else {}
        report = ShareReport(
            shard=0,
            at=now,
            managed=len(self.worlds) if managed is None else managed,
            ill={name: known.get(name, now) for name in bad},
            terms=self.terms,
        )
        asker = ActivityEnvironment()
        asker.info = dataclasses.replace(asker.info, task_queue=TASK_QUEUE)
        await asker.run(self.storms.report_share, report)

    async def budget_used(self, name: str) -> int:
        handle = self.env.client.get_workflow_handle(guard_id(name))
        return len((await handle.query(ServerGuard.state)).takes)

    async def now(self) -> datetime:
        return await self.env.get_current_time()

    async def pass_time(self, span: timedelta, step: timedelta = timedelta(minutes=1)) -> None:
        while span > timedelta(0):
            await self.env.sleep(min(span, step))
            span -= step

    @property
    def causes(self) -> list[str]:
        return [alert.cause for alert in self.told]

    async def write_down(self, message: AlertMessage) -> bool:
        """Stand in for ``raise_alert``, of servers and of the fleet: once a cause an incident."""
        if message.server:
            return await self.worlds[message.server].write_down(message)
        name = alert_id(message.incident, message.cause)
        assert name not in [alert_id(told.incident, told.cause) for told in self.told]
        self.told.append(message)
        return True

    # --- the activities ---------------------------------------------------------------------------

    @activity.defn
    async def present_policy(self, request: ServerRequest) -> PresentPolicy:
        return await self[request.server].present_policy(request)

    @activity.defn
    async def read_server(self, request: ServerRequest) -> Reading:
        return await self[request.server].read_server(request)

    @activity.defn
    async def inspect_host(self, request: HostRequest) -> HostState:
        return await self[request.server].inspect_host(request)

    @activity.defn
    async def collect_evidence(self, request: EvidenceRequest) -> Evidence:
        return await self[request.server].collect_evidence(request)

    @activity.defn
    async def restart_server(self, order: RestartOrder) -> RestartResult:
        return await self[order.server].restart_server(order)

    @activity.defn
    async def take_budget(self, request: TakeRequest) -> TakeResult:
        await self[request.server]._answer("take_budget")
        return await self.guards.take_budget(request)

    @property
    def activities(self) -> list[Callable[..., Any]]:
        return [
            self.present_policy,
            self.read_server,
            self.inspect_host,
            self.collect_evidence,
            self.restart_server,
            self.take_budget,
            self.guards.open_incident,
            self.guards.give_back,
            self.guards.close_incident,
            *self.slots,
        ]

    @property
    def slots(self) -> list[Callable[..., Any]]:
        return [
            self.storms.ask_slot,
            self.storms.release_slot,
            self.storms.report_share,
            self.storms.look_at_slots,
        ]
