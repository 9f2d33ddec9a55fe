"""A webhook is told in JSON, by a real HTTP receiver's word, and its URL reaches nothing else."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import structlog
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.alerts import NOT_DELIVERED, AlertActivities
from fleet.config import SecretRef
from fleet.contracts.alerts import AlertPlan, Severity
from tests.parts.alerting import Applied, Counted, deliver, message
from tests.parts.ports import free_port
from tests.parts.receiver import Answer, Receiver, receiver

pytestmark = pytest.mark.anyio

SECRET = "planted-webhook-token-51ce"


@pytest.fixture
def web() -> Iterator[Receiver]:
    with receiver() as started:
        yield started


@pytest.fixture
def webhook(web: Receiver, monkeypatch: pytest.MonkeyPatch) -> SecretRef:
    monkeypatch.setenv("STEADY_TEST_WEBHOOK", web.url(f"/hooks/{SECRET}?key={SECRET}"))
    return SecretRef(env="STEADY_TEST_WEBHOOK")


# --- what is sent --------------------------------------------------------------------------------


async def test_a_page_says_all_that_a_person_needs_and_calls_them(
    web: Receiver, webhook: SecretRef
) -> None:
    raised = datetime(2026, 11, 30, 12, 13, 8, tzinfo=UTC)
    sent = message(incident="gpu-1@20261130T120005.000Z", raised_at=raised)
    result = await deliver(sent, Applied(webhook, ui="http://temporal.lab:8233/"))
    assert (result.delivered, result.attempts) == (True, 1)
    (received,) = web.received
    link = "http://temporal.lab:8233/namespaces/default/workflows/remediate%2Fgpu-1"
    assert received.json() == {
        "key": "gpu-1@20261130T120005.000Z",
        "action": "trigger",
        "fleet": "lab",
        "server": "gpu-1",
        "incident": "gpu-1@20261130T120005.000Z",
        "cause": "not_recovered",
        "severity": "page",
        "verdict": "hung",
        "since": "2026-11-30T12:00:05+00:00",
        "raised_at": "2026-11-30T12:13:08+00:00",
        "job": "render-12",
        "title": "restart did not recover gpu-1",
        "next_step": "a second restart in 10m",
        "link": link,
        "incidents_24h": None,
        "drill": False,
        "text": (
            "@oncall restart did not recover gpu-1\n"
            "Server gpu-1 of lab: hung since 2026-11-30 12:00:05 UTC, job render-12.\n"
            "Next: a second restart in 10m\n"
            "Raised at 12:13:08 UTC.\n"
            f"{link}"
        ),
    }
    assert received.headers["Idempotency-Key"] == "gpu-1@20261130T120005.000Z/not_recovered"
    assert received.headers["Content-Type"] == "application/json"


async def test_a_notice_calls_nobody_whatever_the_worker_calls_its_job(
    web: Receiver, webhook: SecretRef
) -> None:
    sent = message(severity=Severity.NOTICE, job="@here <!channel>", detail="state '@channel'")
    await deliver(sent, Applied(webhook))
    text = web.received[0].json()["text"]
    for call in ("@oncall", "@here", "<!channel", "@channel"):
        assert call not in text


async def test_without_an_address_of_the_ui_there_is_no_link(
    web: Receiver, webhook: SecretRef
) -> None:
    await deliver(message(), Applied(webhook))
    assert web.received[0].json()["link"] is None
    assert "http" not in web.received[0].json()["text"]


async def test_a_secret_in_a_file_is_read_anew_each_time(
    web: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("secrets") / "webhook"
    for path in ("/first", "/second"):
        file.write_text(web.url(path) + "\n")
        await deliver(message(), Applied(SecretRef(file=str(file))))
    assert [received.path for received in web.received] == ["/first", "/second"]


async def test_a_server_that_flaps_gets_a_count(web: Receiver, webhook: SecretRef) -> None:
    await deliver(message(), Applied(webhook), incidents=4)
    posted = web.received[0].json()
    assert posted["incidents_24h"] == 4
    assert "Its incidents within 24 h: 4." in posted["text"].splitlines()


async def test_a_first_incident_is_not_counted_aloud(web: Receiver, webhook: SecretRef) -> None:
    await deliver(message(), Applied(webhook), incidents=1)
    assert "incidents" not in web.received[0].json()["text"]


async def test_where_nobody_is_named_the_alert_goes_to_the_log() -> None:
    alerts = AlertActivities(Applied(), Counted())
    with structlog.testing.capture_logs() as logged:
        plan = await ActivityEnvironment().run(alerts.plan_alert, message())
    await alerts.close()
    assert plan == AlertPlan(targets=[], incidents=0)
    (line,) = logged
    assert line["log_level"] == "warning"
    assert "restart did not recover gpu-1" in line["text"]


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said", "level"),
    [
        (Answer(status=500), "answers 500", "warning"),
        (Answer(status=429), "answers 429", "warning"),
        (Answer(status=404), "answers 404", "error"),
        (Answer(status=302, headers={"Location": "/elsewhere"}), "answers 302", "error"),
    ],
)
async def test_any_answer_but_2xx_is_tried_again_and_a_wrong_url_is_loud(
    web: Receiver, webhook: SecretRef, answer: Answer, said: str, level: str
) -> None:
    web.answer = lambda _: answer
    with structlog.testing.capture_logs() as logged, pytest.raises(ApplicationError) as raised:
        await deliver(message(), Applied(webhook))
    assert said in raised.value.message
    assert (raised.value.type, raised.value.non_retryable) == (NOT_DELIVERED, False)
    assert [line["log_level"] for line in logged] == [level]
    assert len(web.received) == 1


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("7", 7, 7),
        ("86400", 900, 900),
        ("9" * 300, 900, 900),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 900, 900),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1, 1),
    ],
)
async def test_the_wait_that_a_service_asks_for_is_kept_within_a_bound(
    web: Receiver, webhook: SecretRef, asked: str, least: int, most: int
) -> None:
    web.answer = lambda _: Answer(status=429, headers={"Retry-After": asked})
    with pytest.raises(ApplicationError) as raised:
        await deliver(message(), Applied(webhook))
    wait = raised.value.next_retry_delay
    assert wait is not None
    assert least <= wait.total_seconds() <= most


@pytest.mark.parametrize("asked", ["", "soon", "-5", "٣"])
async def test_a_wait_that_is_none_is_ignored(
    web: Receiver, webhook: SecretRef, asked: str
) -> None:
    web.answer = lambda _: Answer(status=503, headers={"Retry-After": quoted(asked)})
    with pytest.raises(ApplicationError) as raised:
        await deliver(message(), Applied(webhook))
    assert raised.value.next_retry_delay is None


def quoted(header: str) -> str:
    return header.encode().decode("latin-1")


async def test_a_webhook_that_answers_without_end_has_still_answered(
    web: Receiver, webhook: SecretRef
) -> None:
    web.answer = lambda _: Answer(body=b"x" * 1000, endless=True)
    result = await asyncio.wait_for(deliver(message(), Applied(webhook)), 10)
    assert result.delivered


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{closed}/hooks/{secret}",
        "http://{secret}.invalid/hooks",
        "https://127.0.0.1:{open}/{secret}",
        "http://127.0.0.1:{open}:{secret}",
        "http://[{secret}]/",
        "ftp://127.0.0.1/{secret}",
        "{secret}",
        "http://ü{secret}.invalid:99999999/",
        "",
    ],
)
async def test_no_error_and_no_log_line_repeats_the_url(
    web: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    caplog.set_level(logging.DEBUG)
    whole = url.format(closed=free_port(), open=web.port, secret=SECRET)
    monkeypatch.setenv("STEADY_TEST_WEBHOOK", whole)
    with structlog.testing.capture_logs() as logged, pytest.raises(ApplicationError) as raised:
        await deliver(message(), Applied(SecretRef(env="STEADY_TEST_WEBHOOK")))
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    for said in (str(raised.value), repr(raised.value.details), str(logged), without_host(caplog)):
        assert SECRET not in said


def without_host(caplog: pytest.LogCaptureFixture) -> str:
    """The log without httpcore's debugging lines, which a worker never turns on."""
    return "\n".join(
        record.getMessage() for record in caplog.records if not record.name.startswith("httpcore")
    )


async def test_a_delivery_leaves_no_url_in_the_log_even_when_debugging(
    web: Receiver, webhook: SecretRef, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await deliver(message(), Applied(webhook))
    assert len(web.received) == 1
    assert SECRET not in caplog.text
