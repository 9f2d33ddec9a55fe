"""Stronger steps after a restart that did not help, on virtual time."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from fleet.config import ComposeRestart, RebootRestart
from fleet.contracts.host import Effect, HostErrorType, HostStatus
from fleet.contracts.remediation import Outcome, Phase
from fleet.policy import Policy, RollingBudget
from tests.parts.entered import entered, guard_of
from tests.parts.world import MINUTE, World
from workflows.remediation import Remediation

pytestmark = pytest.mark.anyio

PROJECT = ComposeRestart(
    kind="compose",
    host="box",
    directory="/srv/models",
    cooldown=30 * MINUTE,
    verify_after=40 * MINUTE,
    load_limit=45 * MINUTE,
)
REBOOT = RebootRestart(kind="reboot", host="box", also_restarts=("gpu-2",))
MANY = Policy(budget=RollingBudget(limit=4, window=timedelta(hours=24)))


@pytest.fixture
async def world(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with entered(World(env, "gpu-1", MANY), monkeypatch) as a_world:
        yield a_world


def titles(world: World) -> list[str]:
    return [told.title for told in world.told if told.cause.startswith("restarting")]


async def test_a_restart_that_did_not_help_makes_the_next_one_stronger(world: World) -> None:
    world.ladder, world.cure_works = (PROJECT, REBOOT), False

    def works_at_last() -> None:
        def cure() -> None:
            world.cure_works = True

        world.before("restart_server", lambda: world.before("restart_server", cure))

    world.before("restart_server", works_at_last)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert world.rungs == [0, 1, 2]
    assert world.pages == ["not_recovered"]
    said = [title.removeprefix("gpu-1 is being restarted ") for title in titles(world)]
    assert said == [
        "(restart 1 of this incident: container worker)",
        "(restart 2 of this incident: compose project /srv/models)",
        "(restart 3 of this incident: reboot of box, which restarts gpu-2 as well)",
    ]
    page = next(told for told in world.told if told.cause == "not_recovered")
    assert "compose project /srv/models" in page.next_step
    assert any("restart 2 of this incident: compose" in moment.text for moment in status.timeline)


async def test_each_step_has_its_own_cooldown_and_verification(world: World) -> None:
    world.ladder, world.cure_works = (PROJECT, REBOOT), False
    await world.report()
    await world.env.sleep(timedelta(hours=3))
    first, second, third = world.restarts[:3]
    assert 10 * MINUTE <= second - first < 20 * MINUTE
    assert 40 * MINUTE <= third - second < 60 * MINUTE
    takes = (await guard_of(world)).takes
    assert [take.cooldown_until - take.at for take in takes[:3]] == [
        10 * MINUTE,
        30 * MINUTE,
        10 * MINUTE,
    ]


async def test_the_last_step_repeats_within_the_one_budget(world: World) -> None:
    world.ladder, world.cure_works = (PROJECT,), False
    handle = await world.report()
    await world.env.sleep(timedelta(hours=6))
    said = [title.rsplit(": ", 1)[1] for title in titles(world)]
    assert said == ["container worker)", *["compose project /srv/models)"] * 3]
    assert len((await guard_of(world)).takes) == 4
    status = await handle.query(Remediation.status)
    assert (status.phase, status.outcome) == (Phase.ESCALATED, Outcome.BUDGET_EXHAUSTED)


async def test_a_step_that_could_not_be_carried_out_is_tried_again_and_no_stronger_one(
    world: World,
) -> None:
    """Over several runs of the incident, whose step the guard keeps."""
    world.ladder, world.cure_works = (PROJECT, REBOOT), False

    def then_the_host_is_gone() -> None:
        def cut() -> None:
            world.unreachable = True

        world.before("restart_server", cut)

    world.before("restart_server", then_the_host_is_gone)
    assert (await world.end(await world.report())).outcome is Outcome.RESTART_FAILED
    incident = (await guard_of(world)).incident
    assert incident is not None
    assert (incident.rung, world.rungs) == (1, [0])
    world.unreachable, world.cure_works = False, True
    assert (await world.end(await world.report(key="sweep-2"))).outcome is Outcome.RESOLVED
    assert world.rungs == [0, 1]


async def test_a_reboot_is_settled_by_a_new_boot_and_verified_when_the_host_is_back(
    world: World,
) -> None:
    """The connection is lost, and for a while the host can't be reached at all."""
    world.ladder, world.cure_works = (REBOOT,), False
    went_down = False

    def first_step() -> None:
        world.before("restart_server", goes_down)

    def goes_down() -> None:
        nonlocal went_down
        world.later, world.takes_effect, world.effect = True, False, Effect.UNKNOWN
        went_down = True

    world.before("restart_server", first_step)
    handle = await world.report()
    while not went_down:
        await world.env.sleep(MINUTE / 4)
    world.unreachable = True
    assert (await handle.query(Remediation.status)).phase is Phase.SETTLING
    await world.env.sleep(MINUTE / 8)
    world.cure_works, world.unreachable = True, False
    world._restarted(await world.now())
    status = await world.end(handle)
    assert status.outcome is Outcome.RESOLVED
    assert world.rungs == [0, 1]
    assert any("took effect" in moment.text for moment in status.timeline)


