"""``guard/<server>`` as others meet it: through its activities, its signals and raw requests."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities, send_recovered
from activities.ledgers import GUARD_REFUSED, GuardReader
from fleet.contracts.fleet import FoundingRequest
from fleet.contracts.guard import (
    GiveBackRequest,
    GuardSignal,
    GuardState,
    GuardUpdate,
    OpenRequest,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.names import guard_id
from fleet.contracts.sweep import Observation
from fleet.policy import DailyBudget, RollingBudget
from fleet.readings import Reading
from fleet.verdicts import Verdict
from workflows.guard import ServerGuard

pytestmark = pytest.mark.anyio

DAY = timedelta(hours=24)
BUDGET = RollingBudget(limit=3, window=DAY)

Request = TypeVar("Request")
Answer = TypeVar("Answer")


@workflow.defn(sandboxed=False)
class Asker:
    """Asks as a remediation does: by an activity that is retried until the guard has answered."""

    @workflow.run
    async def run(self, request: TakeRequest) -> TakeResult:
        return await workflow.execute_activity_method(
            GuardActivities.take_budget,
            request,
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(maximum_attempts=20),
        )


class Desk:
    """One server's guard, the activities that ask it, and the task queue that serves both."""

    def __init__(self, env: WorkflowEnvironment, began: datetime) -> None:
        self.env, self.client, self.began = env, env.client, began
        self.server = f"gpu-{uuid.uuid4().hex[:8]}"
        self.queue = f"guards-{uuid.uuid4()}"
        self.guards = GuardActivities(env.client)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(guard_id(self.server))

    async def state(self) -> GuardState:
        state = await GuardReader(self.client).state(self.server)
        assert state is not None
        return state

    async def ask(
        self,
        step: Callable[[Request], Awaitable[Answer]],
        request: Request,
        activity_id: str | None = None,
    ) -> Answer:
        """Run one activity once, as the only attempt of an activity of its own."""
        asker = ActivityEnvironment()
        asker.info = dataclasses.replace(
            asker.info, task_queue=self.queue, activity_id=activity_id or str(uuid.uuid4())
        )
        return await asker.run(step, request)

    async def found(self) -> None:
        await self.ask(self.guards.found_guards, FoundingRequest(servers=[self.server]))

    async def lose(self) -> None:
        """Terminate the guard, at rest: the server's clock waits for a task that was cut off."""
        await self.state()
        await self.handle.terminate("by hand")

    async def take(self, key: str, activity_id: str | None = None) -> TakeResult:
        return await self.ask(self.guards.take_budget, self.request(key), activity_id)

    async def ask_at_once(self, *keys: str) -> list[TakeResult]:
        """Each key by a workflow of its own. Many waiters at once would jam the server's clock."""
        with self.env.auto_time_skipping_disabled():
            runs = [
                self.client.execute_workflow(
                    Asker.run, self.request(key), id=str(uuid.uuid4()), task_queue=self.queue
                )
                for key in keys
            ]
            return await asyncio.gather(*runs)

    def request(self, key: str, **facts: Any) -> TakeRequest:
        base = {"server": self.server, "incident": "", "key": key, "budget": BUDGET}
        return TakeRequest.model_validate({**base, "cooldown": timedelta(minutes=10), **facts})

    def hang(self) -> OpenRequest:
        reading = Reading(server=self.server, at=self.began, job="render-7")
        seen = Observation(
            server=self.server, verdict=Verdict.HUNG, since=self.began, reading=reading
        )
        return OpenRequest(server=self.server, observation=seen)


@pytest.fixture
async def desk(skipping: WorkflowEnvironment) -> AsyncIterator[Desk]:
    desk = Desk(skipping, await skipping.get_current_time())
    async with Worker(
        skipping.client,
        task_queue=desk.queue,
        workflows=[ServerGuard, Asker],
        activities=[desk.guards.take_budget],
    ):
        yield desk


async def test_fifty_starters_at_once_share_one_budget(desk: Desk) -> None:
    await desk.found()

    answers = await desk.ask_at_once(*(f"incident-{number}" for number in range(50)))

    refused = [answer for answer in answers if not answer.granted]
    assert len(answers) - len(refused) == 3
    assert all(answer.next_at is not None for answer in refused)
    assert len((await desk.state()).takes) == 3


async def test_fifty_retries_of_one_decision_take_once(desk: Desk) -> None:
    await desk.found()

    answers = await desk.ask_at_once(*["one decision"] * 50)

    assert all(answer.granted for answer in answers)
    assert [taken.key for taken in (await desk.state()).takes] == ["one decision"]


async def test_a_take_is_free_again_when_its_window_has_passed(desk: Desk) -> None:
    await desk.found()
    for key in ("first", "second", "third"):
        assert (await desk.take(key)).granted
        await desk.env.sleep(timedelta(hours=1))
    refused = await desk.take("fourth")
    first = (await desk.state()).takes[0].at

    await desk.env.sleep(timedelta(hours=20, minutes=55))
    still_refused = await desk.take("fifth")
    await desk.env.sleep(timedelta(minutes=10))
    granted = await desk.take("sixth")

    assert refused.next_at == first + DAY
    assert not still_refused.granted
    assert (granted.granted, granted.left) == (True, 0)


async def test_a_guard_that_was_terminated_comes_back_used_up(desk: Desk) -> None:
    await desk.found()
    await desk.lose()

    refused = await desk.take("after the loss")
    await desk.env.sleep(DAY)
    granted = await desk.take("a day later")

    assert not refused.granted
    assert "lost" in refused.why
    assert granted.granted


