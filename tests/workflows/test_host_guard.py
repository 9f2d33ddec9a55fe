"""The capped total of a machine: taken with the server's own budget, or neither is."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities
from activities.ledgers import GUARD_UNREACHABLE, GuardReader, Ledgers
from fleet.contracts.fleet import FoundingRequest
from fleet.contracts.guard import (
    GiveBackRequest,
    GuardState,
    GuardUpdate,
    HostLedger,
    HostShare,
    HostTakeRequest,
    Refuser,
    Sight,
    StartBatch,
    StartRequest,
    StartResult,
    Take,
    TakeResult,
)
from fleet.contracts.names import host_guard_id
from fleet.policy import RollingBudget
from tests.workflows.test_guard import DAY, Asker, Desk
from workflows.guard import ServerGuard
from workflows.host_guard import HostGuard

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


class Rack:
    """A machine with several servers, each with its guard."""

    def __init__(self, env: WorkflowEnvironment) -> None:
        self.env = env
        self.machine = f"{uuid.uuid4().hex[:8]}.internal:22"
        self.queue = f"rack-{uuid.uuid4()}"
        self.guards = GuardActivities(env.client)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.env.client.get_workflow_handle(host_guard_id(self.machine))

    async def server(self, *, founded: bool = True) -> Desk:
        desk = Desk(self.env, await self.env.get_current_time())
        desk.queue = self.queue
        if founded:
            await desk.found()
        return desk

    async def found(self, *servers: str) -> None:
        request = FoundingRequest(servers=[], machines={self.machine: list(servers)})
        desk = await self.server(founded=False)
        await desk.ask(self.guards.found_guards, request)

    async def take(self, desk: Desk, key: str, limit: int = 4, **ids: Any) -> TakeResult:
        share = HostShare(machine=self.machine, budget=RollingBudget(limit=limit, window=DAY))
        return await desk.ask(self.guards.take_budget, desk.request(key, host=share), **ids)

    async def give_back(self, desk: Desk, key: str) -> None:
        request = GiveBackRequest(
            server=desk.server, key=key, proof="nothing was sent", machine=self.machine
        )
        await desk.ask(self.guards.give_back, request)

    async def ledger(self) -> HostLedger:
        held = await GuardReader(self.env.client).host(self.machine)
        assert held is not None
        return held

    async def keys(self) -> list[str]:
        """Without the server's name, which stands before each."""
        return [taken.key.split("/", 1)[1] for taken in (await self.ledger()).takes]


async def keys(desk: Desk) -> list[str]:
    state: GuardState = await desk.state()
    return [taken.key for taken in state.takes]


@pytest.fixture
async def rack(skipping: WorkflowEnvironment) -> AsyncIterator[Rack]:
    rack = Rack(skipping)
    async with Worker(
        skipping.client,
        task_queue=rack.queue,
        workflows=[ServerGuard, HostGuard, Asker],
        activities=[rack.guards.take_budget],
    ):
        yield rack


async def test_servers_of_one_machine_share_a_total_beside_their_own_budgets(rack: Rack) -> None:
    await rack.found()
    one, other = await rack.server(), await rack.server()
    for number in range(3):
        assert (await rack.take(one, f"one-{number}")).granted

    own = await rack.take(one, "one-4")
    last = await rack.take(other, "other-1")
    refused = await rack.take(other, "other-2")

    assert (own.granted, own.refused_by) == (False, Refuser.SERVER)
    assert (last.granted, last.left) == (True, 0)
    assert (refused.granted, refused.refused_by) == (False, Refuser.HOST)
    assert rack.machine in refused.why
    assert "4 of 4 restarts in 1d are used" in refused.why
    assert refused.next_at == (await rack.ledger()).takes[0].at + DAY


async def test_what_the_machine_refuses_is_given_back_to_the_server(rack: Rack) -> None:
    await rack.found()
    one, other = await rack.server(), await rack.server()
    await rack.take(one, "one", limit=1)

    await rack.take(other, "other", limit=1)
    state = await other.state()

    assert (state.takes, state.returned, state.cooldown_until) == ([], ["other"], None)
    assert await rack.keys() == ["one"]
    assert (await rack.ledger()).takes[0].server == one.server


async def test_what_the_server_refuses_the_machine_is_never_asked_for(rack: Rack) -> None:
    await rack.found()
    desk = await rack.server()
    for number in range(3):
        await rack.take(desk, f"{number}", limit=9)
    await rack.take(desk, "one too many", limit=9)

    assert await rack.keys() == ["0", "1", "2"]


async def test_one_decision_counts_once_in_both_however_often_it_is_asked(rack: Rack) -> None:
    await rack.found()
    desk = await rack.server()

    answers = [await rack.take(desk, "one decision") for _ in range(3)]
    same = [await rack.take(desk, "one decision", activity_id="7") for _ in range(3)]

    assert all(answer.granted for answer in [*answers, *same])
    assert (await keys(desk), await rack.keys()) == (["one decision"], ["one decision"])


