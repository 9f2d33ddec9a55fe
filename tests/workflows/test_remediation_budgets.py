"""A remediation between two ledgers, its server's and its machine's."""

from datetime import timedelta

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities.ledgers import GUARD_UNREACHABLE, GuardReader, Ledgers
from fleet.config import Fleet
from fleet.contracts.fleet import FleetState
from fleet.contracts.guard import GuardUpdate, HostGuardInput, Take, TakeRequest
from fleet.contracts.host import Effect, HostErrorType
from fleet.contracts.names import HOST_GUARD, TASK_QUEUE, guard_id, host_guard_id
from fleet.contracts.remediation import Outcome, Phase
from fleet.policy import HostBudget
from tests.parts.world import MINUTE, World
from tests.workflows.test_remediation import PROMPT, Enter, world
from worker.budget import Counter, Refused
from workflows.remediation import Remediation

__all__ = ["world"]

pytestmark = pytest.mark.anyio

MACHINE = "127.0.0.1:22"


async def on_a_machine(w: World, *, limit: int, used: int = 0) -> None:
    now = await w.now()
    w.machine, w.host_budget = MACHINE, HostBudget(limit=limit)
    takes = [Take(key=f"gpu-2/{n}", at=now, cooldown_until=now, by="bob") for n in range(used)]
    await w.env.client.start_workflow(
        HOST_GUARD,
        HostGuardInput(machine=MACHINE, founding=True, takes=takes),
        id=host_guard_id(MACHINE),
        task_queue=TASK_QUEUE,
    )


async def left_in(w: World) -> tuple[int, int]:
    """How many takes the server's ledger and the machine's hold."""
    reader = GuardReader(w.env.client)
    own, host = await reader.state(w.server), await reader.host(MACHINE)
    assert own is not None
    assert host is not None
    return len(own.takes), len(host.takes)


async def test_a_restart_counts_for_the_server_and_for_its_machine(world: Enter) -> None:
    async with world() as w:
        await on_a_machine(w, limit=2, used=1)
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESOLVED
        assert await left_in(w) == (1, 2)


async def test_a_machine_that_is_used_up_pages_and_says_so_and_when_the_next_is_free(
    world: Enter,
) -> None:
    async with world() as w:
        await on_a_machine(w, limit=1, used=1)
        began = await w.now()
        w.recovers_at = began + timedelta(hours=3)
        status = await w.end(await w.report())
        page = next(alert for alert in w.told if alert.cause == "budget_exhausted")

        assert status.outcome is Outcome.BUDGET_EXHAUSTED
        assert w.restarts == []
        assert w.pages == ["budget_exhausted"]
        assert "budget of its host" in page.title
        assert f"all servers of {MACHINE} together: 1 of 1 restarts in 1d are used" in page.detail
        assert f"the next is free at {began + timedelta(days=1):%Y-%m-%d %H:%M}" in page.detail
        assert await left_in(w) == (0, 1)


async def test_where_nothing_was_sent_both_get_their_restart_back(world: Enter) -> None:
    async with world() as w:
        await on_a_machine(w, limit=2)

        def fails() -> None:
            raise ApplicationError("refused", type=HostErrorType.DENIED, non_retryable=True)

        w.before("restart_server", fails)
        status = await w.end(await w.report())

        assert status.outcome is Outcome.RESTART_FAILED
        assert await left_in(w) == (0, 0)


async def test_without_a_guard_of_the_machine_the_servers_own_budget_decides(world: Enter) -> None:
    """As in a fleet that was applied before machines had guards."""
    async with world() as w:
        status = await w.end(await w.report())
        assert status.outcome is Outcome.RESOLVED
        assert await GuardReader(w.env.client).host(MACHINE) is None


async def test_a_restart_by_a_script_is_waited_for_before_the_next(world: Enter) -> None:
    """Two arbiters of one server: who took first restarts, and the other waits and looks again."""
    async with world() as w:
        guard: WorkflowHandle[object, object] = w.env.client.get_workflow_handle(guard_id(w.server))
        taken_at = []

        async def script_takes() -> None:
            taken_at.append(await w.now())
            request = TakeRequest(
                server=w.server,
                incident="",
                key="script/1",
                budget=PROMPT.budget,
                cooldown=PROMPT.cooldown,
                by="deploy",
            )
            await guard.execute_update(GuardUpdate.TAKE, request)

        w.before("collect_evidence", script_takes)
        status = await w.end(await w.report())

        assert status.outcome is Outcome.RESOLVED
        assert len(w.restarts) == 1
        assert w.restarts[0] - taken_at[0] >= PROMPT.cooldown - MINUTE
        assert any("cools down" in moment.text for moment in status.timeline)


async def test_a_guard_that_can_never_be_asked_grants_nothing_and_pages(
    world: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: object) -> None:
        raise ApplicationError("no worker answered in time", type=GUARD_UNREACHABLE)

    monkeypatch.setattr(Ledgers, "take", unreachable)
    async with world() as w:
        status = await w.end(await w.report())

        assert status.outcome is Outcome.INTERNAL_ERROR
        assert w.restarts == []
        assert w.pages == ["internal_error"]


