"""Which steps of a workflow are refused because they come at the time of an older one."""

from temporalio.bridge.proto.workflow_activation import (
    FireTimer,
    QueryWorkflow,
    WorkflowActivation,
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from worker.runner import REFUSED, Punctual

TIMER = WorkflowActivationJob(fire_timer=FireTimer(seq=1))
QUERY = WorkflowActivationJob(query_workflow=QueryWorkflow(query_id="q"))


def step(
    at: int, length: int, job: WorkflowActivationJob = TIMER, *, replay: bool = False
) -> WorkflowActivation:
    act = WorkflowActivation(run_id="run", is_replaying=replay, history_length=length, jobs=[job])
    act.timestamp.FromNanoseconds(at)
    return act


def taken(*steps: WorkflowActivation) -> list[bool]:
    done = WorkflowActivationCompletion(run_id="run")
    punctual = Punctual(lambda _: done)
    answers = [punctual.activate(each) for each in steps]
    assert all(answer is done or answer.failed.failure.message == REFUSED for answer in answers)
    return [answer is done for answer in answers]


def test_a_step_at_its_own_time_is_taken() -> None:
    assert taken(step(1, 3), step(2, 8), step(3, 11)) == [True, True, True]


def test_a_step_after_a_replay_at_the_time_of_the_last_replayed_one_is_refused() -> None:
    assert taken(step(1, 3, replay=True), step(2, 8, replay=True), step(2, 11)) == [
        True,
        True,
        False,
    ]


def test_a_step_after_a_replay_at_its_own_time_is_taken() -> None:
    assert taken(step(1, 3, replay=True), step(2, 8)) == [True, True]


def test_two_steps_of_one_task_are_taken() -> None:
    assert taken(step(1, 3, replay=True), step(2, 8), step(2, 8)) == [True, True, True]
    assert taken(step(1, 3, replay=True), step(1, 3)) == [True, True]


def test_a_query_moves_nothing_and_is_always_answered() -> None:
    asked = step(1, 11, QUERY)
    assert taken(step(1, 3, replay=True), asked, step(2, 11), asked) == [True, True, True, True]