async def test_a_crash_between_the_two_counts_more_and_the_retry_mends_it(rack: Rack) -> None:
    """The worker dies after the server's ledger has granted, before the machine's was asked."""
    await rack.found()
    desk = await rack.server()
    await desk.take("decision")
    assert (await keys(desk), await rack.keys()) == (["decision"], [])

    retried = await rack.take(desk, "decision")

    assert (retried.granted, retried.left) == (True, 2)
    assert (await keys(desk), await rack.keys()) == (["decision"], ["decision"])


async def test_a_crash_before_the_refused_one_was_given_back_is_mended_by_the_retry(
    rack: Rack,
) -> None:
    await rack.found()
    one, other = await rack.server(), await rack.server()
    await rack.take(one, "one", limit=1)
    await other.take("decision")

    retried = await rack.take(other, "decision", limit=1)

    assert (retried.granted, retried.refused_by) == (False, Refuser.HOST)
    assert await keys(other) == []


async def test_a_take_is_given_back_to_both_and_its_key_is_spent_in_both(rack: Rack) -> None:
    await rack.found()
    desk = await rack.server()
    await rack.take(desk, "try 1")

    await rack.give_back(desk, "try 1")
    await rack.give_back(desk, "try 1")
    late = await rack.take(desk, "try 1")

    assert not late.granted
    assert (await keys(desk), await rack.keys()) == ([], [])
    assert (await rack.take(desk, "try 2")).left == 2


async def test_many_at_once_never_exceed_the_total(rack: Rack) -> None:
    """More than the ten updates that a workflow takes at once."""
    await rack.found()
    desks = [await rack.server() for _ in range(20)]
    share = HostShare(machine=rack.machine, budget=RollingBudget(limit=4, window=DAY))

    with rack.env.auto_time_skipping_disabled():
        answers = await asyncio.gather(
            *(
                rack.env.client.execute_workflow(
                    Asker.run,
                    desk.request("mine", host=share),
                    id=str(uuid.uuid4()),
                    task_queue=rack.queue,
                )
                for desk in desks
            )
        )

    assert sum(answer.granted for answer in answers) == 4
    assert len(await rack.keys()) == 4
    assert sum([len(await keys(desk)) for desk in desks]) == 4


class TestFounding:
    async def test_a_machine_has_what_its_servers_took_before_it_had_a_guard(
        self, rack: Rack
    ) -> None:
        one, other = await rack.server(), await rack.server()
        await one.take("one")
        await other.take("other")

        await rack.found(one.server, other.server)
        await rack.found(one.server, other.server)
        refused = await rack.take(one, "third", limit=2)

        assert await rack.keys() == ["one", "other"]
        assert refused.refused_by is Refuser.HOST

    async def test_a_machine_with_a_server_whose_ledger_is_lost_is_used_up(
        self, rack: Rack
    ) -> None:
        one, other = await rack.server(), await rack.server()
        await other.lose()

        await rack.found(one.server, other.server)
        refused = await rack.take(one, "first")

        assert (refused.granted, refused.refused_by) == (False, Refuser.HOST)
        assert "lost" in refused.why

    async def test_a_machine_that_nobody_founded_is_used_up(self, rack: Rack) -> None:
        desk = await rack.server()

        refused = await rack.take(desk, "first")
        await rack.found()
        still = await rack.take(desk, "second")
        await rack.env.sleep(DAY)
        granted = await rack.take(desk, "a day later")

        assert [refused.refused_by, still.refused_by] == [Refuser.HOST, Refuser.HOST]
        assert granted.granted

    async def test_a_machine_whose_guard_was_terminated_comes_back_used_up(
        self, rack: Rack
    ) -> None:
        await rack.found()
        desk = await rack.server()
        await rack.ledger()
        await rack.handle.terminate("by hand")

        await rack.found()
        refused = await rack.take(desk, "after the loss")

        assert (refused.granted, refused.refused_by) == (False, Refuser.HOST)
        assert "lost" in refused.why


@pytest.mark.parametrize(
    ("update", "request_", "complaint"),
    [
        (GuardUpdate.TAKE, {"key": 5}, "Failed decoding arguments"),
        (GuardUpdate.TAKE, {"machine": "another:22"}, "not of another:22"),
        (GuardUpdate.TAKE, {"key": ""}, "1 to 400 characters"),
        (GuardUpdate.GIVE_BACK, {"machine": "another:22", "proof": "p"}, "not of another:22"),
        (GuardUpdate.GIVE_BACK, {"proof": " "}, "only on proof"),
    ],
)
async def test_bad_data_is_an_error_of_the_sender_and_the_guard_lives_on(
    rack: Rack, update: GuardUpdate, request_: dict[str, Any], complaint: str
) -> None:
    await rack.found()
    desk = await rack.server()
    base = HostTakeRequest(
        **desk.request("k").model_dump(exclude={"host"}), machine=rack.machine
    ).model_dump(mode="json")

    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await rack.handle.execute_update(update, {**base, **request_})

    assert complaint in str(refused.value.cause)
    assert (await rack.take(desk, "k")).granted


