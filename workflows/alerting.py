"""Raising an alert from a workflow: a child that outlives it and never holds it up."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.alerts import AlertMessage, AlertResult
    from fleet.contracts.names import ALERT, alert_id


async def raise_alert(message: AlertMessage) -> bool:
    """Start ``alert/<incident>/<cause>``; return false where that cause was told before.

    The ID is the dedupe key: one message a cause an incident, whoever finds it again.
    """
    try:
        await workflow.start_child_workflow(
            ALERT,
            message.model_copy(update={"raised_at": workflow.now()}),
            id=alert_id(message.incident, message.cause),
            result_type=AlertResult,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            execution_timeout=message.give_up_after + timedelta(hours=1),
            static_summary=f"{message.severity}: {message.title}"[:190],
        )
    except WorkflowAlreadyStartedError:
        return False
    return True
