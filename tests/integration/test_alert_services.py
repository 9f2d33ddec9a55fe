"""Services through apprise, told for real: HTTP, mail and chats. Their URLs reach nothing else."""

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import structlog
from temporalio.exceptions import ApplicationError

from activities.alerts import NOT_DELIVERED
from activities.services import with_key
from fleet.config import SecretRef
from fleet.contracts.alerts import AlertAction, AlertMessage, Delivered, Severity
from tests.parts.alerting import Applied, deliver, message
from tests.parts.mail import Mailbox, mailbox
from tests.parts.ports import free_port
from tests.parts.receiver import Answer, Receiver, receiver

pytestmark = pytest.mark.anyio

SECRET = "planted5erviceTokenxxxxx1"  # the form that a token of Mattermost has
REF = SecretRef(env="STEADY_TEST_SERVICE")
TARGET = "env STEADY_TEST_SERVICE"
LINK = "http://temporal.lab:8233/namespaces/default/workflows/remediate%2Fgpu-1"

UseUrl = Callable[[str], None]


@pytest.fixture
def web() -> Iterator[Receiver]:
    with receiver() as started:
        yield started


@pytest.fixture
def mail() -> Iterator[Mailbox]:
    with mailbox() as started:
        yield started


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> UseUrl:
    return lambda url: monkeypatch.setenv("STEADY_TEST_SERVICE", url)


async def tell(sent: AlertMessage, *, mention: str = "@oncall") -> Delivered:
    fleet = Applied(notice=[REF], page=[REF], ui="http://temporal.lab:8233", mention=mention)
    return await deliver(sent, fleet, TARGET)


def notice(**changed: object) -> AlertMessage:
    return message(severity=Severity.NOTICE, **changed)


# --- what is sent --------------------------------------------------------------------------------

BODY = (
    "Server gpu-1 of lab: hung since 2026-11-30 12:00:05 UTC, job render-12.\n"
    "Next: a second restart in 10m\n"
    f"{LINK}"
)


async def test_an_http_service_gets_title_and_body_and_a_page_calls_people(
    web: Receiver, use: UseUrl
) -> None:
    use(f"json://127.0.0.1:{web.port}/{SECRET}")
    result = await tell(message())
    assert result == Delivered(target=TARGET, delivered=True, attempts=1)
    (received,) = web.received
    assert received.path == f"/{SECRET}"
    posted = received.json()
    assert posted["title"] == "restart did not recover gpu-1"
    assert posted["message"] == f"@oncall {BODY}"
    assert posted["type"] == "failure"


async def test_a_notice_calls_nobody(web: Receiver, use: UseUrl) -> None:
    use(f"json://127.0.0.1:{web.port}/")
    await tell(notice(job="@here <!channel> <@U1>"))
    posted = web.received[0].json()
    assert posted["type"] == "info"
    for call in ("@oncall", "@here", "<!channel", "<@U1"):
        assert call not in posted["message"]


async def test_a_good_end_is_a_success(web: Receiver, use: UseUrl) -> None:
    use(f"json://127.0.0.1:{web.port}/")
    await tell(notice(action=AlertAction.RESOLVE))
    assert web.received[0].json()["type"] == "success"


def mail_url(port: int) -> str:
    return f"mailto://127.0.0.1:{port}?mode=insecure&from=steady@example.org&to=oncall@example.org"


async def test_a_mail_has_the_title_as_subject_and_what_was_said_as_text(
    mail: Mailbox, use: UseUrl
) -> None:
    use(mail_url(mail.port))
    await tell(message(detail="state 'a < b & <i>c</i>'"))
    await tell(notice())
    page, calm = mail.mails
    assert page["Subject"] == "restart did not recover gpu-1"
    assert page["To"] == "oncall@example.org"
    assert "@oncall Server gpu-1 of lab: hung since" in text(page)
    assert "state 'a < b & <i>c</i>'" in text(page)
    assert LINK in text(page)
    assert "Server gpu-1 of lab: hung since" in text(calm)
    assert "@oncall" not in text(calm)


def text(mail: object) -> str:
    part = mail.get_body(("plain",))  # type: ignore[attr-defined]
    assert part is not None, mail
    return str(part.get_content())


