"""A word that nobody waits for any longer is still sent, and that is what is said."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.contracts.names import remediation_id
from fleet.contracts.remediation import Phase, RemediationStatus
from worker.commands.exits import Stop
from worker.commands.operator import _followed
from worker.orders import _answer

pytestmark = pytest.mark.anyio


class Busy:
    """A remediation that hears every word and comes to no end."""

    id = remediation_id("gpu-1")

    def __init__(self) -> None:
        self.was_asked = asyncio.Event()

    def get_workflow_handle(self, _: str) -> "Busy":
        return self

    async def query(self, *_: object, **__: object) -> RemediationStatus:
        self.was_asked.set()
        return RemediationStatus(
            server="gpu-1", phase=Phase.COLLECTING, since=datetime(2026, 11, 30, tzinfo=UTC)
        )


async def _interrupted(busy: Busy, waiting: Any) -> str:
    task = asyncio.create_task(waiting)
    await busy.was_asked.wait()
    task.cancel()
    with pytest.raises(Stop) as stop:
        await task
    return str(stop.value)


async def test_an_answer_that_is_not_waited_for() -> None:
    busy: Any = Busy()
    said = await _interrupted(busy, _answer(busy, "1", timedelta(minutes=1)))
    assert said == (
        "not waited for: the word was sent to remediate/gpu-1 and stands;"
        " `steady incident show remediate/gpu-1` shows what comes of it"
    )


async def test_an_end_that_is_not_waited_for() -> None:
    busy: Any = Busy()
    said = await _interrupted(busy, _followed(busy, "gpu-1"))
    assert said.startswith("not waited for: the restart was accepted and goes on;")
