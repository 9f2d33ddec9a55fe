"""Workflows keep their clock when a query wakes them on a worker that has never seen them.

A query to a workflow without a pending task goes straight to a worker. Where its worker was just
killed, it first waits for that one for some seconds, and what happens meanwhile (a timer that
fires, a signal) arrives with the query, before the task that it belongs to. The SDK (seen in 1.35)
then runs the workflow on at the time of the task before: a timer that fired looks as if it were
early, and old facts look fresh. What was decided so goes out with the next task, and no replay ever
agrees with it: "nondeterminism error", until a person ends the workflow.

Such a step is refused here. The query fails, the workflow leaves the cache, and its next task is
done from its history, at the right time.
"""

from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

REFUSED = "asked while its next step was on its way: ask again"

_NO_STEP = frozenset({"query_workflow", "remove_from_cache"})

_Activate = Callable[[WorkflowActivation], WorkflowActivationCompletion]


class PunctualRunner(SandboxedWorkflowRunner):
    """The sandbox, in which no workflow takes a new step at the time of an old one."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        instance.activate = Punctual(instance.activate).activate  # type: ignore[method-assign]
        return instance


class Punctual:
    """One workflow's steps. A new one has the time of its own task, later than the last replayed
    one's; within one task the history has one length.
    """

    def __init__(self, activate: _Activate) -> None:
        self._activate = activate
        self._replayed_at = 0
        self._replayed_length = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        if all(job.WhichOneof("variant") in _NO_STEP for job in act.jobs):
            return self._activate(act)
        at = act.timestamp.ToNanoseconds()
        if act.is_replaying:
            self._replayed_at, self._replayed_length = at, act.history_length
        elif at == self._replayed_at and act.history_length > self._replayed_length:
            refusal = WorkflowActivationCompletion(run_id=act.run_id)
            refusal.failed.failure.message = REFUSED
            return refusal
        return self._activate(act)