async def test_a_chat_reads_a_page_with_its_mention_and_a_notice_without(
    web: Receiver, use: UseUrl
) -> None:
    use(f"mmost://steady@127.0.0.1:{web.port}/{SECRET}")
    await tell(message(), mention="@channel")
    await tell(notice(), mention="@channel")
    page, calm = [received.json()["text"] for received in web.received]
    assert [received.path for received in web.received] == [f"/hooks/{SECRET}"] * 2
    assert page.splitlines()[0] == "restart did not recover gpu-1"
    assert page.splitlines()[1].startswith("@channel Server gpu-1 of lab: hung")
    assert "@channel" not in calm


# --- services that keep one incident a key -------------------------------------------------------

KEYED = {
    "pagerduty": (f"pagerduty://{'a' * 32}@{'b' * 20}", "dedup_key", "event_action"),
    "incidentio": (f"incidentio://01ABC/{'a' * 32}", "deduplication_key", "status"),
    "pagertree": ("pagertree://int_0123456789", "id", "event_type"),
    "signl4": ("signl4://secret0123", "X-S4-ExternalID", "X-S4-Status"),
    "squadcast": ("squadcast://abcdef0123", "event_id", "status"),
    "splunk": (f"splunk://steady@{'a' * 32}", "entity_id", "message_type"),
}


