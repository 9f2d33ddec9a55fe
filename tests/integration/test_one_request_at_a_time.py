"""Never two requests at once to one server, whoever asks it: probes, the remediation, sweeps.

Real workers and activities, a real Temporal server, real HTTP. The server counts itself how many
requests it has at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import WorkflowFailureError

from fleet.contracts.names import TASK_QUEUE
from fleet.contracts.remediation import Outcome
from fleet.contracts.sweep import SweepRequest
from fleet.verdicts import Verdict
from tests.integration.test_engines import House, house
from workflows.health import HealthSweep
from workflows.probe import ProbeSweep

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]

_AT_ONCE = 3


class Crowd:
    """Starts by hand what the schedules start one after the other: all the time, side by side."""

    def __init__(self, h: House) -> None:
        self._h = h
        self.most, self.asked, self.runs = 0, 0, 0

    async def press(self, sweep: Callable[..., Any]) -> None:
        while True:
            self.runs += 1
            with suppress(WorkflowFailureError):
                await self._h.client.execute_workflow(
                    sweep,
                    SweepRequest(shard=0),
                    id=f"by-hand-{self.runs}",
                    task_queue=TASK_QUEUE,
                )
            await asyncio.sleep(0.3)

    async def watch(self, server: str) -> None:
        """A restart of the server loses its counts, so they are read while it lives."""
        while True:
            with suppress(httpx.TransportError):
                said = await self._h.server(server).say("")
                self.most = max(self.most, said["most_at_once"])
                self.asked = max(self.asked, said["asked"])
            await asyncio.sleep(0.05)


@asynccontextmanager
async def crowd(h: House, server: str, sweep: Callable[..., Any]) -> AsyncIterator[Crowd]:
    them = Crowd(h)
    tasks = [asyncio.create_task(them.press(sweep)) for _ in range(_AT_ONCE)]
    tasks.append(asyncio.create_task(them.watch(server)))
    try:
        yield them
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_probes_beside_each_other_and_beside_the_remediation_of_one_that_froze_idle(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, idle={}) as h:
        h.host.engine.freeze("idle")
        async with crowd(h, "idle", ProbeSweep.run) as them:
            ended = await h.ends("idle")
        assert (ended.outcome, ended.verdict) == (Outcome.RESOLVED, Verdict.UNRESPONSIVE)
        # A probe found it and the remediation asked again, while others came all the time.
        assert them.asked >= 2
        assert them.runs > 2 * _AT_ONCE
        assert them.most == 1


async def test_probes_beside_the_remediation_of_one_that_froze_under_load(tmp_path: Path) -> None:
    async with house(tmp_path, loaded={"load": 2}) as h:
        h.host.engine.freeze("loaded")
        async with crowd(h, "loaded", ProbeSweep.run) as them:
            ended = await h.ends("loaded")
        assert (ended.outcome, ended.verdict) == (Outcome.RESOLVED, Verdict.STUCK)
        assert (them.asked, them.most) == (1, 1)
        assert them.runs > _AT_ONCE


async def test_sweeps_beside_the_remediation_send_none_of_their_own(tmp_path: Path) -> None:
    async with house(tmp_path, loaded={"load": 2}) as h:
        async with crowd(h, "loaded", HealthSweep.run) as them:
            while them.runs < 2 * _AT_ONCE:
                await asyncio.sleep(0.1)
            assert them.asked == 0
            h.host.engine.freeze("loaded")
            ended = await h.ends("loaded")
        assert (ended.outcome, ended.verdict) == (Outcome.RESOLVED, Verdict.STUCK)
        assert (them.asked, them.most) == (1, 1)