async def test_a_reboot_after_which_the_host_shows_the_same_boot_is_told(world: World) -> None:
    world.ladder, world.cure_works = (REBOOT,), False

    def is_not_carried_out() -> None:
        def nothing_happens() -> None:
            world.later, world.takes_effect = True, False

        world.before("restart_server", nothing_happens)

    world.before("restart_server", is_not_carried_out)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESTART_FAILED
    assert world.pages == ["not_recovered", "restart_failed"]


# --- whose start it was --------------------------------------------------------------------------


async def takers(world: World) -> list[str]:
    return [taken.by for taken in (await guard_of(world)).takes]


async def test_no_step_of_the_ladder_is_taken_for_another_restarter(world: World) -> None:
    world.ladder, world.cure_works = (PROJECT, REBOOT), False
    await world.report()
    await world.env.sleep(timedelta(hours=6))
    assert world.rungs == [0, 1, 2, 3]
    assert await takers(world) == ["steady"] * 4
    assert "foreign_restart" not in world.causes


async def test_nor_where_the_host_could_not_be_asked_between_two_steps(world: World) -> None:
    """The next step shows the host by another name: the project's, not the container's."""
    world.ladder, world.cure_works = (PROJECT,), False
    missed = 0

    def once_it_did_not_help() -> None:
        nonlocal missed
        if "not_recovered" not in world.pages:
            world.before("inspect_host", once_it_did_not_help)
            return
        missed += 1
        world.cure_works = True
        raise ApplicationError("cut off", type=HostErrorType.UNREACHABLE, non_retryable=True)

    world.before("inspect_host", once_it_did_not_help)
    status = await world.end(await world.report())
    assert (status.outcome, world.rungs, missed) == (Outcome.RESOLVED, [0, 1], 1)
    assert await takers(world) == ["steady"] * 2
    assert "foreign_restart" not in world.causes


async def test_nor_is_a_container_that_comes_up_some_time_after_the_reboot(world: World) -> None:
    """Right after the boot the host shows the container as it was left, with its old start."""
    world.ladder, world.cure_works = (REBOOT,), False

    def first_step() -> None:
        world.before("restart_server", reboots)

    def reboots() -> None:
        world.takes_effect, world.status = False, HostStatus.RUNNING
        world.before("inspect_host", shows_it_exited)

    def shows_it_exited() -> None:
        world.status = HostStatus.STOPPED
        world.before("inspect_host", shows_it_running)

    def shows_it_running() -> None:
        world.status, world.takes_effect = HostStatus.RUNNING, True
        world.generation += 1

    world.before("restart_server", first_step)
    await world.report()
    await world.env.sleep(timedelta(hours=3))
    assert world.rungs[:2] == [0, 1]
    assert len(world.rungs) > 2
    assert set(await takers(world)) == {"steady"}
    assert "foreign_restart" not in world.causes


async def test_a_start_by_somebody_else_after_two_steps_is_known_for_one(world: World) -> None:
    """The first restart of the incident explains no process that is newer than the second's."""
    world.ladder, world.cure_works = (PROJECT,), False

    def meddled_with() -> None:
        if len(world.rungs) < 2 or world.pages.count("not_recovered") < 1:
            world.before("collect_evidence", meddled_with)
            return
        world.generation += 1

    world.before("collect_evidence", meddled_with)
    await world.report()
    await world.env.sleep(timedelta(hours=3))
    assert (await takers(world))[:3] == ["steady", "steady", "foreign"]
    assert world.causes.count("foreign_restart") == 1


async def test_nor_is_a_second_restart_that_takes_effect_after_its_run_has_given_up(
    world: World,
) -> None:
    """The run ends with the process of its first restart before its eyes."""
    world.cure_works = False

    def the_second() -> None:
        world.before("restart_server", cut)

    def cut() -> None:
        world.effect, world.takes_effect = Effect.UNKNOWN, False

    world.before("restart_server", the_second)
    first = await world.end(await world.report())
    world.generation += 1
    world.effect, world.takes_effect, world.cure_works = Effect.DONE, True, True
    await world.env.sleep(world.policy.cooldown)
    second = await world.end(await world.report(key="sweep-2"))
    assert (first.outcome, second.outcome) == (Outcome.RESTART_FAILED, Outcome.RESOLVED)
    assert set(await takers(world)) == {"steady"}
    assert "foreign_restart" not in world.causes
