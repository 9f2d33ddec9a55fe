"""A server is out of rotation while it is restarted; a gateway that is down holds nothing up."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from fleet.actions import RebootRestart
from fleet.contracts.gateway import DrainRequest, Gateways
from fleet.contracts.host import Effect
from fleet.contracts.names import remediation_id
from fleet.contracts.remediation import Outcome, Phase, RemediationSignal, RemediationStatus
from fleet.policy import Mode, Policy
from fleet.readings import WorkState
from fleet.secret_refs import SecretRef
from fleet.verdicts import Verdict
from tests.parts.entered import entered, guard_of
from tests.parts.world import MINUTE, World
from workflows.remediation import Remediation

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
GATEWAYS = Gateways(
    urls=["http://gw:1"], token=SecretRef(env="T"), wait=30 * SECOND, wait_hung=2 * SECOND
)


@pytest.fixture
async def world(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with entered(World(env, "gpu-1", Policy()), monkeypatch) as a_world:
        a_world.gateways = GATEWAYS
        yield a_world


def notes(status: RemediationStatus) -> list[str]:
    return [moment.text for moment in status.timeline if "drained" in moment.text]


def closed(world: World) -> list[DrainRequest]:
    """The orders by which it is sent nothing at all."""
    return [each for each in world.drains if not each.last_resort]


async def test_it_is_drained_before_the_command_and_until_the_restart_was_verified(
    world: World,
) -> None:
    drained: list[bool] = []
    world.in_flight = 3
    world.before("restart_server", lambda: drained.append(bool(world.leases)))
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert drained == [True]
    order, renewal = world.drains
    assert order.lease == renewal.lease == status.incident
    assert order.lasting > world.policy.cooldown + world.policy.load_limit
    assert world.leases == {}
    assert notes(status) == [
        "drained: the gateway sends it nothing more, 3 in flight after 2s",
        "drained still: the gateway sends it only what no other backend is left for",
        "undrained: the gateway sends to it again",
    ]


async def test_after_the_command_and_until_it_is_verified_it_is_a_last_resort(
    world: World,
) -> None:
    known: list[list[bool]] = []
    world.cure_works = False
    world.before(
        "restart_server", lambda: known.append([each.last_resort for each in world.drains])
    )
    handle = await world.report()
    await world.env.sleep(timedelta(hours=6))
    assert known == [[False]]
    # Each restart is drained for anew, and what nothing is left to do for is sent nothing.
    sent = [each.last_resort for each in world.drains]
    assert sent[:6] == [False, True] * 3
    assert set(sent[6:]) == {False}
    assert len({each.lease for each in world.drains}) == 1
    world.frozen_at = None
    await world.end(handle)


async def test_the_phase_is_shown_and_everything_is_looked_at_anew_after_it(world: World) -> None:
    phases: list[Phase] = []
    looks: list[str] = []

    async def see() -> None:
        handle = world.env.client.get_workflow_handle_for(Remediation.run, "remediate/gpu-1")
        phases.append((await handle.query(Remediation.status)).phase)
        world.before("read_server", lambda: looks.append("read"))
        world.before("inspect_host", lambda: looks.append("host"))
        world.before("restart_server", lambda: looks.append("restart"))

    world.before("drain_server", see)
    await world.end(await world.report())
    assert phases == [Phase.DRAINING]
    assert looks == ["read", "host", "restart"]


async def test_one_that_recovers_while_it_is_drained_is_not_restarted_and_is_undrained(
    world: World,
) -> None:
    def recover() -> None:
        world.frozen_at = None

    world.before("drain_server", recover)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RECOVERED
    assert (world.restarts, world.leases) == ([], {})
    assert (await guard_of(world)).takes == []


async def test_for_what_a_hung_server_has_in_flight_it_waits_a_moment(world: World) -> None:
    await world.end(await world.report())
    assert [each.wait for each in closed(world)] == [2 * SECOND]


async def test_a_server_that_a_person_restarts_may_finish(world: World) -> None:
    world.frozen_at = None
    await world.end(await world.order(RemediationSignal.RESTART_NOW, {"who": "ann", "why": "x"}))
    assert [each.wait for each in closed(world)] == [30 * SECOND]


async def test_one_in_an_error_may_finish(world: World) -> None:
    world.state, world.frozen_at = WorkState.ERROR, None

    def work_again() -> None:
        world.state = WorkState.PROCESSING

    world.before("restart_server", work_again)
    await world.end(await world.report(Verdict.ERROR))
    assert [each.wait for each in closed(world)] == [30 * SECOND]


async def test_a_gateway_that_is_down_holds_no_restart_up(world: World) -> None:
    world.gateway_is_down = True
    began = await world.now()
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert len(world.restarts) == 1
    assert world.restarts[0] - began < 5 * MINUTE
    assert notes(status) == [
        "not drained: the gateway at gw:1: connection refused",
        "not undrained, it ends by itself: the gateway at gw:1: connection refused",
    ]


async def test_an_activity_that_fails_holds_no_restart_up(world: World) -> None:
    def fails() -> None:
        raise ApplicationError("no such activity")

    world.before("drain_server", fails)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert notes(status)[0] == "not drained: no such activity"


async def test_one_that_is_not_undrained_is_resolved_all_the_same(world: World) -> None:
    def goes_down() -> None:
        world.gateway_is_down = True

    world.before("restart_server", goes_down)
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert notes(status)[-1].startswith("not undrained, it ends by itself, at ")


async def test_a_lease_that_can_no_longer_be_renewed_holds_no_second_restart_up(
    world: World,
) -> None:
    world.policy = Policy(load_limit=90 * MINUTE, verify_after=85 * MINUTE, cooldown=80 * MINUTE)
    world.cure_works = False

    def goes_down() -> None:
        world.gateway_is_down = True

    world.before("restart_server", goes_down)
    await world.report()
    await world.env.sleep(timedelta(hours=4))
    assert len(world.restarts) == 3
    asked = [each for each in world.drains if each.wait]
    assert len(asked) == 2  # the first, and once for the third restart


async def test_while_nothing_is_left_to_do_it_stays_drained_until_it_recovers(
    world: World,
) -> None:
    world.cure_works = False
    handle = await world.report()
    await world.env.sleep(timedelta(hours=6))
    assert (await handle.query(Remediation.status)).phase is Phase.ESCALATED
    renewed = [each for each in closed(world) if each.wait == timedelta(0)]
    assert len(renewed) >= 2
    waits = world.policy.escalated_reads
    assert all(each.lasting > waits[0] for each in renewed)
    assert world.leases
    world.frozen_at = None
    status = await world.end(handle)
    assert status.outcome is Outcome.BUDGET_EXHAUSTED
    assert world.leases == {}
    assert len({each.lease for each in world.drains}) == 1
    said = "drained: the gateway sends it nothing more, 0 in flight after 0s"
    assert notes(status).count(said) == 1


async def test_after_a_restart_that_failed_it_stays_drained_for_a_while(world: World) -> None:
    world.effect = Effect.FAILED
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESTART_FAILED
    assert list(world.leases.values()) == [15 * MINUTE]
    world.effect = Effect.DONE
    again = await world.end(await world.report(key="sweep-2"))
    assert again.outcome is Outcome.RESOLVED
    assert again.incident == status.incident
    assert world.leases == {}


async def test_who_cancels_it_while_it_drains_puts_it_back(world: World) -> None:
    sent = asyncio.Event()

    async def cancel() -> None:
        handle = world.env.client.get_workflow_handle(remediation_id(world.server))
        await handle.signal(RemediationSignal.CANCEL, {"who": "ann", "id": "c"})
        sent.set()
        await asyncio.sleep(1)  # under way still when the workflow gives the step up

    world.before("drain_server", cancel)
    status = await world.end_of_given_up(await world.report(), sent)
    assert status.outcome is Outcome.CANCELLED
    assert (world.restarts, (await guard_of(world)).takes) == ([], [])
    assert notes(status) == ["undrained: the gateway sends to it again"]


async def test_a_dry_run_drains_nothing(world: World) -> None:
    world.policy = Policy(mode=Mode.DRY_RUN)
    assert (await world.end(await world.report())).outcome is Outcome.DRY_RUN
    assert world.drains == []


async def test_what_no_gateway_serves_is_not_drained(world: World) -> None:
    world.gateways = None
    status = await world.end(await world.report())
    assert status.outcome is Outcome.RESOLVED
    assert world.drains == []
    assert notes(status) == []


REBOOT = RebootRestart(kind="reboot", host="box", also_restarts=("gpu-2", "gpu-3"))


@pytest.fixture
def rebooting(world: World) -> World:
    """The second step takes gpu-2, a backend as well, and gpu-3, which is none, along."""
    world.ladder, world.cure_works = (REBOOT,), False
    world.gateways = GATEWAYS.model_copy(update={"backends": ["gpu-1", "gpu-2"]})
    return world


async def test_backends_that_a_restart_takes_along_are_drained_before_it(rebooting: World) -> None:
    known: list[set[str]] = []

    def restarts() -> None:
        known.append(set(rebooting.drained))
        rebooting.cure_works = len(known) == 2
        rebooting.before("restart_server", restarts)

    rebooting.before("restart_server", restarts)
    status = await rebooting.end(await rebooting.report())
    assert status.outcome is Outcome.RESOLVED
    assert known[:2] == [{"gpu-1"}, {"gpu-1", "gpu-2"}]
    assert rebooting.drained == set()
    orders = [(each.servers, each.wait, each.wait_others) for each in closed(rebooting)]
    assert orders == [
        (["gpu-1"], 2 * SECOND, 0 * SECOND),
        (["gpu-1", "gpu-2"], 2 * SECOND, 30 * SECOND),
    ]
    assert notes(status)[-3:] == [
        "drained: the gateway sends it, gpu-2 nothing more, 0 in flight after 2s",
        "drained still: the gateway sends it, gpu-2 only what no other backend is left for",
        "undrained: the gateway sends to it, gpu-2 again",
    ]


async def test_what_was_taken_along_does_not_wait_for_one_that_stays_bad(rebooting: World) -> None:
    known: list[set[str]] = []

    def drains() -> None:
        known.append(set(rebooting.drained))
        rebooting.before("drain_server", drains)

    rebooting.before("drain_server", drains)
    handle = await rebooting.report()
    await rebooting.env.sleep(timedelta(hours=6))
    # Before each restart and after it, and then at each look: gpu-2 is let go in between.
    both, own = {"gpu-1", "gpu-2"}, {"gpu-1"}
    assert known[:7] == [set(), own, own, both, own, both, own]
    assert (await handle.query(Remediation.status)).phase is Phase.ESCALATED
    assert rebooting.drained == {"gpu-1"}
    rebooting.frozen_at = None
    status = await rebooting.end(handle)
    assert rebooting.drained == set()
    assert "undrained: the gateway sends to gpu-2 again" in notes(status)
    assert notes(status)[-1] == "undrained: the gateway sends to it again"


async def test_a_server_that_is_no_backend_drains_those_that_it_takes_along(
    rebooting: World,
) -> None:
    rebooting.gateways = GATEWAYS.model_copy(update={"backends": ["gpu-2"]})
    known: list[set[str]] = []

    def restarts() -> None:
        known.append(set(rebooting.drained))
        rebooting.before("restart_server", restarts)

    rebooting.before("restart_server", restarts)
    handle = await rebooting.report()
    await rebooting.env.sleep(timedelta(hours=6))
    assert known[:2] == [set(), {"gpu-2"}]
    assert rebooting.drained == set()
    rebooting.frozen_at = None
    await rebooting.end(handle)
