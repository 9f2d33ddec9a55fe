"""Who is told of an alert, and what it does to the incident that a service knows of."""

from fleet.config import Alerts, SecretRef
from fleet.contracts.alerts import AlertAction, AlertMessage, Severity
from fleet.contracts.remediation import Outcome

#: The name of the webhook among the targets.
WEBHOOK = "webhook"
#: The cause of the alert that a server which had been given up is well.
RECOVERED_LATER = "recovered_later"
#: The cause of the alert that a verdict for people is no longer true.
OVER = "over"

_CLEARS = frozenset({Outcome.RESOLVED, Outcome.RECOVERED, RECOVERED_LATER, OVER})


def addressees(alerts: Alerts, message: AlertMessage) -> dict[str, SecretRef]:
    """Whom the fleet tells of a message: a good end goes to those too who were paged before."""
    told = targets(alerts, message.severity)
    if message.action is AlertAction.RESOLVE and message.paged:
        return {**told, **targets(alerts, Severity.PAGE)}
    return told


def targets(alerts: Alerts, severity: Severity) -> dict[str, SecretRef]:
    """Whom the fleet tells, each by a name that is no secret.

    A service has the name of its reference: it stays the same when the list is put in another
    order, so that no try goes to somebody who has the alert.
    """
    named = alerts.notice if severity is Severity.NOTICE else alerts.page or alerts.notice
    services = {_name(ref): ref for ref in named}
    return {WEBHOOK: alerts.webhook, **services} if alerts.webhook is not None else services


def action(cause: str, *, told: bool) -> AlertAction:
    """What the alert does; ``told`` says whether people have heard of this incident before."""
    if cause in _CLEARS:
        return AlertAction.RESOLVE
    return AlertAction.UPDATE if told else AlertAction.TRIGGER


def _name(ref: SecretRef) -> str:
    return f"env {ref.env}" if ref.env is not None else f"file {ref.file}"