async def test_a_name_that_once_had_a_guard_gets_no_fresh_budget(desk: Desk) -> None:
    await desk.found()
    for key in ("first", "second", "third"):
        await desk.take(key)

    await desk.found()
    while_it_runs = await desk.take("fourth")
    await desk.lose()
    await desk.found()
    after_its_end = await desk.take("fifth")

    assert (while_it_runs.granted, after_its_end.granted) == (False, False)


async def test_a_take_given_back_is_free_for_the_next_try_but_not_for_its_own_key(
    desk: Desk,
) -> None:
    await desk.found()
    proof = GiveBackRequest(server=desk.server, key="try 1", proof="connection refused")
    await desk.take("try 1", activity_id="5")
    await desk.ask(desk.guards.give_back, proof)

    late_attempt = await desk.take("try 1", activity_id="5")
    another_activity = await desk.take("try 1")
    next_try = await desk.take("try 2")

    assert late_attempt.granted, "Temporal repeats the answer that this activity was given"
    assert not another_activity.granted
    assert (next_try.granted, next_try.left) == (True, 2)


async def test_an_incident_is_one_until_the_server_is_seen_healthy(desk: Desk) -> None:
    await desk.found()
    first = await desk.ask(desk.guards.open_incident, desk.hang())
    again = await desk.ask(desk.guards.open_incident, desk.hang())

    await send_recovered(desk.client, desk.server, desk.began - timedelta(minutes=1))
    before_it_began = (await desk.state()).incident
    await send_recovered(desk.client, desk.server, desk.began + timedelta(minutes=1))
    after = (await desk.state()).incident

    assert (first.is_new, again.is_new) == (True, False)
    assert again.incident.id == first.incident.id
    assert before_it_began == again.incident
    assert after is None


async def test_a_recovery_starts_no_guard(desk: Desk) -> None:
    await send_recovered(desk.client, desk.server, desk.began)

    assert await GuardReader(desk.client).state(desk.server) is None


async def test_a_guard_that_was_closed_has_nothing_to_say(desk: Desk) -> None:
    await desk.found()
    await desk.lose()

    assert await GuardReader(desk.client).state(desk.server) is None


class TestBadData:
    @pytest.mark.parametrize(
        ("update", "request_", "complaint"),
        [
            (GuardUpdate.TAKE, {"key": 5}, "Failed decoding arguments"),
            (GuardUpdate.TAKE, "restart it", "Failed decoding arguments"),
            (GuardUpdate.TAKE, {"server": "another"}, "not of another"),
            (GuardUpdate.TAKE, {"key": ""}, "1 to 300 characters"),
            (GuardUpdate.TAKE, {"budget": DailyBudget(per_day_in="UTC")}, "needs day_start"),
            (GuardUpdate.GIVE_BACK, {"key": "k", "proof": " "}, "only on proof"),
            (GuardUpdate.OPEN, {}, "this was neither"),
            (GuardUpdate.CLOSE, {"server": "another", "incident": "i"}, "not of another"),
        ],
    )
    async def test_is_an_error_of_the_sender_and_the_guard_lives_on(
        self, desk: Desk, update: GuardUpdate, request_: Any, complaint: str
    ) -> None:
        await desk.found()
        if isinstance(request_, dict):
            base = {"server": desk.server}
            if update is GuardUpdate.TAKE:
                base = desk.request("k").model_dump(mode="json")
            request_ = {**base, **request_}

        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await desk.handle.execute_update(update, request_)

        assert complaint in str(refused.value.cause)
        assert (await desk.take("k")).granted

    @pytest.mark.parametrize("update", list(GuardUpdate))
    @pytest.mark.parametrize("count", [0, 2])
    async def test_in_number_is_an_error_of_the_sender_too(
        self, desk: Desk, update: GuardUpdate, count: int
    ) -> None:
        await desk.found()

        with pytest.raises(WorkflowUpdateFailedError):
            await desk.handle.execute_update(update, args=[desk.request("k")] * count)

        assert (await desk.take("k")).granted

    async def test_is_never_retried_by_the_activity(self, desk: Desk) -> None:
        await desk.found()

        with pytest.raises(ApplicationError) as refused:
            await desk.take("k" * 301)

        assert (refused.value.type, refused.value.non_retryable) == (GUARD_REFUSED, True)

    @pytest.mark.parametrize("words", [[], ["yesterday"], [{"at": "never"}], [{}, 2, 3], [None]])
    @pytest.mark.parametrize("signal", list(GuardSignal))
    async def test_in_a_signal_changes_nothing(
        self, desk: Desk, signal: GuardSignal, words: list[Any]
    ) -> None:
        await desk.found()
        opened = await desk.ask(desk.guards.open_incident, desk.hang())

        await desk.handle.signal(signal, args=words)

        assert (await desk.state()).incident == opened.incident


async def test_shows_its_ledger_and_its_incident_to_people(desk: Desk) -> None:
    await desk.found()
    opened = await desk.ask(desk.guards.open_incident, desk.hang())
    await desk.take("a restart")

    shown = await desk.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)

    for line in (
        f"**{desk.server}**",
        "- restarts in the ledger, of the last 8 days: 1",
        f"- open incident `{opened.incident.id}`: **hung** since ",
        f"(namespaces/default/workflows/remediate%2F{desk.server})",
        "- cooldown until ",
        " UTC by steady, for `a restart`",
    ):
        assert line in shown.current_details