@pytest.fixture
def elsewhere(web: Receiver, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """Every request of apprise goes to the receiver, whatever service it was meant for."""
    from requests import Session  # noqa: PLC0415

    real = Session.request

    def request(self: Session, method: str, url: str, **more: object) -> object:
        return real(self, method, web.url("/" + url.partition("://")[2]), **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "request", request)
    web.answer = lambda _: Answer(status=202 if "incident.io" in _.path else 200)
    return web


@pytest.mark.parametrize("service", KEYED)
async def test_a_service_that_resolves_gets_all_of_an_incident_under_its_key(
    elsewhere: Receiver, use: UseUrl, service: str
) -> None:
    url, key, action = KEYED[service]
    use(url)
    first = message()
    await tell(first)
    await tell(first.model_copy(update={"cause": "budget_exhausted", "action": AlertAction.UPDATE}))
    end = {"cause": "resolved", "action": AlertAction.RESOLVE, "severity": Severity.NOTICE}
    await tell(first.model_copy(update=end))
    sent = [received.json() for received in elsewhere.received]
    assert [each[key] for each in sent] == [first.incident] * 3
    told, again, over = [str(each.get(action)).lower() for each in sent]
    assert told == again
    assert over != told
    assert "re" in over  # resolve, resolved, recovery


async def test_what_the_operator_wrote_into_the_url_stays(elsewhere: Receiver, use: UseUrl) -> None:
    use(f"{KEYED['pagerduty'][0]}?dedup=mine&action=trigger")
    await tell(message(action=AlertAction.RESOLVE, severity=Severity.NOTICE))
    (sent,) = [received.json() for received in elsewhere.received]
    assert (sent["dedup_key"], sent["event_action"]) == ("mine", "trigger")


@pytest.mark.parametrize("url", ["json://127.0.0.1/x", "splunk://a@b/mine", "nothing", ""])
def test_other_urls_stay_as_they_are(url: str) -> None:
    assert with_key(url, "gpu-1@20261130T120005.000Z") == url


@pytest.mark.parametrize("form", ["", "?format=text", "?format=markdown", "?blocks=yes"])
async def test_slack_mentions_in_its_own_markup_and_only_where_steady_does(
    web: Receiver, use: UseUrl, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    from apprise.plugins.slack import NotifySlack  # noqa: PLC0415

    monkeypatch.setattr(NotifySlack, "webhook_url", web.url("/services"))
    web.answer = lambda _: Answer(body=b"ok")
    use(f"slack://T1JJ3T3L2/A1BRTD4JD/{SECRET[:24]}/#oncall{form}")
    await tell(message(job="<!channel> <@U1> !channel> @U1>"), mention="<!here>")
    (received,) = web.received
    said = json.dumps(received.json(), ensure_ascii=False)
    assert "<!here> Server gpu-1 of lab" in said
    for call in ("<!channel", "<@U1", "!channel>"):
        assert call not in said


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said", "level"),
    [
        (Answer(status=500), "the service answers 500", "warning"),
        (Answer(status=429), "the service answers 429", "warning"),
        (Answer(status=404), "the service answers 404", "error"),
        (
            Answer(status=302, headers={"Location": "/elsewhere"}),
            "the service answers 302",
            "error",
        ),
    ],
)
async def test_a_service_that_refuses_is_told_again_and_a_wrong_url_is_loud(
    web: Receiver, use: UseUrl, answer: Answer, said: str, level: str
) -> None:
    web.answer = lambda _: answer
    use(f"json://127.0.0.1:{web.port}/{SECRET}")
    with structlog.testing.capture_logs() as logged, pytest.raises(ApplicationError) as raised:
        await tell(message())
    assert raised.value.message == said
    assert (raised.value.type, raised.value.non_retryable) == (NOT_DELIVERED, False)
    assert [(line["log_level"], line["target"]) for line in logged] == [(level, TARGET)]
    assert len(web.received) == 1


async def test_a_mail_that_is_refused_is_told_again(mail: Mailbox, use: UseUrl) -> None:
    mail.answer = "554 no"
    use(mail_url(mail.port))
    with pytest.raises(ApplicationError, match="did not take it"):
        await tell(message())


@pytest.mark.parametrize(
    "url",
    [
        "json://127.0.0.1:{closed}/{secret}?token={secret}",
        "json://user:{secret}@127.0.0.1:{failing}/{secret}",
        "jsons://127.0.0.1:{failing}/{secret}",
        "json://{secret}.invalid/",
        "mmost://steady@127.0.0.1:{failing}/{secret}",
        "mailto://user:{secret}@127.0.0.1:{closed}?from=a@example.org&to=b@example.org",
        "nothing://{secret}",
        "slack://{secret}",
        "{secret}",
        "json://[{secret}",
        "json://127.0.0.1:99999999/{secret}",
    ],
)
async def test_no_failure_repeats_a_part_of_the_url(
    web: Receiver,
    use: UseUrl,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    url: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    web.answer = lambda request: Answer(status=500, body=request.path.encode())
    use(url.format(closed=free_port(), failing=web.port, secret=SECRET))
    with structlog.testing.capture_logs() as logged, pytest.raises(ApplicationError) as raised:
        await tell(message())
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    printed = "".join(capfd.readouterr())
    for said in (str(raised.value), repr(raised.value.details), str(logged), caplog.text, printed):
        assert SECRET.lower() not in said.lower()


async def test_a_delivery_leaves_no_url_in_the_log_even_when_debugging(
    web: Receiver, use: UseUrl, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(f"mmost://steady@127.0.0.1:{web.port}/{SECRET}")
    await tell(message())
    assert len(web.received) == 1
    assert SECRET not in caplog.text


async def test_a_service_that_hangs_leaves_the_event_loop_and_others_alone(
    web: Receiver, mail: Mailbox, use: UseUrl
) -> None:
    web.answer = lambda _: Answer(silent=True)
    use(f"json://127.0.0.1:{web.port}/")
    hanging = [asyncio.create_task(tell(message())) for _ in range(8)]
    while len(web.received) < 8:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    use(mail_url(mail.port))
    assert (await tell(message())).delivered
    address = await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    assert address
    assert time.monotonic() - began < 5
    assert not any(task.done() for task in hanging)
    web.released.set()
    ended = await asyncio.gather(*hanging, return_exceptions=True)
    assert all(isinstance(each, ApplicationError) for each in ended)


async def test_what_the_fleet_no_longer_names_is_gone_and_not_told(
    web: Receiver, use: UseUrl
) -> None:
    use(f"json://127.0.0.1:{web.port}/")
    result = await deliver(message(), Applied(notice=[SecretRef(env="OTHER")]), TARGET)
    assert (result.delivered, result.gone) == (False, True)
    assert web.received == []


def test_apprise_is_loaded_by_no_command_that_does_not_need_it() -> None:
    code = "import sys, worker.cli, worker.worker, worker.loading; print('apprise' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
