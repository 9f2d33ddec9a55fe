"""An alert as a webhook's JSON: fields for programs, and ``text`` for chat services."""

import re
from urllib.parse import quote

from fleet.contracts import AlertMessage, AlertSettings, Severity

_SHOUT = re.compile(r"@(?=here|channel|all|everyone)|<(?=!)", re.IGNORECASE)


def body(message: AlertMessage, settings: AlertSettings, link: str | None) -> dict[str, str | None]:
    """What is posted. Slack, Mattermost and their like show ``text`` and ignore the rest."""
    return {
        "fleet": settings.fleet_name,
        "server": message.server,
        "incident": message.incident,
        "cause": message.cause,
        "severity": str(message.severity),
        "verdict": str(message.verdict) if message.verdict is not None else None,
        "since": message.since.isoformat() if message.since is not None else None,
        "job": message.job,
        "title": message.title,
        "next_step": message.next_step or None,
        "link": link,
        "text": text(message, settings, link),
    }


def text(message: AlertMessage, settings: AlertSettings, link: str | None) -> str:
    """The alert in sentences: what, since when, what happens next, where to look."""
    lines = [_quiet(message.title), _quiet(_situation(message, settings.fleet_name))]
    if message.detail:
        lines.append(_quiet(message.detail))
    if message.next_step:
        lines.append(f"Next: {_quiet(message.next_step)}")
    if link:
        lines.append(link)
    if message.severity is Severity.PAGE and settings.alerts.mention:
        lines[0] = f"{settings.alerts.mention} {lines[0]}"
    return "\n".join(lines)


def workflow_link(ui: str | None, namespace: str, workflow: str) -> str | None:
    """Where a workflow is shown in the Temporal UI, if its address is known."""
    if not ui:
        return None
    place = quote(workflow, safe="")
    return f"{ui.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows/{place}"


def idempotency_key(message: AlertMessage) -> str:
    """One key a cause an incident, so that a receiver can tell a repeated delivery."""
    return quote(f"{message.incident}/{message.cause}", safe="@/:.-_ ")


def _situation(message: AlertMessage, fleet: str) -> str:
    said = f"Server {message.server} of {fleet}"
    if message.verdict is not None:
        said += f": {message.verdict}"
    if message.since is not None:
        said += f" since {message.since:%Y-%m-%d %H:%M:%S} UTC"
    return said + (f", job {message.job}." if message.job else ".")


def _quiet(words: str) -> str:
    """Jobs and states are the worker's own words; only a page may call people."""
    return _SHOUT.sub(lambda mark: f"{mark[0]}\u200b", words)