async def test_shows_its_ledger_to_people(rack: Rack) -> None:
    await rack.found()
    desk = await rack.server()
    await rack.take(desk, "a restart")

    shown = await rack.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)

    assert f"**all servers of {rack.machine}**" in shown.current_details
    assert (
        f" UTC by steady, for `{desk.server}/a restart` on `{desk.server}`" in shown.current_details
    )


class TestHeirs:
    """A server under another name goes on with the ledger of the old one."""

    async def test_a_renamed_server_has_no_more_left_than_under_its_old_name(
        self, rack: Rack
    ) -> None:
        old, new = await rack.server(), await rack.server(founded=False)
        for key in ("first", "second", "third"):
            await old.take(key)
        renamed = FoundingRequest(servers=[new.server], heirs={new.server: [old.server]})

        await new.ask(rack.guards.found_guards, renamed)
        await new.ask(rack.guards.found_guards, renamed)
        refused = await new.take("fourth")

        assert not refused.granted
        assert await keys(new) == ["first", "second", "third"]
        assert (await new.state()).cooldown_until == (await old.state()).cooldown_until

    async def test_an_heir_of_a_ledger_that_is_lost_is_used_up(self, rack: Rack) -> None:
        old, new = await rack.server(), await rack.server(founded=False)
        await old.lose()
        renamed = FoundingRequest(servers=[new.server], heirs={new.server: [old.server]})

        await new.ask(rack.guards.found_guards, renamed)
        refused = await new.take("first")

        assert not refused.granted
        assert "lost" in refused.why

    async def test_a_name_that_comes_back_keeps_its_ledger_and_gets_what_happened_meanwhile(
        self, rack: Rack
    ) -> None:
        old, new = await rack.server(), await rack.server()
        await old.take("before")
        await new.take("meanwhile")
        back = FoundingRequest(servers=[], returning=[old.server], heirs={old.server: [new.server]})

        await old.ask(rack.guards.found_guards, back)

        assert await keys(old) == ["before", "meanwhile"]

    async def test_a_name_that_comes_back_without_its_guard_is_used_up(self, rack: Rack) -> None:
        """As where the namespace's retention has deleted the closed guard: nothing is found."""
        gone = await rack.server(founded=False)
        request = FoundingRequest(servers=[], returning=[gone.server])

        await gone.ask(rack.guards.found_guards, request)

        assert not (await gone.take("first")).granted


# --- starts by somebody else ---------------------------------------------------------------------


class _Crash(BaseException):
    """The worker's process is gone: nothing may catch it."""


@pytest.mark.parametrize("booked", [False, True], ids=["before", "after"])
async def test_a_crash_around_the_second_booking_of_a_start_is_made_up_for_and_counts_once(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, booked: bool
) -> None:
    """The server's ledger has it; the machine's has it as well, or not yet."""
    await rack.found()
    desk = await rack.server()
    start = StartRequest(
        server=desk.server,
        machine=rack.machine,
        sight=Sight.RECORD,
        process="p2",
        cooldown=10 * MINUTE,
    )
    book, crashes = Ledgers._book, [True]

    async def crash_once(self: Ledgers, machine: str, take: Take) -> None:
        if not crashes or booked:
            await book(self, machine, take)
        if crashes:
            crashes.pop()
            raise _Crash

    monkeypatch.setattr(Ledgers, "_book", crash_once)
    with pytest.raises(BaseExceptionGroup):
        await _started(rack, desk, start, "activity-7")
    halfway = (len((await desk.state()).takes), len((await rack.ledger()).takes))
    await desk.env.sleep(MINUTE)
    answers = [await _started(rack, desk, start, asker) for asker in ("activity-7", "next-sweep")]

    assert halfway == (1, int(booked))
    assert await keys(desk) == ["foreign/record/p2"]
    assert await rack.keys() == ["foreign/record/p2"]
    own, host = (await desk.state()).takes[0], (await rack.ledger()).takes[0]
    assert (host.by, host.server, host.at) == ("foreign", desk.server, own.at)
    assert [answer.take == answers[0].take for answer in answers] == [True, True]
    assert answers[0].tell


async def test_a_start_whose_machine_could_not_be_told_is_named_and_booked_by_the_retry(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rack.found()
    desk = await rack.server()
    start = StartRequest(
        server=desk.server,
        machine=rack.machine,
        sight=Sight.RECORD,
        process="p2",
        cooldown=10 * MINUTE,
    )

    async def away(*_: object) -> None:
        raise ApplicationError("no worker answered in time", type=GUARD_UNREACHABLE)

    with monkeypatch.context() as patched:
        patched.setattr(Ledgers, "_book", away)
        with pytest.raises(ApplicationError, match=desk.server):
            await _started(rack, desk, start, "activity-7")
    await _started(rack, desk, start, "activity-7")

    assert await keys(desk) == await rack.keys() == ["foreign/record/p2"]


async def _started(rack: Rack, desk: Desk, start: StartRequest, asker: str) -> StartResult:
    found = await desk.ask(rack.guards.report_starts, StartBatch(starts=[start]), asker)
    return found.answers[desk.server]
