"""``fleet``: what applying, pausing and asking do, beside schedules that are faked here.

The time-skipping server knows no schedules; ``tests/integration/test_fleet.py`` has the real ones.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities
from activities.ledgers import GuardReader
from activities.policies import NO_FLEET, PolicyReader
from fleet.apply import MOST_SERVERS
from fleet.config import Fleet
from fleet.contracts.fleet import (
    ApplyRequest,
    ApplyResult,
    FleetQuery,
    FleetState,
    FleetUpdate,
    Pause,
    PauseRequest,
    PresentPolicy,
    ReconcileRequest,
    ReconcileResult,
)
from fleet.contracts.guard import GuardInput, GuardUpdate, HostLedger, TakeRequest
from fleet.contracts.names import (
    FLEET,
    FLEET_ID,
    SERVER_GUARD,
    ServerRequest,
    guard_id,
    health_id,
)
from fleet.policy import Mode, RollingBudget
from workflows.fleet import FleetWorkflow
from workflows.guard import ServerGuard
from workflows.host_guard import HostGuard

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def fleet(*names: str, **sections: Any) -> Fleet:
    servers = {
        name: {"source": {"kind": "status", "url": f"http://127.0.0.1/{name}"}} for name in names
    }
    return Fleet.model_validate({"servers": servers, **sections})


class Desk:
    """The workflow ``fleet`` with real guards and schedules that only exist on paper."""

    def __init__(self, env: WorkflowEnvironment, handle: WorkflowHandle[Any, Any]) -> None:
        self.env, self.handle = env, handle
        self.reader = PolicyReader(env.client)
        self.orders: list[ReconcileRequest] = []
        self.running = 0
        self.refusing = False

    @activity.defn(name="reconcile")
    async def reconcile(self, request: ReconcileRequest) -> ReconcileResult:
        assert not self.running, "two applies reconcile at once"
        self.running += 1
        await asyncio.sleep(0)
        self.running -= 1
        if self.refusing:
            raise ApplicationError("no schedules today", non_retryable=True)
        self.orders.append(request)
        return ReconcileResult(schedules=[health_id(n) for n in range(request.shards)])

    async def apply(
        self, a_fleet: Any, *, search_attributes: bool = False, founds_all: bool = True
    ) -> ApplyResult:
        request = ApplyRequest(
            fleet=a_fleet, search_attributes=search_attributes, founds_all=founds_all
        )
        result: ApplyResult = await self.handle.execute_update(
            FleetUpdate.APPLY, request, result_type=ApplyResult
        )
        return result

    async def take(self, server: str, key: str) -> None:
        request = TakeRequest(
            server=server, incident="", key=key, budget=RollingBudget(), cooldown=timedelta(0)
        )
        guard = self.env.client.get_workflow_handle(guard_id(server))
        await guard.execute_update(GuardUpdate.TAKE, request)

    async def is_of_before(self, the_fleet: Fleet) -> None:
        """Go on from the state and the guards that a version without guards of machines left."""
        await self.reader.state()
        queue = (await self.handle.describe()).task_queue
        await self.handle.terminate("continued by the test")
        client = self.env.client
        await client.start_workflow(
            FLEET, FleetState(fleet=the_fleet, version=1), id=FLEET_ID, task_queue=queue
        )
        for server in the_fleet.servers:
            founding = GuardInput(server=server, founding=True)
            await client.start_workflow(
                SERVER_GUARD, founding, id=guard_id(server), task_queue=queue
            )

    async def pause(self, server: str | None, span: timedelta | None) -> Pause | None:
        request = PauseRequest(server=server, span=span, who="ann", why="new driver")
        answer: Pause | None = await self.handle.execute_update(
            FleetUpdate.PAUSE, request, result_type=Pause
        )
        return answer

    async def paused(self, server: str) -> Pause | None:
        """As the workflow itself sees it, on its own clock."""
        present: PresentPolicy = await self.handle.query(
            FleetQuery.PRESENT, ServerRequest(server=server), result_type=PresentPolicy
        )
        return present.pause


@pytest.fixture
async def desk(skipping: WorkflowEnvironment) -> AsyncIterator[Desk]:
    queue = f"fleet-{uuid.uuid4()}"
    client = skipping.client
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(FLEET_ID)
    desk = Desk(skipping, handle)
    async with Worker(
        client,
        task_queue=queue,
        workflows=[FleetWorkflow, ServerGuard, HostGuard],
        activities=[desk.reconcile, GuardActivities(client).found_guards],
    ):
        await client.start_workflow(FLEET, FleetState(), id=FLEET_ID, task_queue=queue)
        yield desk
        # The server's clock stands still for ever after a task that was cut off.
        await handle.query(FleetQuery.STATE)
        with suppress(RPCError):
            await handle.terminate("the test is over")


@pytest.fixture
def name() -> Callable[[], str]:
    """Guards outlive a test, so names are used once."""
    return lambda: f"gpu-{uuid.uuid4().hex[:8]}"


class TestApplying:
    async def test_counts_versions_and_says_what_changed(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        stays, goes, comes = name(), name(), name()
        first = await desk.apply(fleet(stays, goes))
        second = await desk.apply(fleet(stays, comes, defaults={"mode": "dry_run"}))

        assert (first.version, first.changed) == (1, True)
        assert (sorted(first.added), first.removed, first.altered) == (
            sorted([stays, goes]),
            [],
            [],
        )
        assert (second.version, second.added, second.removed) == (2, [comes], [goes])
        assert second.altered == [stays]
        assert (await desk.reader.present(stays)).version == 2

    async def test_the_same_again_makes_no_version_but_mends_the_schedules(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        the_fleet = fleet(name())
        await desk.apply(the_fleet)

        again = await desk.apply(the_fleet)

        assert (again.version, again.changed, again.schedules) == (1, False, ["health/0"])
        assert len(desk.orders) == 2

    async def test_asks_for_as_many_schedules_as_there_are_shards(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        section = {"shard_size": 2, "sweep_every": "10s"}
        await desk.apply(fleet(*(name() for _ in range(5)), fleet=section))

        assert desk.orders == [ReconcileRequest(shards=3, interval=timedelta(seconds=10))]

    async def test_founds_the_guards_of_new_servers(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        server = name()
        await desk.apply(fleet(server))

        state = await GuardReader(desk.env.client).state(server)

        assert state is not None
        assert (state.server, state.lost_at) == (server, None)

    async def test_two_at_once_follow_one_another(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        fleets = [fleet(name()) for _ in range(5)]

        with desk.env.auto_time_skipping_disabled():
            results = await asyncio.gather(*(desk.apply(each) for each in fleets))

        assert sorted(result.version for result in results) == [1, 2, 3, 4, 5]
        state = await desk.reader.state()
        last = max(range(5), key=lambda n: results[n].version)
        assert state.fleet == fleets[last]

    async def test_remembers_whether_search_attributes_may_be_set(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        server = name()
        await desk.apply(fleet(server))
        before = (await desk.reader.present(server)).search_attributes
        again = await desk.apply(fleet(server), search_attributes=True)

        assert before is False
        assert again.changed is False
        assert (await desk.reader.shard(0)).search_attributes is True

    async def test_is_in_force_but_says_so_when_the_schedules_fail_and_is_repaired_by_another(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        the_fleet = fleet(name())
        desk.refusing = True

        with pytest.raises(WorkflowUpdateFailedError) as told:
            await desk.apply(the_fleet)
        stored = await desk.reader.state()
        desk.refusing = False
        repaired = await desk.apply(the_fleet)

        assert "version 1 is in force" in str(told.value.cause)
        assert "no schedules today" in str(told.value.cause)
        assert stored.fleet == the_fleet
        assert (repaired.version, repaired.changed, repaired.schedules) == (1, False, ["health/0"])

    async def test_refuses_a_fleet_that_is_too_large(self, desk: Desk) -> None:
        with pytest.raises(WorkflowUpdateFailedError) as told:
            await desk.apply(fleet(*(f"gpu-{number}" for number in range(MOST_SERVERS + 1))))

        assert "2001 are more than one fleet holds (2000)" in str(told.value.cause)

    @pytest.mark.parametrize(
        "policy",
        [{"cooldown": "soon"}, {"budget": {"limit": 3, "window": "10m"}}, {"colour": "red"}],
    )
    async def test_refuses_policies_that_do_not_stand_and_lives_on(
        self, desk: Desk, name: Callable[[], str], policy: dict[str, Any]
    ) -> None:
        server = name()
        raw = fleet(server).model_dump(mode="json")
        raw["servers"][server]["policy"] = policy

        with pytest.raises(WorkflowUpdateFailedError):
            await desk.handle.execute_update(FleetUpdate.APPLY, {"fleet": raw})

        assert (await desk.apply(fleet(server))).version == 1

    async def test_takes_the_pause_of_a_removed_server_with_it(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        stays, goes = name(), name()
        await desk.apply(fleet(stays, goes))
        await desk.pause(goes, HOUR)

        await desk.apply(fleet(stays))
        await desk.apply(fleet(stays, goes))

        assert await desk.paused(goes) is None


def restarted(machine: str, **containers: str) -> Fleet:
    """Servers by name on one host, each with the container that is restarted."""
    plain = fleet(*containers).model_dump(mode="json")["servers"]
    return Fleet.model_validate(
        {
            "hosts": {"rack": {"address": machine, "user": "ops", "key": "/key"}},
            "servers": {
                name: {
                    "source": plain[name]["source"],
                    "restart": {"kind": "docker", "host": "rack", "name": container},
                }
                for name, container in containers.items()
            },
        }
    )


class TestFounding:
    async def test_a_server_that_was_renamed_goes_on_with_its_ledger(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        old, new, machine = name(), name(), name()
        await desk.apply(restarted(machine, **{old: "vllm"}))
        await desk.take(old, "first")

        await desk.apply(restarted(machine, **{new: "vllm"}))

        state = await GuardReader(desk.env.client).state(new)
        assert state is not None
        assert ([taken.key for taken in state.takes], state.lost_at) == (["first"], None)

    async def test_also_where_it_was_away_for_some_days(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        old, new, stays, machine = name(), name(), name(), name()
        await desk.apply(restarted(machine, **{old: "vllm", stays: "other"}))
        await desk.take(old, "first")
        await desk.apply(restarted(machine, **{stays: "other"}))
        await desk.env.sleep(3 * DAY)

        await desk.apply(restarted(machine, **{new: "vllm", stays: "other"}))

        state = await GuardReader(desk.env.client).state(new)
        assert state is not None
        assert [taken.key for taken in state.takes] == ["first"]

    async def test_a_name_that_comes_back_has_its_old_ledger_or_none(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        kept, lost, stays, machine = name(), name(), name(), name()
        everybody = restarted(machine, **{kept: "one", lost: "two", stays: "three"})
        await desk.apply(everybody)
        await desk.take(kept, "first")
        await desk.apply(restarted(machine, **{stays: "three"}))
        reader = GuardReader(desk.env.client)
        await reader.state(lost)
        await desk.env.client.get_workflow_handle(guard_id(lost)).terminate("by hand")

        await desk.apply(everybody)

        state = await reader.state(kept)
        assert state is not None
        assert [taken.key for taken in state.takes] == ["first"]
        assert await reader.state(lost) is None, "the next take starts it, and finds it used up"

    async def test_a_machine_gets_its_guard_with_the_fleet_and_is_named_from_then_on(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        server, machine = name(), f"{name()}:22"
        await desk.apply(restarted(machine.removesuffix(":22"), **{server: "vllm"}))

        ledger = await GuardReader(desk.env.client).host(machine)

        assert ledger == HostLedger(machine=machine)
        assert (await desk.reader.present(server)).machine == machine

    async def test_a_fleet_of_before_is_not_stopped_and_not_refilled(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        """A fleet that an earlier version applied, whose servers have taken restarts already."""
        server, address = name(), name()
        the_fleet = restarted(address, **{server: "vllm"})
        await desk.is_of_before(the_fleet)
        await desk.take(server, "first")
        before = await desk.reader.present(server)

        again = await desk.apply(the_fleet)
        after = await desk.reader.present(server)

        assert (again.changed, before.machine, after.machine) == (False, None, f"{address}:22")
        ledger = await GuardReader(desk.env.client).host(f"{address}:22")
        assert ledger is not None
        assert [taken.key for taken in ledger.takes] == [f"{server}/first"]

    async def test_of_an_unchanged_fleet_is_done_once(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        the_fleet = restarted(name(), **{name(): "vllm"})
        await desk.apply(the_fleet)
        await desk.apply(the_fleet)

        founded = [
            event
            async for event in desk.handle.fetch_history_events()
            if event.activity_task_scheduled_event_attributes.activity_type.name == "found_guards"
        ]
        assert len(founded) == 1


class TestAsking:
    async def test_for_a_server_resolves_its_policy(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        server = name()
        section = {"temporal_ui": "http://127.0.0.1:8233"}
        await desk.apply(fleet(server, defaults={"mode": "approve"}, fleet=section))

        present = await desk.reader.present(server)

        assert present.spec is not None
        assert (present.spec.name, present.spec.policy.mode) == (server, Mode.APPROVE)
        assert present.temporal_ui == "http://127.0.0.1:8233"

    async def test_for_a_server_of_an_endpoint_says_where_it_is_drained(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        routed, other = name(), name()
        sections = {
            "gateway": {"admin": "gw:9465", "admin_token": {"env": "TOKEN"}},
            "endpoints": {"chat": {"backends": {routed: {"url": "http://127.0.0.1:1"}}}},
        }
        await desk.apply(fleet(routed, other, **sections))

        gateways = (await desk.reader.present(routed)).gateways

        assert gateways is not None
        assert gateways.urls == ["http://gw:9465"]
        assert (await desk.reader.present(other)).gateways is None

    async def test_for_one_that_is_not_in_the_fleet_finds_no_spec(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        await desk.apply(fleet(name()))

        assert (await desk.reader.present("somebody else's")).spec is None

    async def test_for_shards_finds_every_server_once_and_none_in_a_shard_that_is_gone(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        names = [name() for _ in range(7)]
        await desk.apply(fleet(*names, fleet={"shard_size": 3, "sweep_every": "5s"}))

        shards = [await desk.reader.shard(number) for number in range(4)]

        found = [spec.name for shard in shards for spec in shard.specs]
        assert sorted(found) == sorted(names)
        assert shards[3].specs == []
        assert {shard.interval for shard in shards} == {timedelta(seconds=5)}

    async def test_for_alerts_names_the_fleet(self, desk: Desk, name: Callable[[], str]) -> None:
        alerts = {"webhook": {"env": "HOOK"}, "mention": "@gpu"}
        await desk.apply(fleet(name(), alerts=alerts, fleet={"name": "studio"}))

        settings = await desk.reader.alerts()

        assert (settings.fleet_name, settings.alerts.mention) == ("studio", "@gpu")

    async def test_before_anything_was_applied_is_an_error_and_not_an_empty_fleet(
        self, desk: Desk
    ) -> None:
        with pytest.raises(ApplicationError, match="run `steady apply FILE`") as told:
            await desk.reader.present("gpu-1")

        assert (told.value.type, told.value.non_retryable) == (NO_FLEET, False)
        assert (await desk.reader.state()).version == 0

    async def test_with_nonsense_harms_nothing(self, desk: Desk, name: Callable[[], str]) -> None:
        await desk.apply(fleet(name()))

        with pytest.raises(WorkflowQueryFailedError):
            await desk.handle.query(FleetQuery.PRESENT, {"server": 7})

        assert (await desk.reader.state()).version == 1


async def test_a_fleet_whose_workflow_was_closed_is_no_fleet(
    desk: Desk, name: Callable[[], str]
) -> None:
    """Temporal would go on answering from the history of a closed workflow."""
    await desk.apply(fleet(name()))
    closed = PolicyReader(desk.env.client)
    await closed.state()
    await desk.handle.terminate("by hand")

    with pytest.raises(ApplicationError) as told:
        await closed.present("gpu-1")

    assert told.value.type == NO_FLEET


class TestPausing:
    async def test_a_server_leaves_the_others_alone_and_runs_out(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        paused, other = name(), name()
        await desk.apply(fleet(paused, other))

        pause = await desk.pause(paused, 2 * HOUR)
        seen = [await desk.paused(paused), await desk.paused(other)]
        shard = await desk.reader.shard(0)
        await desk.env.sleep(2 * HOUR)
        await desk.pause(other, HOUR)
        state = await desk.reader.state()

        assert pause is not None
        assert (pause.who, pause.why) == ("ann", "new driver")
        assert seen == [pause, None]
        assert shard.paused == {paused: pause}
        assert list(state.pauses) == [other]

    async def test_the_fleet_pauses_every_server_and_the_longer_pause_counts(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        one, other = name(), name()
        await desk.apply(fleet(one, other))

        short = await desk.pause(None, HOUR)
        long = await desk.pause(one, 2 * HOUR)

        assert await desk.paused(one) == long
        assert await desk.paused(other) == short
        assert set((await desk.reader.shard(0)).paused) == {one, other}

    async def test_ends_by_resuming_as_often_as_one_likes(
        self, desk: Desk, name: Callable[[], str]
    ) -> None:
        server = name()
        await desk.apply(fleet(server))
        await desk.pause(server, HOUR)
        await desk.pause(None, HOUR)

        for _ in range(2):
            assert await desk.pause(server, None) is None
            assert await desk.pause(None, None) is None

        assert await desk.paused(server) is None

    @pytest.mark.parametrize(
        ("server", "span", "complaint"),
        [
            ("nobody", HOUR, "there is no server 'nobody' in the fleet"),
            (None, timedelta(0), "a pause of 0s is out of range"),
            (None, timedelta(days=31), "a pause of 31d is out of range: up to 30d"),
        ],
    )
    async def test_refuses_what_makes_no_sense(
        self,
        desk: Desk,
        name: Callable[[], str],
        server: str | None,
        span: timedelta,
        complaint: str,
    ) -> None:
        await desk.apply(fleet(name()))

        with pytest.raises(WorkflowUpdateFailedError) as told:
            await desk.pause(server, span)

        assert complaint in str(told.value.cause)


async def test_shows_itself_to_people(desk: Desk, name: Callable[[], str]) -> None:
    server = name()
    await desk.apply(fleet(server, name(), fleet={"name": "studio", "shard_size": 1}))
    await desk.pause(server, HOUR)
    await desk.pause(None, HOUR)

    shown = await desk.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)

    for line in (
        "**studio**, version 1, applied ",
        "- 2 servers in 2 shards",
        "- a sweep every 30s",
        "- **the whole fleet is paused** until ",
        f"- `{server}`: mode act, no restart, **paused** until ",
        " by ann: new driver",
    ):
        assert line in shown.current_details
