"""Asks ``guard/<server>`` by update-with-start: a guard that is gone comes back used up."""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, TypeVar

from temporalio import activity
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.pulse import pulse
from fleet.contracts.fleet import FoundingRequest
from fleet.contracts.guard import (
    CloseRequest,
    CloseResult,
    GiveBackRequest,
    GuardInput,
    GuardQuery,
    GuardSignal,
    GuardState,
    GuardUpdate,
    OpenRequest,
    OpenResult,
    Recovery,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.names import SERVER_GUARD, Message, guard_id
from fleet.guard import local_day
from fleet.policy import DailyBudget

_RPC_TIMEOUT = timedelta(seconds=10)
_FOUNDED_AT_ONCE = 16

#: ``ApplicationError.type`` where the guard refused the request itself; never retried.
GUARD_REFUSED = "GuardRefused"
#: ``ApplicationError.type`` where the guard could not be asked; retrying is right, and safe.
GUARD_UNREACHABLE = "GuardUnreachable"

_CLOSED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"

_Request = OpenRequest | TakeRequest | GiveBackRequest | CloseRequest
_Answer = TypeVar("_Answer", bound=Message | None)


class GuardActivities:
    """Each method is one update; a retried one is answered as the first was, and counts once.

    Raises ``ApplicationError`` of the types ``GUARD_REFUSED`` and ``GUARD_UNREACHABLE``.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def open_incident(self, request: OpenRequest) -> OpenResult:
        return await self._ask(GuardUpdate.OPEN, request, OpenResult)

    @activity.defn
    async def take_budget(self, request: TakeRequest) -> TakeResult:
        """Take one restart. The calendar day, where it matters, is found here and now."""
        if isinstance(request.budget, DailyBudget):
            start, end = local_day(request.budget.per_day_in, datetime.now(UTC))
            request = request.model_copy(update={"day_start": start, "day_end": end})
        return await self._ask(GuardUpdate.TAKE, request, TakeResult)

    @activity.defn
    async def give_back(self, request: GiveBackRequest) -> None:
        await self._ask(GuardUpdate.GIVE_BACK, request, NoneType)

    @activity.defn
    async def close_incident(self, request: CloseRequest) -> CloseResult:
        request = request.model_copy(update={"key": request.key or _asker()})
        return await self._ask(GuardUpdate.CLOSE, request, CloseResult)

    @activity.defn
    async def found_guards(self, request: FoundingRequest) -> None:
        """Start the guards of new servers. A name that once had a guard gets no fresh budget."""
        slots = asyncio.Semaphore(_FOUNDED_AT_ONCE)

        async def found(server: str) -> None:
            async with slots:
                await self._found(server)

        async with pulse(), asyncio.TaskGroup() as group:
            for server in request.servers:
                group.create_task(found(server))

    async def _found(self, server: str) -> None:
        try:
            await self._client.start_workflow(
                SERVER_GUARD,
                GuardInput(server=server, founding=True),
                id=guard_id(server),
                task_queue=activity.info().task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=_summary(server),
                rpc_timeout=_RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            activity.logger.info("%s has a guard already", server)

    async def _ask(self, update: GuardUpdate, request: _Request, answer: type[_Answer]) -> _Answer:
        async with pulse():
            try:
                result: _Answer = await self._client.execute_update_with_start_workflow(
                    update,
                    request,
                    start_workflow_operation=_start(request.server),
                    id=_update_id(update, request),
                    result_type=answer,
                    rpc_timeout=_RPC_TIMEOUT,
                )
            except WorkflowUpdateFailedError as problem:
                raise _refused(request.server, problem) from problem
            except WorkflowUpdateRPCTimeoutOrCancelledError as problem:
                raise _unreachable(request.server, "no worker answered in time") from problem
            except RPCError as problem:
                raise _unreachable(request.server, str(problem)) from problem
            return result


class GuardReader:
    """Looks at guards without starting or changing them; usable outside of activities."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def state(self, server: str) -> GuardState | None:
        """What the guard holds, or none where it does not run.

        Raises:
            RPCError: Temporal or every worker is out of reach.
        """
        handle = self._client.get_workflow_handle(guard_id(server))
        try:
            held: GuardState = await handle.query(
                GuardQuery.STATE,
                result_type=GuardState,
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=_RPC_TIMEOUT,
            )
        except WorkflowQueryRejectedError:
            return None
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        return held

    async def open_incident(self, server: str) -> str | None:
        """The ID of the open incident, none where there is none, or no guard.

        Raises:
            RPCError: Temporal or every worker is out of reach.
        """
        state = await self.state(server)
        return state.incident.id if state is not None and state.incident is not None else None


async def send_recovered(client: Client, server: str, at: datetime) -> None:
    """Tell the guard that its server was seen healthy ``at``; a guard that is not there needs none.

    Raises:
        RPCError: Temporal is out of reach.
    """
    await _signal(client, server, GuardSignal.RECOVERED, Recovery(at=at))


async def send_forget_hold(client: Client, server: str) -> None:
    """Tell the guard that automation may act on the open incident again.

    Raises:
        RPCError: Temporal is out of reach.
    """
    await _signal(client, server, GuardSignal.FORGET_HOLD)


async def _signal(client: Client, server: str, signal: GuardSignal, *words: Message) -> None:
    handle = client.get_workflow_handle(guard_id(server))
    try:
        await handle.signal(signal, args=list(words), rpc_timeout=_RPC_TIMEOUT)
    except RPCError as problem:
        if problem.status is not RPCStatusCode.NOT_FOUND:
            raise


def _start(server: str) -> WithStartWorkflowOperation[Any, Any]:
    return WithStartWorkflowOperation(
        SERVER_GUARD,
        GuardInput(server=server, founding=False),
        id=guard_id(server),
        task_queue=activity.info().task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        static_summary=_summary(server),
    )


def _summary(server: str) -> str:
    return f"restart budget and open incident of {server}"


def _asker() -> str:
    """The same for every attempt of an activity, and another for every activity."""
    info = activity.info()
    return f"{info.workflow_run_id}/{info.activity_id}"


def _update_id(update: GuardUpdate, request: _Request) -> str:
    """Retries of one activity share the first one's answer; another activity gets a fresh one.

    The key of a take alone would not do: asked again after it was given back, Temporal would repeat
    *granted* from memory and the ledger would never see the request.
    """
    digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()[:16]
    return f"{update}/{_asker()}/{digest}"


def _refused(server: str, problem: WorkflowUpdateFailedError) -> ApplicationError:
    cause = problem.cause
    if not isinstance(cause, ApplicationError) or cause.type == _CLOSED_MEANWHILE:
        return _unreachable(server, str(cause))
    return ApplicationError(
        f"the guard of {server} refused: {cause.message}", type=GUARD_REFUSED, non_retryable=True
    )


def _unreachable(server: str, why: str) -> ApplicationError:
    return ApplicationError(
        f"the guard of {server} could not be asked: {why}", type=GUARD_UNREACHABLE
    )
