"""The heartbeat store is gone for a while: for ten sweeps, as five minutes are at full length."""

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

SWEEPS = 10


async def test_nothing_is_restarted_each_is_told_once_and_an_open_incident_goes_on(
    rig: Rig,
) -> None:
    plans = {"calm": Plan(), "hung": Plan({"persist_hung": "5s"})}
    async with rig.fleet(plans) as servers:
        calm, hung = servers["calm"], servers["hung"]
        before = {server.name: await server.facts() for server in servers.values()}
        await hung.freeze()
        opened = await hung.comes_to(Phase.PERSISTING)
        await asyncio.to_thread(rig.store.stop)
        try:
            await asyncio.gather(calm.is_told("missing"), hung.is_told("missing"))
            await asyncio.sleep(SWEEPS)
            for server in servers.values():
                assert await server.facts() == before[server.name]
                assert (await server.guard()).takes == []
            assert (await hung.comes_to(Phase.PERSISTING)).incident == opened.incident
        finally:
            await asyncio.to_thread(rig.store.start)

        status = await hung.ends()
        assert (status.outcome, status.incident) == (Outcome.RESOLVED, opened.incident)
        assert (await hung.facts()).starts == 2
        assert len((await hung.guard()).takes) == 1
        assert len(await hung.runs()) == 1
        await hung.is_told("resolved")
        await asyncio.gather(calm.is_told("over"), hung.is_told("over"))
        assert hung.causes == ["confirmed", "missing", "over", "resolved", "restarting"]

        assert await calm.facts() == before[calm.name]
        assert (await calm.guard()).takes == []
        assert calm.causes == ["missing", "over"]
