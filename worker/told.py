"""What people were told of an incident: its alerts, each with what became of it so far."""

import asyncio
from datetime import timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.service import RPCError

from fleet.contracts.alerts import AlertMessage, AlertResult, Severity
from fleet.contracts.names import alert_id
from fleet.verdicts import Verdict
from worker.deeds import decoded
from worker.sweeps import first

_MOST = 100
_AT_ONCE = 8
_PATIENCE = timedelta(seconds=5)


class AlertTold(BaseModel):
    """One message. ``delivered`` is none while it is still on its way; ``detail`` says why."""

    model_config = ConfigDict(frozen=True)

    cause: str
    workflow_id: str
    at: AwareDatetime
    severity: Severity | None = None
    title: str = ""
    verdict: Verdict | None = None
    since: AwareDatetime | None = None
    job: str | None = None
    delivered: bool | None = None
    detail: str = ""


async def alerts_of(client: Client, incident: str) -> list[AlertTold]:
    """The alerts of an incident, oldest first; whether a worker runs makes no difference.

    Raises:
        RPCError: Temporal is out of reach.
    """
    prefix = alert_id(incident, "").replace("\\", "\\\\").replace("'", "\\'")
    found = client.list_workflows(f"WorkflowId STARTS_WITH '{prefix}'")
    slots = asyncio.Semaphore(_AT_ONCE)

    async def read(run: WorkflowExecution) -> AlertTold:
        async with slots:
            return await _alert(client, run, alert_id(incident, ""))

    alerts = await asyncio.gather(*[read(run) async for run in first(found, _MOST)])
    return sorted(alerts, key=lambda alert: alert.at)


async def _alert(client: Client, run: WorkflowExecution, prefix: str) -> AlertTold:
    told = AlertTold(
        cause=run.id.removeprefix(prefix), workflow_id=run.id, at=run.start_time
    ).model_copy(update=await _message(client, run))
    if run.status is WorkflowExecutionStatus.RUNNING:
        return told.model_copy(update={"detail": await _why_not_yet(client, run)})
    return told.model_copy(update=await _result(client, run))


async def _message(client: Client, run: WorkflowExecution) -> dict[str, object]:
    """What the alert says, which is what its workflow was started with."""
    handle = client.get_workflow_handle(run.id, run_id=run.run_id)
    try:
        async for event in handle.fetch_history_events(page_size=1, rpc_timeout=_PATIENCE):
            if event.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                break
            started = event.workflow_execution_started_event_attributes
            message = await decoded(client, started.input, AlertMessage)
            wanted = {"severity", "title", "verdict", "since", "job"}
            return {key: getattr(message, key) for key in wanted} if message is not None else {}
    except RPCError:
        pass
    return {}


async def _result(client: Client, run: WorkflowExecution) -> dict[str, object]:
    handle = client.get_workflow_handle(run.id, run_id=run.run_id, result_type=AlertResult)
    try:
        result: AlertResult = await handle.result(follow_runs=False, rpc_timeout=_PATIENCE)
    except (WorkflowFailureError, RPCError):
        ended = run.status.name.lower() if run.status is not None else "ended"
        return {"delivered": False, "detail": f"the workflow {ended} without a result"}
    return {"delivered": result.delivered, "detail": result.detail}


async def _why_not_yet(client: Client, run: WorkflowExecution) -> str:
    """The try that is under way, and why the last one failed, as Temporal keeps it."""
    handle = client.get_workflow_handle(run.id, run_id=run.run_id)
    try:
        about = (await handle.describe(rpc_timeout=_PATIENCE)).raw_description
    except RPCError:
        return ""
    said = [
        f"try {each.attempt}" + (f", {each.last_failure.message}" * bool(each.last_failure.message))
        for each in about.pending_activities
    ]
    return "; ".join(said)[:300]
