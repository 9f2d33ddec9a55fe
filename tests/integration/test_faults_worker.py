"""The worker dies by SIGKILL while seven incidents are each at another point; a new one goes on.

One kill for all of them, since what a dead worker had in its hands is noticed only when its
heartbeats have been missing for 20 s.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from fleet.contracts.guard import GuardState
from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from tests.parts.rig import Rig, holds
from tests.parts.watched import Facts, Plan, Server, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(300),
]

#: Each waits for long enough that all are at their points together, also on a slow machine.
PLANS = {
    "persisting": Plan({"persist_hung": "60s"}),
    "collecting": Plan(),
    "approving": Plan({"mode": "approve"}),
    "taking": Plan(),
    "leaving": Plan(),
    "running": Plan(stop="45s"),
    "back": Plan(),
    # Killed between its stop and its start; `true` is a nvidia-smi that shows nobody.
    "between": Plan({"reading_max_age": "40s"}, restart={"gpu_memory": {"cli": ["true"]}}),
    "cooling": Plan({"cooldown": "45s", "verify_after": "45s"}),
    "verifying": Plan({"cooldown": "1s", "verify_after": "45s"}),
}
#: Where the first worker stands still with one server's activity in its hands.
HELD = {
    "collecting": ("collect_evidence", "after"),
    "taking": ("take_budget", "after"),
    "leaving": ("restart_server", "before"),
    "back": ("restart_server", "after"),
    "between": ("stop_server", "after"),
}
WAITING = {
    "persisting": Phase.PERSISTING,
    "approving": Phase.APPROVING,
    "running": Phase.RESTARTING,
    "cooling": Phase.COOLING,
    "verifying": Phase.VERIFYING,
}


@dataclass
class Killed:
    """The servers after the kill, as they were when it came."""

    servers: dict[str, Server]
    before: dict[str, Facts]

    async def ended(self, label: str, within: float = 120) -> RemediationStatus:
        return await self.servers[label].ends(within)

    async def restarts(self, label: str) -> int:
        now = await self.servers[label].facts()
        assert now.identity == self.before[label].identity
        return now.starts - 1

    async def guard(self, label: str) -> GuardState:
        return await self.servers[label].guard()


@pytest.fixture(scope="module")
async def killed(rig: Rig) -> AsyncIterator[Killed]:
    first = await rig.only_worker()
    async with rig.fleet(PLANS, sweep="3s") as servers:
        await asyncio.to_thread(first.kill)
        held_in = rig.folder / "held"
        held_in.mkdir()
        places = [(servers[label].name, *place) for label, place in HELD.items()]
        doomed = await rig.start_worker(
            *(sys.executable, "-m", "tests.parts.held_worker"),
            variables=holds(*places) | {"HELD_IN": str(held_in)},
        )
        await asyncio.gather(*(server.freeze() for server in servers.values()))
        before = {label: await server.facts() for label, server in servers.items()}

        async def all_held() -> bool:
            return len(list(held_in.iterdir())) == len(HELD)

        await until(all_held, "every held activity", within=90)
        for label, phase in WAITING.items():
            await servers[label].comes_to(phase, within=20)
        assert (await servers["running"].facts()).starts == 1
        await asyncio.to_thread(doomed.kill)
        await rig.start_worker()
        yield Killed(servers, before)


@pytest.mark.parametrize(
    "label",
    [
        *("persisting", "collecting", "taking", "running", "back", "between", "cooling"),
        "verifying",
    ],
)
async def test_killed_at_any_other_point_it_goes_on_with_one_restart(
    killed: Killed, label: str
) -> None:
    status = await killed.ended(label)
    assert status.outcome is Outcome.RESOLVED, status
    assert await killed.restarts(label) == 1
    guard = await killed.guard(label)
    assert [taken.incident for taken in guard.takes] == [status.incident]
    assert guard.incident is None
    await killed.servers[label].is_told("resolved")
    assert killed.servers[label].causes == ["confirmed", "resolved", "restarting"]
    await killed.servers[label].replays()


async def test_killed_while_a_person_must_approve_it_still_waits_and_hears(
    killed: Killed, rig: Rig
) -> None:
    server = killed.servers["approving"]
    await server.comes_to(Phase.APPROVING)
    assert await killed.restarts("approving") == 0
    code, said = await rig.steady("approve", server.name)
    assert code == 0, said
    status = await server.ends()
    assert status.outcome is Outcome.RESOLVED
    assert await killed.restarts("approving") == 1
    assert len((await server.guard()).takes) == 1
    await server.is_told("resolved")
    assert server.pages == ["approval"]
    await server.replays()


async def test_killed_one_moment_before_the_command_it_is_unknown_and_the_next_try_heals(
    killed: Killed,
) -> None:
    """The host is asked until the command can no longer be on its way; then a person is told."""
    server = killed.servers["leaving"]

    async def is_tried_again() -> bool:
        return len(await server.runs()) == 2

    await until(is_tried_again, "a second run of the incident", within=200)
    first, second = await server.runs()
    client = server.rig.client
    failed: RemediationStatus = await client.get_workflow_handle(
        first.id, run_id=first.run_id, result_type=RemediationStatus
    ).result()
    status = await server.ends()
    assert second.id == first.id
    assert (failed.outcome, status.outcome) == (Outcome.RESTART_FAILED, Outcome.RESOLVED)
    assert failed.incident == status.incident
    assert any("restart command: unknown" in moment.text for moment in failed.timeline)
    assert await killed.restarts("leaving") == 1
    assert len((await server.guard()).takes) == 2
    await server.is_told("restart_failed", "resolved")
    assert "restart_failed" in server.pages
    await server.replays()
