"""One frozen or working container of a rig: what is done to it, and what became of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from temporalio.client import WorkflowExecution, WorkflowHandle, WorkflowQueryFailedError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from activities.ledgers import GuardReader
from fleet.actions import Host
from fleet.contracts.alerts import Severity
from fleet.contracts.guard import GuardState
from fleet.contracts.names import remediation_id
from fleet.contracts.remediation import STATUS_QUERY, Phase, RemediationStatus
from worker.runner import REFUSED, PunctualRunner
from workflows.remediation import Remediation

if TYPE_CHECKING:
    from tests.parts.rig import Rig

_LOOK_EVERY = 0.5


async def until(is_so: Callable[[], Awaitable[bool]], what: str, within: float = 60) -> None:
    """Wait for something that must come; ``within`` seconds are far more than it takes."""
    deadline = time.monotonic() + within
    while not await is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come in {within:g} s: {what}")
        await asyncio.sleep(_LOOK_EVERY)


@dataclass(frozen=True)
class Plan:
    """A server to be: what differs from the shortened policy, and how its host is reached.

    ``stop`` is how long a frozen container takes to be stopped: it can't hear SIGTERM. ``drill`` is
    the table that marks it for drills; none: it is not marked. ``restart`` has further keys of its
    restart.
    """

    policy: Mapping[str, Any] = field(default_factory=dict)
    stop: str = "1s"
    host: Host | None = None
    cli: Sequence[str] = ()
    boot: float = 0.3
    drill: Mapping[str, Any] | None = None
    restart: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """What docker says of a container; ``starts`` are the times that its process was started."""

    identity: str
    started: str
    status: str
    starts: int


class Server:
    """One container with a heartbeat worker, its incident, and what people were told of it."""

    def __init__(self, rig: "Rig", name: str, plan: Plan) -> None:
        self.rig, self.name, self.plan = rig, name, plan

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.rig.client.get_workflow_handle(remediation_id(self.name))

    # --- what a test does to it -------------------------------------------------------------------

    async def run(self) -> None:
        """Start its container, and wait for the first heartbeat."""
        await asyncio.to_thread(self.rig.start_container, self.name, self.plan.boot)
        await until(self._publishes, f"the first heartbeat of {self.name}")

    async def freeze(self) -> None:
        await self.rig.docker_do("kill", "--signal", "STOP", self.name)

    async def thaw(self) -> None:
        await self.rig.docker_do("kill", "--signal", "CONT", self.name)

    async def _publishes(self) -> bool:
        with self.rig.store.client() as store:
            return bool(await asyncio.to_thread(store.exists, f"worker:{self.name}"))

    # --- what became of it ------------------------------------------------------------------------

    async def facts(self) -> Facts:
        shown = await asyncio.to_thread(self.rig.docker.inspect, self.name)
        state = shown["State"]
        logs = await asyncio.to_thread(self.rig.container_log, self.name)
        began = logs.count(f"loading {self.name} ")
        return Facts(shown["Id"], state["StartedAt"], state["Status"], began)

    async def status(self) -> RemediationStatus | None:
        """Of its newest remediation; none where there was none, or it can't be asked right now."""
        try:
            found: RemediationStatus = await self.handle.query(
                STATUS_QUERY, result_type=RemediationStatus
            )
        except WorkflowQueryFailedError as problem:
            if problem.message == REFUSED:
                return None
            raise
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        return found

    async def comes_to(self, *phases: Phase, within: float = 60) -> RemediationStatus:
        """Wait until its remediation is in one of the phases."""
        seen: list[RemediationStatus | None] = [None]

        async def is_there() -> bool:
            seen[0] = await self.status()
            return seen[0] is not None and seen[0].phase in phases

        try:
            await until(is_there, f"{self.name}: {', '.join(phases)}", within)
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {seen[0]!r}") from None
        assert seen[0] is not None
        return seen[0]

    async def ends(self, within: float = 90) -> RemediationStatus:
        """Wait until its remediation has ended."""
        return await self.comes_to(Phase.CLOSED, within=within)

    async def guard(self) -> GuardState:
        state = await GuardReader(self.rig.client).state(self.name)
        assert state is not None, f"{self.name} has no guard"
        return state

    async def runs(self) -> list[WorkflowExecution]:
        """Every run of its remediation, oldest first."""
        found = self.rig.client.list_workflows(f"WorkflowId = '{remediation_id(self.name)}'")
        return sorted([run async for run in found], key=lambda run: run.start_time)

    async def replays(self) -> None:
        """Every run of its remediation can be done again from its history, by any worker."""
        replayer = Replayer(
            workflows=[Remediation],
            workflow_runner=PunctualRunner(),
            data_converter=pydantic_data_converter,
        )
        for run in await self.runs():
            handle = self.rig.client.get_workflow_handle(run.id, run_id=run.run_id)
            await replayer.replay_workflow(await handle.fetch_history())

    @property
    def told(self) -> list[dict[str, Any]]:
        """The alerts that arrived, in the order in which their incidents raised them."""
        posted = [request.json() for request in self.rig.inbox.received]
        return [alert for alert in posted if alert["server"] == self.name]

    @property
    def causes(self) -> list[str]:
        return sorted(alert["cause"] for alert in self.told)

    @property
    def pages(self) -> list[str]:
        paged = [alert for alert in self.told if alert["severity"] == Severity.PAGE]
        return sorted(alert["cause"] for alert in paged)

    async def is_told(self, *causes: str, within: float = 30) -> None:
        """Wait until each cause has arrived; nobody else waits for an alert."""

        async def has_come() -> bool:
            return set(causes) <= set(self.causes)

        try:
            await until(has_come, f"alerts of {self.name}: {causes}", within)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; came: {self.causes}") from None
