"""A person's word on its way to a remediation, and back: sent as a signal, the effect awaited."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from fleet.contracts.names import REMEDIATION, remediation_id
from fleet.contracts.remediation import (
    STATUS_QUERY,
    OperatorRequest,
    Outcome,
    Phase,
    RemediationInput,
    RemediationSignal,
    RemediationStatus,
)
from fleet.details import WHAT_A_PERSON_CAN_SAY
from worker.asking import ask
from worker.client import NO_WORKER
from worker.commands.exits import Stop
from worker.errors import SetupError

#: A word is heard at once; what it does may have to wait for a step that is under way.
_EFFECT_WITHIN = timedelta(seconds=20)
#: Evidence (a minute at most), the last look and the budget come before a restart by hand.
_ACCEPTED_WITHIN = timedelta(minutes=3)
_QUERY_WITHIN = timedelta(seconds=5)
_LOOK_EVERY = 0.3

#: How the answers begin that say yes.
_YES = ("cancelled", "snoozed", "approved", "accepted", "a restart is under way already")
_GOOD_ENDS = frozenset({Outcome.RESOLVED, Outcome.RECOVERED})


@dataclass(frozen=True)
class Answer:
    """What became of a word; ``status`` is the incident as it was then."""

    text: str
    effect: bool
    status: RemediationStatus


async def tell(
    client: Client, server: str, signal: RemediationSignal, request: OperatorRequest
) -> Answer:
    """Send a word to the open incident of a server, and wait for its effect.

    Raises:
        Stop: no incident is open, or the effect did not come in time, or nobody waits for it.
        SetupError: no worker answers.
    """
    handle = client.get_workflow_handle(remediation_id(server))
    try:
        await handle.signal(signal, request)
    except RPCError as problem:
        if problem.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise Stop(
            f"no incident of {server} is open: `steady incidents --server {server}` shows the"
            f" closed ones, and `steady pause {server} --for 2h` keeps steady's hands off"
        ) from problem
    return await _answer(handle, request.id, _EFFECT_WITHIN)


async def restart(
    client: Client, server: str, request: OperatorRequest, *, searchable: bool, task_queue: str
) -> Answer:
    """Order a restart, with an incident or without one, and wait until it is accepted or refused.

    Raises:
        Stop: neither came in time; the order stands.
        SetupError: no worker answers.
    """
    handle = await client.start_workflow(
        REMEDIATION,
        RemediationInput(server=server, search_attributes=searchable),
        id=remediation_id(server),
        task_queue=task_queue,
        start_signal=RemediationSignal.RESTART_NOW,
        start_signal_args=[request],
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"{server}: a restart by hand",
        static_details=WHAT_A_PERSON_CAN_SAY,
    )
    return await _answer(handle, request.id, _ACCEPTED_WITHIN)


async def follow(client: Client, server: str) -> AsyncIterator[RemediationStatus]:
    """The incident each time that something is new, until its outcome is known."""
    handle = client.get_workflow_handle(remediation_id(server))
    seen: RemediationStatus | None = None
    while True:
        status = await _status(handle)
        if seen is None or (status.phase, status.timeline) != (seen.phase, seen.timeline):
            yield status
        if is_over(status):
            return
        seen = status
        await asyncio.sleep(3 * _LOOK_EVERY)


def is_over(status: RemediationStatus) -> bool:
    """Its outcome is known; what was given up may stay open for a person."""
    return status.phase in (Phase.CLOSED, Phase.ESCALATED)


def is_good(status: RemediationStatus) -> bool:
    return status.outcome in _GOOD_ENDS


async def _answer(
    handle: WorkflowHandle[object, object], request_id: str, within: timedelta
) -> Answer:
    try:
        return await _heard(handle, request_id, within)
    except asyncio.CancelledError:
        raise Stop(
            f"not waited for: the word was sent to {handle.id} and stands; `steady incident show"
            f" {handle.id}` shows what comes of it"
        ) from None


async def _heard(
    handle: WorkflowHandle[object, object], request_id: str, within: timedelta
) -> Answer:
    clock = asyncio.get_running_loop().time
    deadline = clock() + within.total_seconds()
    while True:
        status = await _status(handle)
        text = status.answers.get(request_id)
        if text is not None:
            return Answer(text, text.startswith(_YES), status)
        if status.phase is Phase.CLOSED:
            return Answer(f"too late, the incident has ended: {status.outcome}", False, status)
        if clock() > deadline:
            raise Stop(
                f"the word has arrived, and has no effect yet (phase {status.phase}):"
                f" `steady status {status.server}` shows what comes of it"
            )
        await asyncio.sleep(_LOOK_EVERY)


async def _status(handle: WorkflowHandle[object, object]) -> RemediationStatus:
    try:
        status = await ask(handle, STATUS_QUERY, RemediationStatus, _QUERY_WITHIN)
    except RPCError as problem:
        if problem.status in (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED):
            raise SetupError(f"the word was sent, and {NO_WORKER}") from problem
        raise
    except WorkflowQueryFailedError as problem:
        raise SetupError(f"the word was sent, and {NO_WORKER}") from problem
    return status
