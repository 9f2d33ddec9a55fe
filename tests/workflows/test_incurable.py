"""A fault that no restart cures pages at once, and costs no restart."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from fleet.contracts.guard import Hold
from fleet.contracts.host import GpuFault
from fleet.contracts.remediation import Outcome, RemediationSignal
from fleet.gpu_faults import Remedy
from fleet.policy import Mode, Policy
from fleet.verdicts import Verdict
from tests.parts.entered import entered, guard_of
from tests.parts.world import World

pytestmark = pytest.mark.anyio

OFF_THE_BUS = GpuFault(
    what="Xid 79: GPU has fallen off the bus", gpu="0000:3b:00", remedy=Remedy.REBOOT
)
BY_HAND = {"who": "ann", "why": "it was reset", "id": "r"}


@pytest.fixture
async def world(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with entered(World(env, "gpu-1", Policy()), monkeypatch) as a_world:
        a_world.faults = [OFF_THE_BUS]
        yield a_world


async def test_it_pages_once_and_neither_takes_nor_restarts(world: World) -> None:
    status = await world.end(await world.report())
    assert status.outcome is Outcome.HANDED_OVER
    guard = await guard_of(world)
    assert (world.restarts, guard.takes) == ([], [])
    assert guard.incident is not None
    assert guard.incident.hold is Hold.PERSON
    assert world.causes == ["confirmed", "handed_over"]
    assert "Xid 79" in world.told[-1].detail
    assert "reboot the host" in world.told[-1].detail
    # Automation leaves it alone from now on, and says nothing more.
    again = await world.end(await world.report(key="sweep-2"))
    assert again.outcome is Outcome.HANDED_OVER
    assert (world.restarts, world.causes) == ([], ["confirmed", "handed_over"])
    assert len(world.evidence) == 1


async def test_a_person_may_order_the_restart_all_the_same(world: World) -> None:
    await world.end(await world.report())
    status = await world.end(await world.order(RemediationSignal.RESTART_NOW, BY_HAND))
    assert status.outcome is Outcome.RESOLVED
    assert len(world.restarts) == 1
    assert any("by hand, though a restart can't cure it" in each.text for each in status.timeline)


async def test_when_it_has_recovered_automation_may_act_again(world: World) -> None:
    await world.end(await world.report())
    world.faults = []
    now = await world.now()
    world.recovers_at = now
    await world.end(await world.order(RemediationSignal.RESTART_NOW, BY_HAND))
    restarts = len(world.restarts)
    await world.env.sleep(3600)
    world.recovers_at = None
    await world.freeze()
    status = await world.end(await world.report(key="sweep-9"))
    assert status.outcome is Outcome.RESOLVED
    assert len(world.restarts) == restarts + 1


async def test_nobody_is_asked_to_approve_what_cannot_help(world: World) -> None:
    world.policy = Policy(mode=Mode.APPROVE)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.HANDED_OVER
    assert "approval" not in world.causes


async def test_after_a_long_wait_the_host_is_asked_again(world: World) -> None:
    """It was approved an hour after the evidence, and the GPU has broken meanwhile."""
    world.policy = Policy(mode=Mode.APPROVE)
    world.faults = []
    handle = await world.report()
    await world.env.sleep(3600)
    assert len(world.evidence) == 1
    world.faults = [OFF_THE_BUS]
    await world.order(RemediationSignal.APPROVE, {"who": "ann"})
    status = await world.end(handle)
    assert status.outcome is Outcome.HANDED_OVER
    assert (world.restarts, len(world.evidence)) == ([], 2)


async def test_a_server_that_recovers_meanwhile_is_not_handed_over(world: World) -> None:
    async def recover() -> None:
        world.recovers_at = await world.now()

    world.before("collect_evidence", recover)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RECOVERED
    assert world.pages == []


async def test_a_fault_of_a_process_that_is_gone_says_nothing_of_the_next(world: World) -> None:
    """Between the evidence and the last look somebody has reset the GPU and started it anew."""

    def started_anew() -> None:
        async def cured() -> None:
            world.generation += 1
            world.faults = []

        world.before("inspect_host", cured)

    world.before("collect_evidence", started_anew)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert (len(world.restarts), len(world.evidence)) == (1, 2)
    assert world.pages == []


async def test_after_a_restart_that_did_not_help_a_new_fault_ends_the_tries(world: World) -> None:
    world.faults, world.cure_works = [], False

    def broken() -> None:
        world.faults = [OFF_THE_BUS]

    world.before("restart_server", broken)
    status = await world.end(await world.report(Verdict.HUNG))
    assert status.outcome is Outcome.HANDED_OVER
    assert len(world.restarts) == 1
    assert world.pages == ["not_recovered", "handed_over"]
