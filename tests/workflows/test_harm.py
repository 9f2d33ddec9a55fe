"""Where a restart would do harm, or can't work, it goes to a person, and is not tried again."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from fleet.contracts.guard import Hold
from fleet.contracts.host import Effect
from fleet.contracts.remediation import Outcome
from fleet.policy import Policy
from tests.parts.entered import entered, guard_of
from tests.parts.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with entered(World(env, "gpu-1", Policy()), monkeypatch) as a_world:
        yield a_world


async def test_what_a_restart_would_harm_is_found_before_the_budget_and_told_once(
    world: World,
) -> None:
    world.hindrance = "vllm was started with --rm: once stopped it is removed"
    status = await world.end(await world.report())
    assert status.outcome is Outcome.HANDED_OVER
    assert (world.restarts, (await guard_of(world)).takes) == ([], [])
    assert world.pages == ["handed_over"]
    assert "--rm" in world.told[-1].detail
    again = await world.end(await world.report(key="sweep-2"))
    assert again.outcome is Outcome.HANDED_OVER
    assert world.pages == ["handed_over"]


@pytest.mark.parametrize("effect", [Effect.UNKNOWN, Effect.FAILED])
async def test_a_process_that_cannot_be_killed_goes_to_a_person_and_is_tried_no_more(
    world: World, effect: Effect
) -> None:
    world.effect, world.takes_effect, world.command_hangs = effect, False, True

    def it_lives() -> None:
        world.hindrance = "process 4711 is in uninterruptible sleep (state D)"

    world.before("restart_server", it_lives)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.HANDED_OVER
    assert world.pages == ["handed_over"]
    assert "4711" in world.told[-1].detail
    guard = await guard_of(world)
    assert len(guard.takes) == 1
    assert guard.incident is not None
    assert guard.incident.hold is Hold.PERSON
    await world.end(await world.report(key="sweep-2"))
    assert len((await guard_of(world)).takes) == 1


async def test_a_command_without_end_that_took_effect_after_all_is_a_restart_as_any(
    world: World,
) -> None:
    world.effect, world.command_hangs = Effect.UNKNOWN, True
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert world.pages == []
