"""The hands of a drill: what is known before it, the freeze, and the thaw that ends it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.host import FRESH_FOR
from activities.inspection import inspect, service_of
from activities.ledgers import GuardReader
from activities.pulse import pulse
from activities.ssh import Completed, Limits, LostTrackError, Shell, connected
from activities.ssh_trust import NotSentError
from activities.storms import StormReader
from fleet.actions import ComposeRestart, DockerRestart, Drill, Restart
from fleet.config import ServerSpec
from fleet.contracts.drill import (
    DrillErrorType,
    FreezeOrder,
    Healing,
    Ledger,
    Survey,
    SurveyRequest,
    Thawed,
    ThawOrder,
)
from fleet.contracts.fleet import PresentPolicy
from fleet.contracts.host import Effect, HostErrorType, HostState, HostStatus, RestartResult
from fleet.contracts.names import remediation_id
from fleet.contracts.remediation import STATUS_QUERY, RemediationStatus
from fleet.drill import held_back, unmarked
from fleet.freezing import freeze_argv, left_behind, restart_policy_argv, thaw_argv
from fleet.hosts import Argv, must_not_restart
from fleet.ledger import budget_left, local_day
from fleet.policy import DailyBudget

_RPC_TIMEOUT = timedelta(seconds=10)
_COMMAND = Limits(seconds=30, keep=16 * 1024)
_LOOK = Limits(seconds=10, keep=4096, flood=64 * 1024)
_PASSING = frozenset({HostErrorType.UNREACHABLE, HostErrorType.NO_POLICY})


class PresentPolicies(Protocol):
    """Who knows what is in force for a server at this moment."""

    async def present(self, server: str) -> PresentPolicy: ...


class DrillActivities:
    """Where ``freeze_server`` raises, it is proved that nothing was frozen."""

    def __init__(self, policies: PresentPolicies, client: Client) -> None:
        self._policies = policies
        self._client = client
        self._guards = GuardReader(client)
        self._storms = StormReader(client)

    @activity.defn
    async def survey_server(self, request: SurveyRequest) -> Survey:
        """What steady itself holds of the server now: its ledger, and its newest remediation."""
        async with pulse():
            return Survey(
                ledger=await self._ledger(request),
                healing=await self._healing(request.server),
                held_back=held_back(await self._storms.state()),
            )

    @activity.defn
    async def freeze_server(self, order: FreezeOrder) -> RestartResult:
        """Freeze the server's process, if the server is marked and it is still the expected one.

        Whether it is marked is asked here and now, whatever was known when the drill began.

        Raises:
            ApplicationError: of a ``DrillErrorType`` or ``HostErrorType``; nothing was frozen.
        """
        try:
            async with pulse():
                spec, drill = await self._marked(order.server)
                assert spec.restart is not None
                assert spec.host is not None
                async with connected(spec.host) as shell:
                    return await _freeze(shell, spec.restart, drill, order.expected)
        except NotSentError as problem:
            raise _refused(problem, retry=False) from None

    @activity.defn
    async def thaw_server(self, order: ThawOrder) -> Thawed:
        """Let the process go on, if it is still there. May be repeated: a second one does nothing.

        Raises:
            ApplicationError: of a ``HostErrorType``; it may be frozen still.
        """
        spec, drill = order.spec, order.spec.drill or Drill()
        if spec.restart is None or spec.host is None:
            return Thawed(needed=False, detail="nothing of it could have been frozen")
        try:
            async with pulse(), connected(spec.host) as shell:
                return await _thaw(shell, spec.restart, drill, order.frozen)
        except NotSentError as problem:
            raise _refused(problem, retry=True) from None

    # --- what steady holds -----------------------------------------------------------------------

    async def _ledger(self, request: SurveyRequest) -> Ledger:
        state = await self._guards.state(request.server)
        if state is None:
            return Ledger()
        now, budget = datetime.now(UTC), request.budget
        day = local_day(budget.per_day_in, now) if isinstance(budget, DailyBudget) else None
        left = budget_left(state, budget, now, day)
        if request.machine is not None and request.machine_budget is not None:
            machine = await self._guards.host(request.machine)
            total = budget_left(machine, request.machine_budget, now) if machine is not None else 0
            left = min(left, total)
        return Ledger(
            left=left,
            incident=state.incident.id if state.incident is not None else None,
            cooldown_until=state.cooldown_until,
        )

    async def _healing(self, server: str) -> Healing | None:
        handle = self._client.get_workflow_handle(remediation_id(server))
        try:
            found = await handle.describe(rpc_timeout=_RPC_TIMEOUT)
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        return _healing(found, await self._status(server, found.run_id))

    async def _status(self, server: str, run_id: str) -> RemediationStatus | None:
        handle = self._client.get_workflow_handle(remediation_id(server), run_id=run_id)
        try:
            status: RemediationStatus = await handle.query(
                STATUS_QUERY, result_type=RemediationStatus, rpc_timeout=_RPC_TIMEOUT
            )
        except (WorkflowQueryFailedError, RPCError):
            # Its next step is on its way, or its worker is gone: the next look asks again.
            return None
        return status

    async def _marked(self, server: str) -> tuple[ServerSpec, Drill]:
        try:
            spec = (await self._policies.present(server)).spec
        except ApplicationError as problem:
            raise NotSentError(HostErrorType.NO_POLICY, problem.message) from problem
        if spec is None:
            raise NotSentError(HostErrorType.REMOVED, f"{server} is not in the fleet any more")
        if spec.drill is None:
            raise ApplicationError(
                f"{server}: {unmarked(server)}", type=DrillErrorType.NOT_MARKED, non_retryable=True
            )
        if spec.restart is None or spec.host is None:
            raise NotSentError(HostErrorType.NO_ACTION, f"{server} has no restart configured")
        return spec, spec.drill


def _healing(found: WorkflowExecutionDescription, status: RemediationStatus | None) -> Healing:
    healing = Healing(
        began=found.start_time, running=found.status is WorkflowExecutionStatus.RUNNING
    )
    if status is None:
        return healing
    return healing.model_copy(
        update={
            **{key: getattr(status, key) for key in _TAKEN_OVER},
            "said": (status.next_step or str(status.phase))[:200],
        }
    )


_TAKEN_OVER = (
    *("phase", "outcome", "incident", "detected_at", "restarted_at", "closed_at", "restarts"),
)


async def _freeze(
    shell: Shell, restart: Restart, drill: Drill, expected: HostState
) -> RestartResult:
    asked = time.monotonic()
    reason = must_not_restart(restart, expected, await inspect(shell, restart))
    if reason:
        raise NotSentError(HostErrorType.SUPERSEDED, reason)

    def last_look() -> None:
        """A worker that was itself frozen in between must not freeze what may be given up."""
        if time.monotonic() - asked > FRESH_FOR:
            raise NotSentError(
                HostErrorType.UNREACHABLE, "what the host said went stale before the command left"
            )

    try:
        completed = await shell.act(freeze_argv(restart, drill), _COMMAND, last_look)
    except LostTrackError as problem:
        return RestartResult(effect=Effect.UNKNOWN, detail=str(problem)[:500])
    if completed.status == 0:
        return RestartResult(effect=Effect.DONE)
    said = completed.reply.tail(400)
    return RestartResult(
        effect=Effect.FAILED, detail=f"the command ended with status {completed.status}: {said}"
    )


async def _thaw(shell: Shell, restart: Restart, drill: Drill, frozen: HostState) -> Thawed:
    now = await inspect(shell, restart)
    if now.status in (HostStatus.STOPPED, HostStatus.GONE):
        return Thawed(needed=False, detail=f"on the host it is {now.status}")
    if frozen.identity and now.identity and not now.same_process(frozen):
        return Thawed(needed=False, detail="another process runs there now")
    completed = await _run(shell, thaw_argv(restart, drill), _COMMAND)
    if completed.status != 0:
        raise NotSentError(
            HostErrorType.UNREACHABLE,
            f"the command that thaws ended with status {completed.status}:"
            f" {completed.reply.tail(300)}",
        )
    lost = "" if drill.freeze else left_behind(await _restart_policy(shell, restart))
    return Thawed(needed=True, detail=lost)


async def _restart_policy(shell: Shell, restart: Restart) -> str:
    """Empty where there is none, or it can't be told: that harms no thaw."""
    try:
        name = await _container(shell, restart)
        argv = restart_policy_argv(restart, name) if name else ()
        completed = await _run(shell, argv, _LOOK) if argv else None
    except NotSentError:
        return ""
    return completed.reply.out if completed is not None and completed.status == 0 else ""


async def _container(shell: Shell, restart: Restart) -> str | None:
    match restart:
        case DockerRestart():
            return restart.name
        case ComposeRestart():
            return await service_of(shell, restart)
        case _:
            return None


async def _run(shell: Shell, argv: Argv, limits: Limits) -> Completed:
    try:
        return await shell.run(argv, limits)
    except LostTrackError as problem:
        raise NotSentError(HostErrorType.UNREACHABLE, str(problem)) from None


def _refused(problem: NotSentError, *, retry: bool) -> ApplicationError:
    return ApplicationError(
        str(problem),
        type=problem.kind,
        non_retryable=not (retry and problem.kind in _PASSING),
    )
