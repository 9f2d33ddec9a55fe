"""Runs that have ended, each told once, however often is looked and however late it is listed."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from temporalio.client import Client, WorkflowExecution, WorkflowFailureError
from temporalio.service import RPCError, RPCStatusCode

from worker.sweeps import first

R = TypeVar("R")

#: Temporal's listing may be so late with a run that has ended.
_LATE = timedelta(minutes=2)
_PATIENCE = timedelta(seconds=3)
_AT_ONCE = 8
_MOST_LISTED = 2000
_MOST_READ = 200


@dataclass(frozen=True)
class Ended(Generic[R]):
    """``result`` is none where the run left none that can be read: it failed, or was terminated."""

    run: WorkflowExecution
    result: R | None


class ClosedRuns(Generic[R]):
    """The closed runs of one workflow type: first those that Temporal still keeps, then new ones.

    A run that continued as new has not ended.
    """

    def __init__(self, client: Client, workflow: str, result: type[R]) -> None:
        self._client, self._workflow, self._result_type = client, workflow, result
        self._told: dict[str, datetime] = {}
        self._from: datetime | None = None
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def new(self) -> list[Ended[R]]:
        """Those not told yet, oldest first; of many, the rest is told by the next looks.

        Raises:
            RPCError: Temporal is out of reach.
        """
        listed = [
            run async for run in first(self._client.list_workflows(self._query()), _MOST_LISTED)
        ]
        waiting = sorted((run for run in listed if run.run_id not in self._told), key=_closed_at)
        found = await asyncio.gather(*(self._read(run) for run in waiting[:_MOST_READ]))
        ended = [each for each in found if each is not None]
        self._told |= {each.run.run_id: _closed_at(each.run) for each in ended}
        self._move_on([run for run in waiting if run.run_id not in self._told])
        return ended

    def _query(self) -> str:
        query = (
            f"WorkflowType = '{self._workflow}' AND ExecutionStatus != 'Running'"
            " AND ExecutionStatus != 'ContinuedAsNew'"
        )
        if self._from is not None:
            query += f" AND CloseTime >= '{self._from.isoformat()}'"
        return query

    def _move_on(self, left: list[WorkflowExecution]) -> None:
        """Forget what the next listing can't contain."""
        newest = max(self._told.values(), default=None)
        if newest is None:
            return
        oldest_left = min(map(_closed_at, left), default=newest)
        self._from = min(oldest_left, newest - _LATE)
        self._told = {run: at for run, at in self._told.items() if at >= self._from}

    async def _read(self, run: WorkflowExecution) -> Ended[R] | None:
        handle = self._client.get_workflow_handle(
            run.id, run_id=run.run_id, result_type=self._result_type
        )
        try:
            async with self._slots, asyncio.timeout(_PATIENCE.total_seconds()):
                return Ended(run, await handle.result(follow_runs=False, rpc_timeout=_PATIENCE))
        except (WorkflowFailureError, ValueError, TypeError, RuntimeError):
            return Ended(run, None)
        except TimeoutError:
            return None
        except RPCError as problem:
            return Ended(run, None) if problem.status is RPCStatusCode.NOT_FOUND else None


def _closed_at(run: WorkflowExecution) -> datetime:
    return run.close_time or datetime.min.replace(tzinfo=UTC)
