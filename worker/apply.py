"""Applying a fleet: one update on the workflow ``fleet``, which is started where there is none."""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest, ApplyResult, FleetState, FleetUpdate
from fleet.contracts.names import FLEET, FLEET_ID, TASK_QUEUE
from fleet.durations import brief
from worker.errors import SetupError

_PATIENCE = timedelta(seconds=30)
#: Each new server gets a guard, a workflow of its own; a small or busy machine starts few a second.
_PATIENCE_A_SERVER = timedelta(seconds=0.3)


async def apply_fleet(
    client: Client, request: ApplyRequest, task_queue: str = TASK_QUEUE
) -> ApplyResult:
    """Store the fleet as the one that is watched, and reconcile the schedules.

    The same fleet again changes nothing and makes no new version.

    Raises:
        SetupError: it was not done within half a minute and 0.3 s a server, or it was refused, or a
            worker of another version answered; the message says which.
    """
    request = request.model_copy(update={"founds_all": True})
    patience = _PATIENCE + _PATIENCE_A_SERVER * len(request.fleet.servers)
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        FLEET,
        FleetState(),
        id=FLEET_ID,
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary="the fleet that is watched, and its pauses",
    )
    try:
        async with asyncio.timeout(patience.total_seconds()):
            result: ApplyResult = await client.execute_update_with_start_workflow(
                FleetUpdate.APPLY,
                request,
                start_workflow_operation=start,
                result_type=ApplyResult,
            )
    except ValidationError as problem:
        raise SetupError(
            "the answer to the fleet is of another version of steady: bring all workers to this"
            " one, and apply again"
        ) from problem
    except WorkflowUpdateFailedError as refused:
        raise SetupError(f"the fleet was not applied: {refused.cause}") from refused
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as late:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The SDK makes this error of a cancellation too.
            raise asyncio.CancelledError from late
        raise SetupError(
            f"the fleet was not applied within {brief(patience)}: no worker runs (`steady worker`"
            " starts one), or the machine is too busy; applying again goes on where this stopped"
        ) from late
    except RPCError as problem:
        raise SetupError(f"Temporal did not take the fleet: {problem.message}") from problem
    return result


def with_ui(fleet: Fleet, ui_url: str | None) -> Fleet:
    """The fleet with the address of the Temporal UI, for links in alerts, where it names none."""
    if ui_url is None or fleet.fleet.temporal_ui is not None:
        return fleet
    section = fleet.fleet.model_copy(update={"temporal_ui": ui_url})
    return fleet.model_copy(update={"fleet": section})
