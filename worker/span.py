"""The runs of a stretch of time, for statistics."""

import asyncio
from datetime import datetime

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError

from fleet.contracts.names import REMEDIATION
from fleet.statistics import Run
from worker.deeds import deeds
from worker.runs import told
from worker.sweeps import first

#: So many runs are read; a stretch with more is cut, and that is said.
MOST = 1000
_AT_ONCE = 16


async def runs_since(client: Client, since: datetime) -> tuple[list[Run], list[str]]:
    """The runs that were started since then, and what could not be read, in one line each.

    Raises:
        RPCError: Temporal is out of reach.
    """
    query = f"WorkflowType = '{REMEDIATION}' AND StartTime >= '{since.isoformat()}'"
    found = [run async for run in first(client.list_workflows(query), MOST + 1)]
    slots = asyncio.Semaphore(_AT_ONCE)

    async def read(run: WorkflowExecution) -> Run | None:
        async with slots:
            return await _read(client, run)

    wanted = [run for run in found[:MOST] if not _goes_on(run)]
    runs = await asyncio.gather(*map(read, wanted))
    known = [run for run in runs if run is not None]
    problems = [f"only the newest {MOST} runs were read: choose a shorter --since"]
    problems = problems if len(found) > MOST else []
    if len(known) < len(runs):
        problems.append(f"{len(runs) - len(known)} runs could not be read: no worker, or no result")
    return known, problems


def _goes_on(run: WorkflowExecution) -> bool:
    return run.status is WorkflowExecutionStatus.CONTINUED_AS_NEW


async def _read(client: Client, run: WorkflowExecution) -> Run | None:
    status = await told(client, run)
    if status is None:
        return None
    if not status.restarts:
        return Run(status=status)
    try:
        return Run(status=status, restarted_at=(await deeds(client, run)).restarted_at)
    except RPCError:
        return Run(status=status)
