"""A drill from the command line: begun, followed, and ended. It goes on without whoever looks."""

import asyncio
from collections.abc import AsyncIterator

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from fleet.contracts.drill import DrillInput, DrillPhase, DrillSignal, DrillStatus
from fleet.contracts.names import DRILL, drill_id
from fleet.contracts.remediation import STATUS_QUERY, OperatorRequest
from worker.asking import ask
from worker.client import NO_WORKER, PATIENCE
from worker.commands.exits import Stop
from worker.errors import SetupError

_LOOK_EVERY = 0.5
#: Seconds in which another worker should have taken the place of one that died.
_ANSWERED_WITHIN = 60.0


async def begin(client: Client, request: DrillInput, task_queue: str) -> None:
    """Start the drill.

    Raises:
        Stop: one is under way already.
    """
    try:
        await client.start_workflow(
            DRILL,
            request,
            id=drill_id(request.server),
            task_queue=task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            static_summary=f"a drill of {request.server}, by {request.who}"[:190],
        )
    except WorkflowAlreadyStartedError as problem:
        raise Stop(
            f"a drill of {request.server} has just begun elsewhere:"
            f" `steady drill {request.server}` follows it"
        ) from problem


async def is_under_way(client: Client, server: str) -> bool:
    try:
        found = await _handle(client, server).describe()
    except RPCError as problem:
        if problem.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return found.status is WorkflowExecutionStatus.RUNNING


async def follow(client: Client, server: str) -> AsyncIterator[DrillStatus]:
    """The drill each time that something is new, until its end; a worker may die meanwhile.

    Raises:
        SetupError: no worker has answered for a minute.
    """
    seen: DrillStatus | None = None
    while True:
        status = await _status(client, server)
        if seen is None or (status.phase, status.timeline) != (seen.phase, seen.timeline):
            yield status
        if status.phase is DrillPhase.CLOSED:
            return
        seen = status
        await asyncio.sleep(_LOOK_EVERY)


async def _status(client: Client, server: str) -> DrillStatus:
    clock = asyncio.get_running_loop().time
    until = clock() + _ANSWERED_WITHIN
    while True:
        try:
            return await ask(_handle(client, server), STATUS_QUERY, DrillStatus, PATIENCE)
        except (RPCError, WorkflowQueryFailedError) as problem:
            if clock() > until:
                raise SetupError(f"the drill goes on when it can, and {NO_WORKER}") from problem
        await asyncio.sleep(_LOOK_EVERY)


async def cancel(client: Client, server: str, request: OperatorRequest) -> None:
    """Tell the drill to end, which thaws.

    Raises:
        Stop: none is under way.
    """
    try:
        await _handle(client, server).signal(DrillSignal.CANCEL, request)
    except RPCError as problem:
        if problem.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise Stop(f"no drill of {server} is under way") from problem


def _handle(client: Client, server: str) -> WorkflowHandle[object, object]:
    return client.get_workflow_handle(drill_id(server))
