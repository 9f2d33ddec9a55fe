"""One frozen container, healed by the real workflow over the real SSH."""

import pytest

from fleet.contracts.remediation import Outcome
from fleet.verdicts import Verdict
from tests.parts.rig import Rig
from tests.parts.watched import Plan

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
]


async def test_a_container_that_freezes_is_restarted_once_and_its_neighbour_never(
    rig: Rig,
) -> None:
    async with rig.fleet({"frozen": Plan(), "calm": Plan()}) as servers:
        frozen, calm = servers["frozen"], servers["calm"]
        before, untouched = await frozen.facts(), await calm.facts()
        await frozen.freeze()
        status = await frozen.ends()
        after = await frozen.facts()

        assert status.outcome is Outcome.RESOLVED
        assert (status.verdict, status.restarts) == (Verdict.HUNG, 1)
        assert after.identity == before.identity
        assert after.started > before.started
        assert (after.status, after.starts) == ("running", before.starts + 1)

        guard = await frozen.guard()
        assert [taken.incident for taken in guard.takes] == [status.incident]
        assert guard.incident is None

        await frozen.is_told("confirmed", "restarting", "resolved")
        assert frozen.causes == ["confirmed", "resolved", "restarting"]
        assert frozen.pages == []

        assert await calm.facts() == untouched
        assert await calm.status() is None
        assert (await calm.guard()).takes == []
        assert calm.told == []
