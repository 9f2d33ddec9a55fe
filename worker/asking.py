"""Asking a workflow: once more where its next step was just on its way."""

import asyncio
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import WorkflowHandle, WorkflowQueryFailedError

Answer = TypeVar("Answer")

#: A worker refuses a query that races a step (``worker.runner``); that passes at once.
_TRIES = 3
_BETWEEN = timedelta(seconds=0.5)


async def ask(
    handle: WorkflowHandle[Any, Any], query: str, answer: type[Answer], within: timedelta
) -> Answer:
    """What the workflow answers.

    Raises:
        WorkflowQueryFailedError: it refused each of three times.
        RPCError: it isn't there, or no worker answered within the time, which is that of one try.
    """
    for _ in range(_TRIES - 1):
        try:
            return await _once(handle, query, answer, within)
        except WorkflowQueryFailedError:
            await asyncio.sleep(_BETWEEN.total_seconds())
    return await _once(handle, query, answer, within)


async def _once(
    handle: WorkflowHandle[Any, Any], query: str, answer: type[Answer], within: timedelta
) -> Answer:
    found: Answer = await handle.query(query, result_type=answer, rpc_timeout=within)
    return found
