"""Restarts in parts on virtual time: stop, wait for GPU memory, start; and what ends half-way."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from fleet.config import DockerRestart
from fleet.contracts.guard import Hold
from fleet.contracts.host import Effect, GpuHolder, HostStatus
from fleet.contracts.remediation import Outcome, Phase
from fleet.gpu_memory import GpuMemory
from fleet.policy import Policy
from tests.parts.entered import entered, guard_of
from tests.parts.world import MINUTE, World
from workflows.remediation import Remediation

pytestmark = pytest.mark.anyio

GROUP = DockerRestart(kind="docker", host="box", name="worker", group=("proxy", "worker"))
HOLDER = GpuHolder(pid=4711, mib=70000, gpu="GPU-1", name="python3")
WAITS = DockerRestart(
    kind="docker", host="box", name="worker", gpu_memory=GpuMemory(within=2 * MINUTE)
)


@pytest.fixture
async def world(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with entered(World(env, "gpu-1", Policy()), monkeypatch) as a_world:
        yield a_world


async def test_a_group_is_one_act_under_one_lock_and_one_take(world: World) -> None:
    world.action = GROUP
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert (len(world.stops), len(world.starts), world.pages) == (1, 1, [])
    assert [taken.by for taken in (await guard_of(world)).takes] == ["steady"]
    assert world.stops[0].expected.identity == world.starts[0].expected.identity


async def test_what_is_stopped_and_started_is_taken_for_no_other_restarter(world: World) -> None:
    world.action, world.holders, world.cure_works = WAITS, [HOLDER], False
    await world.report()
    await world.env.sleep(timedelta(hours=3))
    assert (len(world.stops), len(world.starts)) == (3, 3)
    assert [taken.by for taken in (await guard_of(world)).takes] == ["steady"] * 3
    assert "foreign_restart" not in world.causes


async def test_memory_that_is_freed_in_time_lets_it_start(world: World) -> None:
    world.action, world.holders, world.freed = WAITS, [HOLDER], False

    def at_the_third_look() -> None:
        def freed() -> None:
            world.freed = True

        world.before("gpu_holders", lambda: world.before("gpu_holders", freed))

    world.before("gpu_holders", at_the_third_look)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert (len(world.stops), len(world.starts), world.pages) == (1, 1, [])
    said = [moment.text for moment in status.timeline]
    assert "held before the stop: process 4711 (python3) holds 70000 MiB of GPU-1" in said
    assert "the GPU memory is free" in said


async def test_memory_that_is_still_held_is_reported_and_nothing_more_is_tried(
    world: World,
) -> None:
    world.action, world.holders, world.freed = WAITS, [HOLDER], False
    handle = await world.report()
    while not world.stops:
        await world.env.sleep(MINUTE / 4)
    await world.env.sleep(MINUTE / 2)
    assert (await handle.query(Remediation.status)).phase is Phase.FREEING
    status = await world.end(handle)
    assert status.outcome is Outcome.HANDED_OVER
    assert (len(world.stops), world.starts, world.pages) == (1, [], ["handed_over"])
    page = world.told[-1].detail
    assert "process 4711 (python3) holds 70000 MiB of GPU-1" in page
    assert "docker start worker" in page
    guard = await guard_of(world)
    assert guard.incident is not None
    assert (guard.incident.hold, len(guard.takes)) == (Hold.PERSON, 1)
    for number in range(2, 5):
        await world.end(await world.report(key=f"sweep-{number}"))
    assert (len(world.stops), world.starts, world.pages) == (1, [], ["handed_over"])


async def test_a_stop_whose_end_was_not_seen_is_settled_by_the_host_and_it_is_started(
    world: World,
) -> None:
    world.action, world.stop_says = GROUP, Effect.UNKNOWN
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert (len(world.stops), len(world.starts)) == (1, 1)


async def test_a_stop_that_did_not_arrive_is_gone_on_with(world: World) -> None:
    """The worker died with the order in its hands: the activity ends without an answer."""
    world.action = GROUP

    def dies() -> None:
        message = "the worker is gone"
        raise RuntimeError(message)

    world.before("stop_server", dies)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert [order.begun for order in world.stops] == [True]
    assert len((await guard_of(world)).takes) == 1


async def test_what_was_stopped_is_started_when_the_host_can_be_reached_again(
    world: World,
) -> None:
    world.action = GROUP

    def cut() -> None:
        world.unreachable = True

    world.before("start_server", cut)
    handle = await world.report()
    while not world.unreachable:
        await world.env.sleep(MINUTE / 4)
    await world.env.sleep(10 * MINUTE)
    assert world.status is HostStatus.STOPPED
    assert world.pages == ["not_started"]
    world.unreachable = False
    assert (await world.end(handle)).outcome is Outcome.RESOLVED
    assert world.pages == ["not_started"]


async def test_a_start_that_fails_is_tried_a_few_times_and_goes_to_a_person(world: World) -> None:
    world.action, world.start_fails = GROUP, True
    status = await world.end(await world.report())
    assert status.outcome is Outcome.HANDED_OVER
    assert len(world.starts) == 3
    assert world.pages == ["not_started", "handed_over"]
    assert "docker start proxy && docker start worker" in world.told[-1].detail


async def test_a_group_that_could_not_be_stopped_costs_one_take_and_is_told(world: World) -> None:
    world.action, world.stop_says = GROUP, Effect.FAILED
    status = await world.end(await world.report())
    assert (status.outcome, world.starts) == (Outcome.RESTART_FAILED, [])
    assert world.pages == ["restart_failed"]


async def test_a_group_of_which_one_cannot_be_killed_goes_to_a_person(world: World) -> None:
    world.action, world.stop_says, world.command_hangs = GROUP, Effect.FAILED, True

    def it_lives() -> None:
        world.hindrance = "process 4711 is in uninterruptible sleep (state D)"

    world.before("stop_server", it_lives)
    status = await world.end(await world.report())
    assert (status.outcome, world.starts) == (Outcome.HANDED_OVER, [])
    assert "4711" in world.told[-1].detail


async def test_cancel_between_stop_and_start_is_too_late_and_it_is_started(world: World) -> None:
    world.action, world.holders, world.freed = WAITS, [HOLDER], False
    handle = await world.report()
    while not world.stops:
        await world.env.sleep(MINUTE / 4)
    await handle.signal("cancel", {"who": "ann", "id": "c"})
    world.freed = True
    status = await world.end(handle)
    assert status.answers["c"].startswith("too late")
    assert status.outcome is Outcome.RESOLVED
    assert len(world.starts) == 1
    assert timedelta(0) < world.restarts[0] - status.timeline[0].at
