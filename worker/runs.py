"""One run of a remediation, as well as it can be told: by itself, else by Temporal's listing."""

import asyncio
from datetime import timedelta

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
)
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from fleet.contracts.names import SearchAttribute, remediation_id
from fleet.contracts.remediation import STATUS_QUERY, Outcome, Phase, RemediationStatus
from fleet.verdicts import Verdict

_PATIENCE = timedelta(seconds=3)


async def told(client: Client, run: WorkflowExecution) -> RemediationStatus | None:
    """What the run itself says: an open one where a worker answers, a closed one by its result.

    None where nobody answers, or where it left no result (it was terminated, or goes on as new) or
    one of another version of steady.
    """
    handle = client.get_workflow_handle(run.id, run_id=run.run_id, result_type=RemediationStatus)
    try:
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            if run.status is WorkflowExecutionStatus.RUNNING:
                answer: RemediationStatus = await handle.query(
                    STATUS_QUERY, result_type=RemediationStatus
                )
                return answer
            result: RemediationStatus = await handle.result(
                follow_runs=False, rpc_timeout=_PATIENCE
            )
            return result
    except (WorkflowFailureError, WorkflowQueryFailedError, RPCError, TimeoutError, ValueError):
        return None


def listed(run: WorkflowExecution) -> RemediationStatus:
    """What the listing itself says of a run that nobody answers for."""

    def said(attribute: SearchAttribute) -> str | None:
        return run.typed_search_attributes.get(SearchAttributeKey.for_keyword(attribute))

    phase, verdict, outcome = (
        said(SearchAttribute.PHASE),
        said(SearchAttribute.VERDICT),
        said(SearchAttribute.OUTCOME),
    )
    is_open = run.status is WorkflowExecutionStatus.RUNNING
    return RemediationStatus(
        server=run.id.removeprefix(remediation_id("")),
        phase=(Phase(phase) if phase else Phase.CONFIRMING) if is_open else Phase.CLOSED,
        verdict=Verdict(verdict) if verdict else None,
        outcome=Outcome(outcome) if outcome else None,
        since=run.start_time,
        closed_at=run.close_time,
        next_step=_unanswered(run),
    )


def _unanswered(run: WorkflowExecution) -> str:
    if run.status is WorkflowExecutionStatus.RUNNING:
        return "no worker answers for it: start `steady worker`"
    ended = run.status.name.lower() if run.status is not None else "ended"
    return f"the workflow {ended} without a result"
