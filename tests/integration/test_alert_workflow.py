"""An alert as a workflow on a real server: out once to each target, whatever is down meanwhile."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.alert_history import AlertHistory
from activities.alerts import AlertActivities
from fleet.config import SecretRef
from fleet.contracts.alerts import AlertMessage, AlertResult, Delivered, Severity
from fleet.contracts.names import alert_id
from tests.parts.alerting import Applied, message
from tests.parts.mail import Mailbox, mailbox
from tests.parts.ports import free_port
from tests.parts.receiver import Answer, Receiver, receiver
from tests.parts.temporal import dev_server
from workflows.alert import Alert
from workflows.alerting import raise_alert

pytestmark = pytest.mark.anyio

SECRET = "planted5erviceTokenxxxxx1"
HOOK, CHAT, MAIL = (SecretRef(env=f"STEADY_TEST_{name}") for name in ("HOOK", "CHAT", "MAIL"))
CHAT_NAME, MAIL_NAME = f"env {CHAT.env}", f"env {MAIL.env}"

Handle = WorkflowHandle[Any, AlertResult]


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    async with dev_server(tmp_path_factory.mktemp("temporal")) as started:
        yield await started.client()


@pytest.fixture
def web() -> Iterator[Receiver]:
    with receiver() as started:
        yield started


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    with mailbox() as started:
        url = f"mailto://127.0.0.1:{started.port}?mode=insecure&from=a@example.org&to=b@example.org"
        monkeypatch.setenv(str(MAIL.env), url)
        yield started


@pytest.fixture
def chat_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port on which the chat is found as soon as a test serves there."""
    port = free_port()
    monkeypatch.setenv(str(CHAT.env), f"mmost://steady@127.0.0.1:{port}/{SECRET}")
    return port


@pytest.fixture
def hook(web: Receiver, monkeypatch: pytest.MonkeyPatch) -> SecretRef:
    monkeypatch.setenv(str(HOOK.env), web.url(f"/{SECRET}"))
    return HOOK


class Desk:
    """A worker that delivers what ``fleet`` says, and has other work too."""

    def __init__(self, client: Client, fleet: Applied) -> None:
        self.client, self.fleet = client, fleet
        self.queue = f"alerts-{uuid.uuid4().hex[:8]}"

    async def raised(self, sent: AlertMessage) -> Handle:
        return await self.client.start_workflow(
            Alert.run,
            sent,
            id=alert_id(sent.incident, sent.cause),
            task_queue=self.queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        )

    async def ended(self, handle: Handle) -> AlertResult:
        """The result, once it is sure that the history holds no secret."""
        result = await asyncio.wait_for(handle.result(), 90)
        assert SECRET not in (await handle.fetch_history()).to_json()
        return result

    async def send(self, sent: AlertMessage) -> AlertResult:
        return await self.ended(await self.raised(sent))


@activity.defn
async def other_work() -> str:
    return "done"


@workflow.defn
class Raiser:
    """Tells people, as remediations and sweeps do, and goes on."""

    @workflow.run
    async def run(self, sent: AlertMessage) -> bool:
        return await raise_alert(sent)


