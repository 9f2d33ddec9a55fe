"""Putting a fleet in force, and being told to stop meanwhile."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError

from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest
from worker import apply
from worker.apply import apply_fleet
from worker.errors import SetupError

pytestmark = pytest.mark.anyio


SOURCE = {"kind": "status", "url": "http://127.0.0.1:8000/status"}
REQUEST = ApplyRequest(fleet=Fleet.model_validate({"servers": {"gpu-1": {"source": SOURCE}}}))


class Unanswered:
    """A client to whom no worker answers. Like the SDK's, it turns a cancellation into an error."""

    async def execute_update_with_start_workflow(self, *_: Any, **__: Any) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError as cancelled:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from cancelled


async def test_a_cancellation_stays_one() -> None:
    applying = asyncio.create_task(apply_fleet(Unanswered(), REQUEST))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    applying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await applying


async def test_where_no_worker_takes_it_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "_PATIENCE", timedelta(seconds=0.05))
    with pytest.raises(SetupError, match="worker"):
        await apply_fleet(Unanswered(), REQUEST)  # type: ignore[arg-type]
