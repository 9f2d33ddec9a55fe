"""The Temporal server is killed while remediations wait, and comes back on its file."""

import asyncio

import pytest

from fleet.contracts.remediation import Outcome, Phase
from tests.parts.rig import Rig
from tests.parts.watched import Plan

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(180),
]


async def test_what_waits_goes_on_with_one_restart_and_the_same_worker(rig: Rig) -> None:
    [worker] = rig.workers
    plans = {
        "persisting": Plan({"persist_hung": "40s"}),
        "cooling": Plan({"cooldown": "25s", "verify_after": "25s"}),
    }
    async with rig.fleet(plans) as servers:
        await asyncio.gather(*(server.freeze() for server in servers.values()))
        await servers["cooling"].comes_to(Phase.COOLING)
        await servers["persisting"].comes_to(Phase.PERSISTING)
        await asyncio.to_thread(rig.temporal.kill)
        await asyncio.sleep(2)
        await rig.temporal.start()
        for server in servers.values():
            status = await server.ends()
            assert status.outcome is Outcome.RESOLVED
            assert (await server.facts()).starts == 2
            guard = await server.guard()
            assert [taken.incident for taken in guard.takes] == [status.incident]
            assert len(await server.runs()) == 1
            await server.is_told("resolved")
            assert server.causes == ["confirmed", "resolved", "restarting"]
            await server.replays()
        assert worker.process.poll() is None
