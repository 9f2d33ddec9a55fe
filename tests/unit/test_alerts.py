"""Who is told of an alert, in which words, and what it does to the incident."""

import pytest
from pydantic import ValidationError

from fleet.alerts import action, targets
from fleet.config import Alerts, SecretRef
from fleet.contracts.alerts import AlertAction, AlertMessage, Delivery, Severity
from fleet.contracts.fleet import AlertSettings
from fleet.webhooks import body, words

HOOK, CHAT, PAGER = (SecretRef(env=name) for name in ("HOOK", "CHAT", "PAGER"))


def named(alerts: Alerts) -> tuple[list[str], list[str]]:
    return list(targets(alerts, Severity.NOTICE)), list(targets(alerts, Severity.PAGE))


def test_each_severity_has_its_services_and_the_webhook_is_told_everything() -> None:
    alerts = Alerts(webhook=HOOK, notice=(CHAT,), page=(PAGER, SecretRef(file="/etc/mail")))
    assert named(alerts) == (["webhook", "env CHAT"], ["webhook", "env PAGER", "file /etc/mail"])


def test_where_no_service_is_named_for_pages_those_of_notices_are_paged() -> None:
    assert named(Alerts(notice=(CHAT,))) == (["env CHAT"], ["env CHAT"])
    assert named(Alerts(page=(PAGER,))) == ([], ["env PAGER"])
    assert named(Alerts()) == ([], [])


def test_a_service_that_is_named_twice_is_told_once() -> None:
    assert named(Alerts(page=(PAGER, CHAT, PAGER)))[1] == ["env PAGER", "env CHAT"]


def test_so_many_services_are_allowed_and_no_more() -> None:
    Alerts(page=tuple(SecretRef(env=f"E{n}") for n in range(20)))
    with pytest.raises(ValidationError):
        Alerts(page=tuple(SecretRef(env=f"E{n}") for n in range(21)))


def test_an_alert_of_the_whole_fleet_names_no_server() -> None:
    message = AlertMessage(
        server="",
        incident="storm@20261130T120000.000Z",
        cause="fleet_suspicion",
        severity=Severity.PAGE,
        title="fleet-wide suspicion",
    )
    settings = AlertSettings(alerts=Alerts(), fleet_name="gpu-farm")
    order = Delivery(message=message, target="webhook")
    assert words(order, settings, None).lines[0] == "The fleet gpu-farm."
    assert body(order, settings, None)["server"] is None


@pytest.mark.parametrize(
    ("cause", "told", "expected"),
    [
        ("confirmed", False, AlertAction.TRIGGER),
        ("restarting", False, AlertAction.TRIGGER),
        ("restarting", True, AlertAction.UPDATE),
        ("not_recovered", True, AlertAction.UPDATE),
        ("cancelled", True, AlertAction.UPDATE),
        ("resolved", True, AlertAction.RESOLVE),
        ("recovered", True, AlertAction.RESOLVE),
        ("recovered_later", False, AlertAction.RESOLVE),
    ],
)
def test_the_first_alert_triggers_a_good_end_resolves_and_the_others_update(
    cause: str, told: bool, expected: AlertAction
) -> None:
    assert action(cause, told=told) is expected


def order(**changed: object) -> Delivery:
    sent = {
        "server": "gpu-1",
        "incident": "gpu-1@x",
        "cause": "c",
        "severity": "page",
        "title": "gpu-1 hangs",
    }
    return Delivery(message=AlertMessage.model_validate({**sent, **changed}), target="webhook")


SETTINGS = AlertSettings(alerts=Alerts(mention="@night"), fleet_name="lab")


def test_all_alerts_of_an_incident_have_one_key() -> None:
    first, last = (body(order(cause=cause), SETTINGS, None) for cause in ("confirmed", "resolved"))
    assert first["key"] == last["key"] == "gpu-1@x"


def test_only_a_page_mentions_and_an_empty_mention_is_none() -> None:
    silent = SETTINGS.model_copy(update={"alerts": Alerts(mention="")})
    assert words(order(), SETTINGS, None).mention == "@night"
    assert words(order(severity="notice"), SETTINGS, None).mention == ""
    assert body(order(), silent, None)["text"] == "gpu-1 hangs\nServer gpu-1 of lab."


@pytest.mark.parametrize(
    "call",
    ["@here", "@Channel", "@all", "@everyone", "@room", "<!here>", "<@U123>", "<#C1>", "!channel>"],
)
def test_a_workers_own_words_call_nobody(call: str) -> None:
    said = words(order(job=call, title=call, detail=f"state '{call}'"), SETTINGS, None)
    assert call not in "\n".join([said.title, *said.lines])


def test_words_that_call_nobody_stay_as_they_are() -> None:
    said = words(order(job="render@node-3", detail="state 'busy!' <b>"), SETTINGS, None)
    assert said.lines == ["Server gpu-1 of lab, job render@node-3.", "state 'busy!' <b>"]


def test_an_alert_of_a_drill_says_so_first_to_people_and_to_programs() -> None:
    drilled = order().model_copy(update={"drill": True})
    said = words(drilled, SETTINGS, None)
    assert said.title == "Drill: gpu-1 hangs"
    assert said.lines[0] == "This is a drill: it was frozen on purpose."
    assert body(drilled, SETTINGS, None)["drill"] is True
    assert body(order(), SETTINGS, None)["drill"] is False
