"""Asks and tells ``storm-guard`` by signals, which queue: of updates a workflow takes ten at once.

It is started by the first that has something to say.
"""

import asyncio
from datetime import timedelta
from typing import Protocol

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.pulse import pulse
from fleet.contracts.fleet import StormTerms
from fleet.contracts.names import STORM_GUARD, STORM_GUARD_ID, Message
from fleet.contracts.storm import (
    Look,
    Looked,
    ShareReport,
    SlotAsk,
    SlotFree,
    StormInput,
    StormQuery,
    StormSignal,
    StormState,
)

_RPC_TIMEOUT = timedelta(seconds=10)
_AT_ONCE = 8
_TRIES = 3
_BETWEEN = 0.5

#: ``ApplicationError.type`` where Temporal could not be asked; trying again is right, and safe.
STORM_GUARD_UNREACHABLE = "StormGuardUnreachable"


class StormPolicies(Protocol):
    """The part of ``PolicyReader`` that slots need."""

    async def storm(self) -> StormTerms: ...


class StormActivities:
    """Each may be tried again: what is said twice counts once.

    Raises ``ApplicationError`` of the type ``STORM_GUARD_UNREACHABLE``.
    """

    def __init__(self, client: Client, policies: StormPolicies) -> None:
        self._client, self._policies = client, policies

    @activity.defn
    async def ask_slot(self, request: SlotAsk) -> None:
        await self._say(StormSignal.ASK, request)

    @activity.defn
    async def report_share(self, report: ShareReport) -> None:
        await self._say(StormSignal.SHARE, report)

    @activity.defn
    async def release_slot(self, request: SlotFree) -> None:
        """Give a slot, or the place in the queue, back; a guard that is not there has none."""
        handle = self._client.get_workflow_handle(STORM_GUARD_ID)
        try:
            await handle.signal(StormSignal.FREE, request, rpc_timeout=_RPC_TIMEOUT)
        except RPCError as problem:
            if problem.status is not RPCStatusCode.NOT_FOUND:
                raise _unreachable(problem) from problem

    @activity.defn
    async def look_at_slots(self, look: Look) -> Looked:
        """Which of the leases are held by nobody any more, and what limits are in force."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def is_closed(lease: SlotFree) -> bool:
            async with slots:
                return await self._is_closed(lease)

        async with pulse():
            terms, *closed = await asyncio.gather(self._terms(), *map(is_closed, look.leases))
        return Looked(
            closed=[lease for lease, gone in zip(look.leases, closed, strict=True) if gone],
            terms=terms,
        )

    async def _terms(self) -> StormTerms | None:
        try:
            return await self._policies.storm()
        except ApplicationError as problem:
            activity.logger.warning("the limits in force can't be read: %s", problem.message)
            return None

    async def _is_closed(self, lease: SlotFree) -> bool:
        """A run that continued as new goes on: the chain has one first run."""
        handle = self._client.get_workflow_handle(lease.workflow_id)
        try:
            about = await handle.describe(rpc_timeout=_RPC_TIMEOUT)
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return True
            raise _unreachable(problem) from problem
        except ValueError:
            # The SDK has no name for the status of a paused workflow; paused is open.
            return False
        first = about.raw_description.workflow_execution_info.first_run_id or about.run_id
        return about.status is not WorkflowExecutionStatus.RUNNING or first != lease.run

    async def _say(self, signal: StormSignal, message: Message) -> None:
        try:
            await self._client.start_workflow(
                STORM_GUARD,
                StormInput(),
                id=STORM_GUARD_ID,
                task_queue=activity.info().task_queue,
                start_signal=signal,
                start_signal_args=[message],
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                static_summary="how many restarts at once, and whether any at all",
                rpc_timeout=_RPC_TIMEOUT,
            )
        except RPCError as problem:
            raise _unreachable(problem) from problem


class StormReader:
    """Looks at ``storm-guard`` without starting it; usable outside of activities."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def state(self, patience: timedelta = _RPC_TIMEOUT) -> StormState:
        """What it holds; nothing where it never had anything to do.

        Raises:
            RPCError: Temporal or every worker is out of reach.
            WorkflowQueryFailedError: it refused each of some tries.
        """
        try:
            held = await self._ask(patience)
        except WorkflowQueryRejectedError:
            return StormState()
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return StormState()
            raise
        return held

    async def _ask(self, patience: timedelta) -> StormState:
        """Once more where a query raced a step, which a worker refuses: that passes at once."""
        handle = self._client.get_workflow_handle(STORM_GUARD_ID)
        for attempt in range(1, _TRIES + 1):
            try:
                held: StormState = await handle.query(
                    StormQuery.STATE,
                    result_type=StormState,
                    reject_condition=QueryRejectCondition.NOT_OPEN,
                    rpc_timeout=patience,
                )
            except WorkflowQueryFailedError:
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(_BETWEEN)
            else:
                return held
        raise AssertionError


def _unreachable(problem: RPCError) -> ApplicationError:
    return ApplicationError(
        f"storm-guard could not be reached: {problem}", type=STORM_GUARD_UNREACHABLE
    )
