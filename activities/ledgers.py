"""Asks ``guard/<server>`` and ``host-guard/<machine>``: a ledger that is gone comes back used up.

For activities and for commands alike. Whatever can't be asked grants nothing.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, TypeVar

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from fleet.contracts.guard import (
    Claim,
    GiveBackRequest,
    GuardInput,
    GuardQuery,
    GuardState,
    GuardUpdate,
    HostGuardInput,
    HostLedger,
    HostShare,
    HostSignal,
    HostTakeRequest,
    Refuser,
    ResetRequest,
    StartRequest,
    StartResult,
    Take,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.names import HOST_GUARD, SERVER_GUARD, Message, guard_id, host_guard_id
from fleet.ledger import local_day
from fleet.policy import DailyBudget

RPC_TIMEOUT = timedelta(seconds=10)

#: ``ApplicationError.type`` where the guard refused the request itself; never retried.
GUARD_REFUSED = "GuardRefused"
#: ``ApplicationError.type`` where the guard could not be asked; retrying is right, and safe.
GUARD_UNREACHABLE = "GuardUnreachable"

_CLOSED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"

_Answer = TypeVar("_Answer", bound=Message | None)
_Claim = TypeVar("_Claim", bound=Claim)
_State = TypeVar("_State", bound=Message)


@dataclass(frozen=True)
class Guard:
    """One guard: its workflow, and how it is started where it does not run."""

    workflow: str
    id: str
    lost: Message
    founding: Message
    summary: str


def server_guard(server: str) -> Guard:
    return Guard(
        SERVER_GUARD,
        guard_id(server),
        GuardInput(server=server, founding=False),
        GuardInput(server=server, founding=True),
        f"restart budget and open incident of {server}",
    )


def host_guard(machine: str) -> Guard:
    return Guard(
        HOST_GUARD,
        host_guard_id(machine),
        HostGuardInput(machine=machine, founding=False),
        HostGuardInput(machine=machine, founding=True),
        f"capped total of restarts on {machine}",
    )


class Ledgers:
    """Each method is one or two updates; sent again by the same asker, they are answered as the
    first time, and count once.

    Raises ``ApplicationError`` of the types ``GUARD_REFUSED`` and ``GUARD_UNREACHABLE``.
    """

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client, self._task_queue = client, task_queue

    async def take(self, request: TakeRequest, asker: str) -> TakeResult:
        """Take one restart of the server's budget and of its machine's, or of neither.

        A crash in between leaves the server's counted until the same key is asked for again: it
        counts more, never less.
        """
        request = today(request)
        took = await self.ask(
            server_guard(request.server), GuardUpdate.TAKE, request, TakeResult, asker
        )
        if not took.granted or request.host is None:
            return took if took.granted else took.model_copy(update={"refused_by": Refuser.SERVER})
        machine = request.host.machine
        total = await self.ask(
            host_guard(machine),
            GuardUpdate.TAKE,
            _of_host(request, request.host),
            TakeResult,
            asker,
        )
        if total.granted:
            return took.model_copy(update={"left": min(took.left, total.left)})
        proof = f"the budget of {machine} refused, so no command was sent"
        back = GiveBackRequest(server=request.server, key=request.key, proof=proof)
        await self.ask(server_guard(request.server), GuardUpdate.GIVE_BACK, back, NoneType, asker)
        why = f"all servers of {machine} together: {total.why}"
        return total.model_copy(update={"refused_by": Refuser.HOST, "why": why})

    async def give_back(self, request: GiveBackRequest, asker: str) -> None:
        if request.machine:
            guard = host_guard(request.machine)
            of_host = request.model_copy(update={"key": host_key(request.server, request.key)})
            await self.ask(guard, GuardUpdate.GIVE_BACK, of_host, NoneType, asker)
        guard = server_guard(request.server)
        await self.ask(guard, GuardUpdate.GIVE_BACK, request, NoneType, asker)

    async def started(self, request: StartRequest, asker: str) -> StartResult:
        """Tell the guard of a new process, and the machine's where somebody else started it."""
        guard = server_guard(request.server)
        answer = await self.ask(guard, GuardUpdate.STARTED, request, StartResult, asker)
        if answer.take is not None and request.machine:
            key = host_key(request.server, answer.take.key)
            of_host = {"key": key, "server": request.server, "cooldown_until": answer.take.at}
            await self._book(request.machine, answer.take.model_copy(update=of_host))
        return answer

    async def reset(self, request: ResetRequest, asker: str) -> None:
        """Clear the ledger of the machine where one is named, else that of the server."""
        machine = request.machine
        guard = host_guard(machine) if machine else server_guard(request.server)
        await self.ask(guard, GuardUpdate.RESET, request, NoneType, asker)

    async def _book(self, machine: str, take: Take) -> None:
        guard = host_guard(machine)
        try:
            await self._client.start_workflow(
                guard.workflow,
                guard.lost,
                id=guard.id,
                task_queue=self._task_queue,
                start_signal=HostSignal.BOOK,
                start_signal_args=[take],
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                static_summary=guard.summary,
                rpc_timeout=RPC_TIMEOUT,
            )
        except RPCError as problem:
            raise _unreachable(guard, str(problem)) from problem

    async def ask(
        self, guard: Guard, update: GuardUpdate, request: Message, answer: type[_Answer], asker: str
    ) -> _Answer:
        """One update, on a guard that is started as lost where it does not run."""
        try:
            result: _Answer = await self._client.execute_update_with_start_workflow(
                update,
                request,
                start_workflow_operation=self._start(guard),
                id=_update_id(update, asker, request),
                result_type=answer,
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowUpdateFailedError as problem:
            raise _refused(guard, problem) from problem
        except WorkflowUpdateRPCTimeoutOrCancelledError as problem:
            raise _unreachable(guard, "no worker answered in time") from problem
        except RPCError as problem:
            raise _unreachable(guard, str(problem)) from problem
        return result

    def _start(self, guard: Guard) -> WithStartWorkflowOperation[Any, Any]:
        return WithStartWorkflowOperation(
            guard.workflow,
            guard.lost,
            id=guard.id,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            static_summary=guard.summary,
        )


class GuardReader:
    """Looks at guards without starting or changing them; usable outside of activities."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def state(self, server: str) -> GuardState | None:
        """What the guard holds, or none where it does not run.

        Raises:
            RPCError: Temporal or every worker is out of reach.
        """
        return await self._state(guard_id(server), GuardState)

    async def open_incident(self, server: str) -> str | None:
        """The ID of the open incident, none where there is none, or no guard.

        Raises:
            RPCError: Temporal or every worker is out of reach.
        """
        state = await self.state(server)
        return state.incident.id if state is not None and state.incident is not None else None

    async def host(self, machine: str) -> HostLedger | None:
        """The ledger of a machine, or none where it does not run.

        Raises:
            RPCError: Temporal or every worker is out of reach.
        """
        return await self._state(host_guard_id(machine), HostLedger)

    async def _state(self, workflow_id: str, state: type[_State]) -> _State | None:
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            held: _State = await handle.query(
                GuardQuery.STATE,
                result_type=state,
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowQueryRejectedError:
            return None
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        return held


def today(request: _Claim) -> _Claim:
    """The request with the calendar day around the present moment, where its budget is by day."""
    if not isinstance(request.budget, DailyBudget):
        return request
    start, end = local_day(request.budget.per_day_in, datetime.now(UTC))
    return request.model_copy(update={"day_start": start, "day_end": end})


def host_key(server: str, key: str) -> str:
    """The name of a server's take in the ledger of its machine: two servers may use the same."""
    return f"{server}/{key}"


def _of_host(request: TakeRequest, host: HostShare) -> HostTakeRequest:
    """The machine's ledger has no cooldown: it is the server that cools down, and was asked."""
    return HostTakeRequest(
        machine=host.machine,
        server=request.server,
        incident=request.incident,
        key=host_key(request.server, request.key),
        budget=host.budget,
        cooldown=timedelta(0),
        by=request.by,
        why=request.why,
    )


def _update_id(update: GuardUpdate, asker: str, request: Message) -> str:
    """Retries of one asker share the first one's answer; another asker gets a fresh one.

    The key of a take alone would not do: asked again after it was given back, Temporal would repeat
    *granted* from memory and the ledger would never see the request.
    """
    digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()[:16]
    return f"{update}/{asker}/{digest}"


def _refused(guard: Guard, problem: WorkflowUpdateFailedError) -> ApplicationError:
    cause = problem.cause
    if not isinstance(cause, ApplicationError) or cause.type == _CLOSED_MEANWHILE:
        return _unreachable(guard, str(cause))
    return ApplicationError(
        f"{guard.id} refused: {cause.message}", type=GUARD_REFUSED, non_retryable=True
    )


def _unreachable(guard: Guard, why: str) -> ApplicationError:
    return ApplicationError(f"{guard.id} could not be asked: {why}", type=GUARD_UNREACHABLE)
