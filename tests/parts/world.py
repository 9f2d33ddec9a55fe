"""One server and its host as fakes on virtual time, for the remediation's own logic.

The guard is the real workflow. What is faked is what has no place on a
time-skipping server: the fleet's policy, the heartbeat record, and the host.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.testing import WorkflowEnvironment

from fleet.config import DockerRestart, Drill, Host, RedisSource, Restart, ServerSpec
from fleet.contracts.alerts import AlertMessage, Severity
from fleet.contracts.fleet import Pause, PresentPolicy, StormTerms
from fleet.contracts.gateway import DrainRequest, DrainResult, Gateways, UndrainRequest
from fleet.contracts.host import (
    Effect,
    Evidence,
    EvidenceRequest,
    GpuFault,
    GpuHolder,
    GpuReport,
    GpuRequest,
    HostErrorType,
    HostRequest,
    HostState,
    HostStatus,
    RestartOrder,
    RestartResult,
)
from fleet.contracts.names import REMEDIATION, TASK_QUEUE, ServerRequest, alert_id, remediation_id
from fleet.contracts.remediation import RemediationInput, RemediationSignal, RemediationStatus
from fleet.contracts.sweep import Observation
from fleet.ladder import Step, beneath
from fleet.policy import HostBudget, Policy
from fleet.readings import Reading, WorkState, missing
from fleet.verdicts import Verdict
from workflows.remediation import Remediation

#: Called just before an activity answers; may change the world, or raise.
Hook = Callable[[], Awaitable[None] | None]


MINUTE = timedelta(minutes=1)


_BOX = Host(address="127.0.0.1", user="ops", key="/key")


class World:
    """A server that hung at ``frozen_at`` (none: it works), and what was done to it."""

    def __init__(self, env: WorkflowEnvironment, name: str, policy: Policy) -> None:
        self.env, self.server, self.policy = env, name, policy
        self.in_fleet = True
        #: Where it is set, the machine has a guard, with this budget.
        self.machine: str | None = None
        self.host_budget = HostBudget()
        self.pause: Pause | None = None
        self.drill: Drill | None = None
        self.storm: StormTerms | None = None
        self.frozen_at: datetime | None = None
        self.recovers_at: datetime | None = None
        self.state = WorkState.PROCESSING
        self.gone_until: datetime | None = None
        self.cure_works = True
        self.boot = timedelta(minutes=1)
        self.container, self.generation = "container-1", 1
        self.started_at: datetime | None = None
        self.status = HostStatus.RUNNING
        self.unreachable = False
        self.effect = Effect.DONE
        self.takes_effect = True
        self.command_hangs = False
        self.ladder: tuple[Restart, ...] = ()
        self.rungs: list[int] = []
        self.later = False
        self.action: Restart = DockerRestart(kind="docker", host="box", name="worker")
        self.holders: list[GpuHolder] = []
        self.freed = True
        self.stops: list[RestartOrder] = []
        self.starts: list[RestartOrder] = []
        self.stop_says: Effect | None = None
        self.start_fails = False
        self.hindrance = ""
        self.restarts: list[datetime] = []
        self.evidence: list[str] = []
        self.faults: list[GpuFault] = []
        self.told: list[AlertMessage] = []
        self.raised: list[str] = []
        #: Where it is set, a gateway routes to the server; ``leases`` are by ID, with their spans.
        self.gateways: Gateways | None = None
        self.gateway_is_down = False
        self.drains: list[DrainRequest] = []
        self.leases: dict[str, timedelta] = {}
        self.drained: set[str] = set()
        self.in_flight = 0
        self.hooks: dict[str, list[Hook]] = {}

    # --- what the test says -----------------------------------------------------------------------

    async def now(self) -> datetime:
        return await self.env.get_current_time()

    async def freeze(self, ago: timedelta = timedelta(seconds=180)) -> None:
        self.frozen_at = await self.now() - ago

    def before(self, step: str, hook: Hook) -> None:
        """Run ``hook`` once, just before the next answer of that activity."""
        self.hooks.setdefault(step, []).append(hook)

    async def observation(
        self, verdict: Verdict = Verdict.HUNG, since: datetime | None = None, key: str = "sweep-1"
    ) -> Observation:
        at = await self.now()
        return Observation(
            server=self.server,
            verdict=verdict,
            since=since or at - timedelta(seconds=30),
            reading=self._reading(at),
            why="state processing, heartbeat old",
            key=key,
        )

    async def report(
        self, verdict: Verdict = Verdict.HUNG, since: datetime | None = None, key: str = "sweep-1"
    ) -> WorkflowHandle[Any, RemediationStatus]:
        """Do what a sweep does: signal-with-start under the server's fixed ID."""
        observation = await self.observation(verdict, since, key)
        return await self._start(RemediationSignal.OBSERVE, observation)

    async def order(self, signal: RemediationSignal, request: Any) -> WorkflowHandle[Any, Any]:
        return await self._start(signal, request)

    async def _start(self, signal: str, argument: Any) -> WorkflowHandle[Any, RemediationStatus]:
        # The time-skipping server refuses a start that races another, whatever the policy says.
        for _ in range(10):
            with suppress(WorkflowAlreadyStartedError):
                return await self._signal_with_start(signal, argument)
        raise AssertionError(f"{self.server} could not be reported in ten tries")

    async def _signal_with_start(self, signal: str, argument: Any) -> WorkflowHandle[Any, Any]:
        return await self.env.client.start_workflow(
            REMEDIATION,
            RemediationInput(server=self.server),
            id=remediation_id(self.server),
            task_queue=TASK_QUEUE,
            start_signal=signal,
            start_signal_args=[argument],
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            result_type=RemediationStatus,
        )

    async def end(self, handle: WorkflowHandle[Any, RemediationStatus]) -> RemediationStatus:
        """Let time pass until the run has closed, and return its result.

        In steps, and not by the time-skipping ``result()``: between a close and its answer that one
        may skip to the next timer, which is the guard's own end ten years later.

        Raises:
            WorkflowFailureError: it was cancelled or terminated.
            AssertionError: it is still open after two days.
        """
        plain = self.env.client.get_workflow_handle_for(
            Remediation.run, handle.id, run_id=handle.result_run_id
        )
        for step in [MINUTE / 2] * 80 + [MINUTE * 20] * 150:
            if (await plain.describe()).status is not WorkflowExecutionStatus.RUNNING:
                return await plain.result()
            await self.env.sleep(step)
        message = "the remediation is still open after two days"
        raise AssertionError(message)

    async def end_of_given_up(
        self, handle: WorkflowHandle[Any, RemediationStatus], sent: asyncio.Event
    ) -> RemediationStatus:
        """Let time pass until ``sent``, and then no more: an activity that a workflow gave up keeps
        the time-skipping server from skipping ever again.
        """
        plain = self.env.client.get_workflow_handle_for(
            Remediation.run, handle.id, run_id=handle.result_run_id
        )
        for _ in range(600):
            if sent.is_set():
                return await asyncio.wait_for(plain.result(), 10)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.env.sleep(timedelta(seconds=1)), 5)
        message = "the moment to cancel never came"
        raise AssertionError(message)

    @property
    def pages(self) -> list[str]:
        return [alert.cause for alert in self.told if alert.severity is Severity.PAGE]

    @property
    def causes(self) -> list[str]:
        return [alert.cause for alert in self.told]

    # --- what the world shows ---------------------------------------------------------------------

    def _reading(self, at: datetime) -> Reading:
        if self.gone_until is not None and at < self.gone_until:
            return missing(self.server, at, "connection refused")
        frozen = self.frozen_at
        if self.recovers_at is not None and at >= self.recovers_at:
            frozen = None
        return Reading(
            server=self.server,
            at=at,
            state=self.state,
            word=str(self.state),
            heartbeat=frozen if frozen is not None else at,
            job="render-7",
        )

    def _host(self, rung: int = 0) -> HostState:
        own = HostState(
            status=self.status,
            identity=self.container,
            started=f"start-{self.generation}",
            started_at=self.started_at,
        )
        rung = min(rung, len(self.ladder))
        if rung == 0:
            return own
        step = own.model_copy(
            update={"identity": f"step-{rung}", "started": f"its-{self.generation}"}
        )
        return beneath(step, own)

    async def _answer(self, step: str) -> None:
        for hook in self.hooks.pop(step, []):
            outcome = hook()
            if outcome is not None:
                await outcome

    def _restarted(self, at: datetime) -> None:
        self.generation += 1
        self.started_at = at
        if self.cure_works:
            self.recovers_at = at + self.boot

    # --- the activities ---------------------------------------------------------------------------

    @activity.defn
    async def present_policy(self, request: ServerRequest) -> PresentPolicy:
        await self._answer("present_policy")
        spec = ServerSpec(
            name=request.server,
            source=RedisSource(key="worker"),
            store=None,
            restart=self.action,
            host=_BOX.model_copy(update={"budget": self.host_budget}),
            ladder=tuple(Step(action=action, host=_BOX) for action in self.ladder),
            policy=self.policy,
            drill=self.drill,
        )
        return PresentPolicy(
            version=1,
            spec=spec if self.in_fleet else None,
            pause=self.pause,
            sweep_every=MINUTE / 2 if self.drill is not None else None,
            machine=self.machine,
            storm=self.storm,
            gateways=self.gateways,
        )

    @activity.defn
    async def read_server(self, request: ServerRequest) -> Reading:
        await self._answer("read_server")
        return self._reading(await self.now())

    @activity.defn
    async def inspect_host(self, request: HostRequest) -> HostState:
        await self._answer("inspect_host")
        self._reach()
        asked = request.before_restart or request.closely
        shown = self._host(request.rung)
        if request.before_restart:
            shown = shown.model_copy(update={"gpu": self.holders})
        return shown.model_copy(update={"hindrance": self.hindrance if asked else ""})

    @activity.defn
    async def collect_evidence(self, request: EvidenceRequest) -> Evidence:
        await self._answer("collect_evidence")
        self.evidence.append(request.incident)
        return Evidence(
            path=f"/evidence/{request.incident}",
            size=42,
            process=self._host(),
            faults=self.faults,
        )

    @activity.defn
    async def restart_server(self, order: RestartOrder) -> RestartResult:
        await self._answer("restart_server")
        self._reach()
        shown = self._host(order.rung)
        if not shown.same_process(order.expected) or self.status is not HostStatus.RUNNING:
            raise ApplicationError(
                "another process runs there now", type=HostErrorType.SUPERSEDED, non_retryable=True
            )
        at = await self.now()
        if self.effect is not Effect.FAILED:
            self.restarts.append(at)
            self.rungs.append(order.rung)
        if self.takes_effect and self.effect is not Effect.FAILED:
            self._restarted(at)
        return RestartResult(
            effect=self.effect,
            settle_within=timedelta(seconds=30),
            hung=self.command_hangs,
            later=self.later,
        )

    @activity.defn
    async def stop_server(self, order: RestartOrder) -> RestartResult:
        await self._answer("stop_server")
        self._reach()
        self.stops.append(order)
        if self.stop_says is not Effect.FAILED:
            self.status = HostStatus.STOPPED
        effect = self.stop_says or Effect.DONE
        return RestartResult(
            effect=effect, settle_within=timedelta(seconds=30), hung=self.command_hangs
        )

    @activity.defn
    async def start_server(self, order: RestartOrder) -> RestartResult:
        await self._answer("start_server")
        self._reach()
        self.starts.append(order)
        if self.start_fails:
            return RestartResult(effect=Effect.FAILED, detail="no such device")
        if self.status is HostStatus.STOPPED:
            self.status = HostStatus.RUNNING
            self.restarts.append(await self.now())
            self._restarted(await self.now())
        return RestartResult(effect=Effect.DONE)

    @activity.defn
    async def gpu_holders(self, request: GpuRequest) -> GpuReport:
        await self._answer("gpu_holders")
        self._reach()
        held = [] if self.freed else [one for one in self.holders if one.pid in request.pids]
        return GpuReport(holders=held)

    @activity.defn
    async def drain_server(self, request: DrainRequest) -> DrainResult:
        await self._answer("drain_server")
        self.drains.append(request)
        if self.gateway_is_down:
            return DrainResult(failed=["the gateway at gw:1: connection refused"])
        self.leases[request.lease] = request.lasting
        self.drained |= set(request.servers or [request.server])
        return DrainResult(drained=1, in_flight=self.in_flight, waited=request.wait)

    @activity.defn
    async def undrain_server(self, request: UndrainRequest) -> None:
        await self._answer("undrain_server")
        if self.gateway_is_down:
            raise ApplicationError("the gateway at gw:1: connection refused")
        self.drained -= set(request.servers or [request.server])
        if not self.drained:
            self.leases.pop(request.lease, None)

    def _reach(self) -> None:
        if self.unreachable:
            raise ApplicationError(
                "connection refused", type=HostErrorType.UNREACHABLE, non_retryable=True
            )

    async def write_down(self, message: AlertMessage) -> bool:
        """Stand in for ``raise_alert``: once a cause an incident."""
        self.raised.append(message.cause)
        name = alert_id(message.incident, message.cause)
        if name in (alert_id(told.incident, told.cause) for told in self.told):
            return False
        self.told.append(message)
        return True

    @property
    def activities(self) -> list[Callable[..., Any]]:
        return [
            self.present_policy,
            self.read_server,
            self.inspect_host,
            self.collect_evidence,
            self.restart_server,
            self.stop_server,
            self.start_server,
            self.gpu_holders,
            self.drain_server,
            self.undrain_server,
        ]
