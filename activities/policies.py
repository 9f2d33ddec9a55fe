"""What the applied fleet says at this moment: queries to the workflow ``fleet``."""

from datetime import UTC, datetime, timedelta
from typing import TypeVar

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from fleet.contracts.fleet import (
    AlertSettings,
    FleetQuery,
    FleetState,
    Pause,
    PresentPolicy,
    ShardSlice,
    StormTerms,
)
from fleet.contracts.names import FLEET_ID, Message, ServerRequest
from fleet.contracts.sweep import SweepRequest

_RPC_TIMEOUT = timedelta(seconds=10)

#: What ``fleet`` answers before the first apply.
NOTHING_APPLIED = "no fleet has been applied yet"
#: ``ApplicationError.type`` where no fleet has been applied, or its workflow was closed by hand.
NO_FLEET = "NoFleet"
#: ``ApplicationError.type`` where the fleet can't be asked now: no worker or no server answers.
FLEET_UNREACHABLE = "FleetUnreachable"

_Answer = TypeVar("_Answer", bound=Message)


class PolicyReader:
    """Asks ``fleet`` for what is in force now. A pause that has run out is left out.

    Every method raises an ``ApplicationError`` that may be retried: ``NO_FLEET`` or
    ``FLEET_UNREACHABLE``. Nothing may be done to a server whose policy can't be read.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def present(self, server: str) -> PresentPolicy:
        """The policy of one server; its ``spec`` is none where it is not in the fleet."""
        request = ServerRequest(server=server)
        policy = await self._ask(FleetQuery.PRESENT, request, PresentPolicy)
        return policy.model_copy(update={"pause": _in_force(policy.pause)})

    async def shard(self, number: int) -> ShardSlice:
        request = SweepRequest(shard=number)
        shard = await self._ask(FleetQuery.SHARD, request, ShardSlice)
        paused = {name: pause for name, pause in shard.paused.items() if _in_force(pause)}
        return shard.model_copy(update={"paused": paused})

    async def alerts(self) -> AlertSettings:
        return await self._ask(FleetQuery.ALERTS, None, AlertSettings)

    async def storm(self) -> StormTerms:
        return await self._ask(FleetQuery.STORM, None, StormTerms)

    async def state(self) -> FleetState:
        """All that ``fleet`` holds, also where nothing has been applied to it yet."""
        return await self._ask(FleetQuery.STATE, None, FleetState)

    async def _ask(
        self, query: FleetQuery, request: Message | None, answer: type[_Answer]
    ) -> _Answer:
        handle = self._client.get_workflow_handle(FLEET_ID)
        try:
            found: _Answer = await handle.query(
                query,
                args=[] if request is None else [request],
                result_type=answer,
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=_RPC_TIMEOUT,
            )
        except WorkflowQueryRejectedError as problem:
            raise _no_fleet("the workflow `fleet` is closed") from problem
        except WorkflowQueryFailedError as problem:
            if NOTHING_APPLIED in str(problem):
                raise _no_fleet(str(problem)) from problem
            raise ApplicationError(
                f"the workflow `fleet` could not answer: {problem}", type=FLEET_UNREACHABLE
            ) from problem
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                raise _no_fleet("there is no workflow `fleet`") from problem
            raise ApplicationError(
                f"the workflow `fleet` did not answer ({problem.status.name}: {problem.message})",
                type=FLEET_UNREACHABLE,
            ) from problem
        return found


class PolicyActivities:
    def __init__(self, reader: PolicyReader) -> None:
        self._reader = reader

    @activity.defn
    async def present_policy(self, request: ServerRequest) -> PresentPolicy:
        """The policy in force now. Raises what ``PolicyReader`` raises."""
        return await self._reader.present(request.server)


def _in_force(pause: Pause | None) -> Pause | None:
    """``fleet`` may have last looked at its clock long ago: a query moves no workflow's time."""
    return pause if pause is not None and pause.until > datetime.now(UTC) else None


def _no_fleet(why: str) -> ApplicationError:
    return ApplicationError(f"no fleet is applied: {why}; run `steady apply FILE`", type=NO_FLEET)