@asynccontextmanager
async def desk(client: Client, fleet: Applied) -> AsyncIterator[Desk]:
    alerts = AlertActivities(fleet, AlertHistory(client))
    opened = Desk(client, fleet)
    activities: list[Callable[..., Any]] = [alerts.plan_alert, alerts.deliver, other_work]
    async with Worker(
        client,
        task_queue=opened.queue,
        workflows=[Alert, Raiser],
        activities=activities,
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        yield opened
    await alerts.close()


async def tried(handle: Handle, attempts: int = 2) -> None:
    """Wait until some activity of the alert has so many attempts."""
    while True:
        pending = (await handle.describe()).raw_description.pending_activities
        if any(each.attempt >= attempts for each in pending):
            return
        await asyncio.sleep(0.05)


# --- once to each --------------------------------------------------------------------------------


async def test_an_alert_that_failed_once_is_delivered_by_the_next_try(
    client: Client, web: Receiver, hook: SecretRef
) -> None:
    answers = iter([Answer(status=500, headers={"Retry-After": "1"}), Answer()])
    web.answer = lambda _: next(answers)
    async with desk(client, Applied(hook)) as open_desk:
        result = await open_desk.send(message())
    delivered = Delivered(target="webhook", delivered=True, attempts=2)
    assert result == AlertResult(delivered=True, targets=[delivered])
    keys = {received.headers["Idempotency-Key"] for received in web.received}
    assert (len(web.received), len(keys)) == (2, 1)


async def test_a_service_that_is_down_for_a_while_gets_it_once_and_the_others_at_once(
    client: Client, web: Receiver, hook: SecretRef, mail: Mailbox, chat_port: int
) -> None:
    async with desk(client, Applied(hook, page=[CHAT, MAIL])) as open_desk:
        handle = await open_desk.raised(message())
        await tried(handle)
        while not (web.received and mail.mails):
            await asyncio.sleep(0.05)
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        with receiver(chat_port) as chat:
            result = await open_desk.ended(handle)
            assert [received.path for received in chat.received] == [f"/hooks/{SECRET}"]
    assert (len(web.received), len(mail.mails)) == (1, 1)
    assert result.delivered
    attempts = {each.target: each.attempts for each in result.targets}
    assert (attempts["webhook"], attempts[MAIL_NAME]) == (1, 1)
    assert attempts[CHAT_NAME] >= 2


async def test_whoever_raises_an_alert_goes_on_while_the_service_is_down(
    client: Client, chat_port: int
) -> None:
    sent = message()
    async with desk(client, Applied(page=[CHAT])) as open_desk:
        for told in (True, False):
            raised = await client.execute_workflow(
                Raiser.run, sent, id=f"raiser-{uuid.uuid4()}", task_queue=open_desk.queue
            )
            assert raised is told
        handle = client.get_workflow_handle_for(Alert.run, alert_id(sent.incident, sent.cause))
        await tried(handle)
        with receiver(chat_port) as chat:
            assert (await open_desk.ended(handle)).delivered
            assert len(chat.received) == 1


async def test_a_worker_that_dies_between_two_targets_sends_to_neither_twice(
    client: Client, web: Receiver, hook: SecretRef, chat_port: int
) -> None:
    fleet = Applied(hook, page=[CHAT])
    async with desk(client, fleet) as first:
        handle = await first.raised(message())
        await tried(handle)
    with receiver(chat_port) as chat:
        second = AlertActivities(fleet, AlertHistory(client))
        async with Worker(
            client,
            task_queue=first.queue,
            workflows=[Alert],
            activities=[second.plan_alert, second.deliver],
        ):
            assert (await first.ended(handle)).delivered
        await second.close()
        assert (len(web.received), len(chat.received)) == (1, 1)


async def test_notices_and_pages_go_where_the_fleet_says_and_both_to_the_webhook(
    client: Client, web: Receiver, hook: SecretRef, mail: Mailbox, chat_port: int
) -> None:
    with receiver(chat_port) as chat:
        async with desk(client, Applied(hook, notice=[CHAT], page=[MAIL])) as open_desk:
            await open_desk.send(message(severity=Severity.NOTICE))
            assert (len(web.received), len(chat.received), len(mail.mails)) == (1, 1, 0)
            await open_desk.send(message())
            assert (len(web.received), len(chat.received), len(mail.mails)) == (2, 1, 1)


async def test_one_cause_of_an_incident_is_told_once(
    client: Client, web: Receiver, hook: SecretRef
) -> None:
    sent = message()
    async with desk(client, Applied(hook)) as open_desk:
        assert (await open_desk.send(sent)).delivered
        with pytest.raises(WorkflowAlreadyStartedError):
            await open_desk.raised(sent)
        other = sent.model_copy(update={"cause": "restart_failed"})
        assert (await open_desk.send(other)).delivered
    causes = [received.json()["cause"] for received in web.received]
    assert causes == ["not_recovered", "restart_failed"]


async def test_the_incidents_of_a_server_that_flaps_are_counted_and_no_other_servers(
    client: Client, web: Receiver, hook: SecretRef
) -> None:
    name = f"gpu-{uuid.uuid4().hex[:6]}"
    async with desk(client, Applied(hook)) as open_desk:
        for server, incident, cause in [
            (name, "1", "confirmed"),
            (name, "1", "restarting"),
            (f"{name}0", "1", "confirmed"),
            (name, "2", "confirmed"),
            (name, "3", "confirmed"),
        ]:
            await open_desk.send(
                message(server=server, incident=f"{server}@{incident}", cause=cause)
            )
    counts = [received.json()["incidents_24h"] for received in web.received]
    assert counts == [1, 1, 1, 2, 3]
    assert "Its incidents within 24 h: 3." in web.received[-1].json()["text"]


# --- what goes wrong -----------------------------------------------------------------------------


async def test_what_never_gets_out_ends_as_undelivered_with_the_reason(
    client: Client, web: Receiver, hook: SecretRef, mail: Mailbox
) -> None:
    web.answer = lambda _: Answer(status=404)
    async with desk(client, Applied(hook, page=[MAIL])) as open_desk:
        result = await open_desk.send(message(give_up_after=timedelta(seconds=3)))
    assert not result.delivered
    assert result.detail == "webhook: the webhook answers 404"
    assert {each.target: each.delivered for each in result.targets} == {
        "webhook": False,
        MAIL_NAME: True,
    }


async def test_a_receiver_that_never_answers_ends_as_undelivered(
    client: Client, web: Receiver, hook: SecretRef
) -> None:
    web.answer = lambda _: Answer(silent=True)
    async with desk(client, Applied(hook)) as open_desk:
        result = await open_desk.send(message(give_up_after=timedelta(seconds=2)))
        web.released.set()
    assert not result.delivered
    assert "in time" in result.detail


async def test_a_bound_of_nothing_is_no_loop_without_end(
    client: Client, web: Receiver, hook: SecretRef
) -> None:
    web.answer = lambda _: Answer(status=500)
    async with desk(client, Applied(hook)) as open_desk:
        result = await open_desk.send(message(give_up_after=timedelta(0)))
    assert not result.delivered


async def test_where_nobody_is_named_it_ends_and_says_so(client: Client) -> None:
    async with desk(client, Applied()) as open_desk:
        result = await open_desk.send(message())
    assert result == AlertResult(delivered=False, detail="[alerts] names nobody for a page")


async def test_where_the_fleet_comes_to_name_another_place_that_one_is_told(
    client: Client, mail: Mailbox, chat_port: int
) -> None:
    async with desk(client, Applied(page=[CHAT])) as open_desk:
        handle = await open_desk.raised(message())
        await tried(handle)
        open_desk.fleet.settings = Applied(page=[MAIL]).settings
        result = await open_desk.ended(handle)
    assert result.delivered
    assert [(each.target, each.gone) for each in result.targets] == [
        (CHAT_NAME, True),
        (MAIL_NAME, False),
    ]
    assert len(mail.mails) == 1


async def test_a_person_may_cancel_an_alert(client: Client, chat_port: int) -> None:
    async with desk(client, Applied(page=[CHAT])) as open_desk:
        handle = await open_desk.raised(message())
        await tried(handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), 30)


async def test_a_storm_of_alerts_to_a_service_that_hangs_leaves_the_worker_free(
    client: Client, web: Receiver, hook: SecretRef
) -> None:
    web.answer = lambda _: Answer(silent=True)
    async with desk(client, Applied(hook)) as open_desk:
        handles = await asyncio.gather(*(open_desk.raised(message()) for _ in range(150)))
        while len(web.received) < 8:
            await asyncio.sleep(0.05)
        done = await asyncio.wait_for(
            client.execute_activity(
                other_work,
                id=f"other-{uuid.uuid4()}",
                task_queue=open_desk.queue,
                start_to_close_timeout=timedelta(seconds=10),
            ),
            30,
        )
        assert done == "done"
        assert len(web.received) <= 16
        await asyncio.gather(*(handle.terminate() for handle in handles))
        web.released.set()


async def test_where_incidents_cannot_be_counted_there_is_no_count(client: Client) -> None:
    elsewhere = await Client.connect(client.service_client.config.target_host, namespace="none")
    assert await AlertHistory(elsewhere).incidents("gpu-1", "gpu-1@x") == 0
    assert await AlertHistory(client).incidents("' OR '1'='1", "x") == 0
