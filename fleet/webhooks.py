"""An alert in words, and as a webhook's JSON: fields for programs, ``text`` for chat services."""

import re
from dataclasses import dataclass
from urllib.parse import quote

from fleet.contracts.alerts import AlertAction, AlertMessage, Delivery, Severity
from fleet.contracts.fleet import AlertSettings

#: How chats call people: a word for all, or a mark in brackets (apprise needs only the last).
_SHOUT = re.compile(
    r"[@!](?=here|channel|all|everyone|room)|(?<=<)[!@#]|[!@](?=[^\s|>]*[|>])", re.IGNORECASE
)


@dataclass(frozen=True)
class Words:
    """An alert for people. ``mention`` is whom to call, and empty where nobody is. ``key`` is one
    for all alerts of an incident.
    """

    title: str
    lines: list[str]
    mention: str
    severity: Severity
    action: AlertAction
    key: str = ""


def body(order: Delivery, settings: AlertSettings, link: str | None) -> dict[str, str | int | None]:
    """What is posted. Slack, Mattermost and their like show ``text`` and ignore the rest.

    ``key`` is one for all alerts of an incident, and ``action`` what to do with what has that key.
    """
    message = order.message
    return {
        "key": message.incident,
        "action": str(message.action),
        "fleet": settings.fleet_name,
        "server": message.server or None,
        "incident": message.incident,
        "cause": message.cause,
        "severity": str(message.severity),
        "verdict": str(message.verdict) if message.verdict is not None else None,
        "since": message.since.isoformat() if message.since is not None else None,
        "raised_at": message.raised_at.isoformat() if message.raised_at is not None else None,
        "job": message.job,
        "title": message.title,
        "next_step": message.next_step or None,
        "link": link,
        "incidents_24h": order.incidents or None,
        "drill": order.drill,
        "text": _text(words(order, settings, link)),
    }


def words(order: Delivery, settings: AlertSettings, link: str | None) -> Words:
    """The alert in sentences: what, since when, how often, what happens next, where to look."""
    message = order.message
    lines = ["This is a drill: it was frozen on purpose."] if order.drill else []
    lines.append(_quiet(_situation(message, settings.fleet_name)))
    if order.incidents > 1:
        lines.append(f"Its incidents within 24 h: {order.incidents}.")
    if message.detail:
        lines.append(_quiet(message.detail))
    if message.next_step:
        lines.append(f"Next: {_quiet(message.next_step)}")
    if message.raised_at is not None:
        lines.append(f"Raised at {message.raised_at:%H:%M:%S} UTC.")
    if link:
        lines.append(link)
    return Words(
        title=f"{'Drill: ' if order.drill else ''}{_quiet(message.title)}",
        lines=lines,
        mention=settings.alerts.mention if message.severity is Severity.PAGE else "",
        severity=message.severity,
        action=message.action,
        key=message.incident,
    )


def _text(said: Words) -> str:
    return "\n".join([f"{said.mention} {said.title}".strip(), *said.lines])


def workflow_link(ui: str | None, namespace: str, workflow: str, run: str = "") -> str | None:
    """Where a workflow is shown in the Temporal UI, if its address is known: without a run, the
    newest one.
    """
    if not ui:
        return None
    place = quote(workflow, safe="") + (f"/{quote(run, safe='')}" if run else "")
    return f"{ui.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows/{place}"


def idempotency_key(message: AlertMessage) -> str:
    """One key a cause an incident, so that a receiver can tell a repeated delivery."""
    return quote(f"{message.incident}/{message.cause}", safe="@/:.-_ ")


def _situation(message: AlertMessage, fleet: str) -> str:
    said = f"Server {message.server} of {fleet}" if message.server else f"The fleet {fleet}"
    if message.verdict is not None:
        said += f": {message.verdict}"
    if message.since is not None:
        said += f" since {message.since:%Y-%m-%d %H:%M:%S} UTC"
    return said + (f", job {message.job}." if message.job else ".")


def _quiet(words: str) -> str:
    """Jobs and states are the worker's own words; only a page may call people."""
    return _SHOUT.sub(lambda mark: f"{mark[0]}\u200b", words)