class TestAnotherRestarter:
    async def test_a_start_that_the_last_look_finds_is_booked_told_once_and_waited_for(
        self, world: Enter
    ) -> None:
        async with world() as w:
            await on_a_machine(w, limit=9)

            def restart() -> None:
                w.generation += 1

            w.before("collect_evidence", restart)
            began = await w.now()
            status = await w.end(await w.report())
            guard = await GuardReader(w.env.client).state(w.server)

            assert status.outcome is Outcome.RESOLVED
            assert guard is not None
            assert [taken.by for taken in guard.takes] == ["foreign", "steady"]
            assert await left_in(w) == (2, 2)
            assert w.causes.count("foreign_restart") == 1
            assert w.pages == []
            assert w.restarts[0] - began >= w.policy.load_limit

    async def test_the_process_that_steady_started_is_its_own_also_where_it_did_not_help(
        self, world: Enter
    ) -> None:
        async with world() as w:
            w.cure_works = False
            began = await w.now()
            w.recovers_at = began + timedelta(hours=5)
            await w.end(await w.report())
            guard = await GuardReader(w.env.client).state(w.server)

            assert guard is not None
            assert [taken.by for taken in guard.takes] == ["steady"] * 3
            assert "foreign_restart" not in w.causes

    async def test_a_restart_whose_connection_was_lost_is_its_own_when_it_is_settled_later(
        self, world: Enter
    ) -> None:
        """The command takes effect only after this run has given the host up, and ended."""
        async with world() as w:
            w.effect, w.takes_effect = Effect.UNKNOWN, False
            first = await w.end(await w.report())
            w.generation += 1
            w.effect, w.takes_effect = Effect.DONE, True
            await w.env.sleep(w.policy.cooldown)
            second = await w.end(await w.report(key="sweep-2"))
            guard = await GuardReader(w.env.client).state(w.server)

            assert first.outcome is Outcome.RESTART_FAILED
            assert second.outcome is Outcome.RESOLVED
            assert guard is not None
            assert {taken.by for taken in guard.takes} == {"steady"}
            assert "foreign_restart" not in w.causes

    async def test_a_start_between_two_runs_of_an_incident_is_foreign(self, world: Enter) -> None:
        async with world() as w:

            def cut() -> None:
                w.unreachable = True

            w.before("restart_server", cut)
            first = await w.end(await w.report())
            w.unreachable = False
            w.generation += 1
            await w.env.sleep(MINUTE)
            await w.end(await w.report(key="sweep-2"))
            guard = await GuardReader(w.env.client).state(w.server)

            assert first.outcome is Outcome.RESTART_FAILED
            assert guard is not None
            assert [taken.by for taken in guard.takes] == ["foreign", "steady"]

    async def test_nobody_is_told_of_a_start_while_the_server_may_be_off(
        self, world: Enter
    ) -> None:
        async with world(PROMPT.model_copy(update={"expected_off": True})) as w:

            def restart() -> None:
                w.generation += 1

            w.before("collect_evidence", restart)
            await w.end(await w.report())
            guard = await GuardReader(w.env.client).state(w.server)

            assert guard is not None
            assert [taken.by for taken in guard.takes] == ["foreign", "steady"]
            assert "foreign_restart" not in w.causes


class TestAScriptThatAsksMeanwhile:
    """``steady budget take``, by somebody who would restart the same server himself."""

    def counter(self, w: World) -> Counter:
        hosts = {"box": {"address": "127.0.0.1", "user": "ops", "key": "/key"}}
        server = {
            "source": {"kind": "status", "url": "http://127.0.0.1:9/"},
            "restart": {"kind": "docker", "host": "box", "name": "worker"},
            "policy": {"cooldown": "1s", "verify_after": "1s"},
        }
        fleet = Fleet.model_validate({"hosts": hosts, "servers": {w.server: server}})
        return Counter(w.env.client, FleetState(fleet=fleet), TASK_QUEUE)

    @pytest.mark.parametrize("wanted", [Phase.COOLING, Phase.VERIFYING])
    async def test_is_refused_while_steady_restarts_it(self, world: Enter, wanted: Phase) -> None:
        """Also where no cooldown is left to refuse him: the restart is still being verified."""
        policy = PROMPT.model_copy(
            update={"cooldown": 2 * MINUTE, "verify_after": 20 * MINUTE, "load_limit": 30 * MINUTE}
        )
        async with world(policy) as w:
            handle = await w.report()
            while (await handle.query(Remediation.status)).phase is not wanted:
                await w.env.sleep(MINUTE / 4)
            took = await self.counter(w).take(w.server, "deploy", "new image", "k")
            guard = await GuardReader(w.env.client).state(w.server)

            assert (took.granted, took.refused_by) == (False, Refused.REMEDIATION)
            assert str(wanted) in took.why
            assert guard is not None
            assert [taken.by for taken in guard.takes] == ["steady"]
            assert (await w.end(handle)).outcome is Outcome.RESOLVED

    async def test_is_granted_while_steady_only_looks_and_steady_stands_back_then(
        self, world: Enter
    ) -> None:
        async with world() as w:
            handle = await w.report()
            while (await handle.query(Remediation.status)).phase is not Phase.PERSISTING:
                await w.env.sleep(timedelta(seconds=1))
            took = await self.counter(w).take(w.server, "deploy", "new image", "k")
            assert took.granted
            w.cure_works = True
            w._restarted(await w.now())
            assert (await w.end(handle)).outcome is Outcome.RECOVERED
            assert w.restarts == []
