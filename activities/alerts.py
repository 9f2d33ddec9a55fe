"""Alerts to people. Every URL is a secret: no error, result or log repeats one."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.pulse import pulse
from activities.secrets import SecretError, resolve
from activities.services import Services
from activities.undelivered import NotDelivered, Turns
from activities.webhooks import Webhook
from fleet.alerts import WEBHOOK, addressees
from fleet.config import SecretRef
from fleet.contracts.alerts import AlertMessage, AlertPlan, Delivered, Delivery
from fleet.contracts.fleet import AlertSettings
from fleet.contracts.names import drill_id
from fleet.webhooks import body, idempotency_key, words, workflow_link

#: ``ApplicationError.type`` of a delivery that failed and is tried again.
NOT_DELIVERED = "AlertNotDelivered"

#: A service may need several requests: a login, a look-up of its channel.
_PATIENCE = {True: timedelta(seconds=15), False: timedelta(seconds=25)}

_log = structlog.get_logger()


class AlertPolicies(Protocol):
    """The part of ``PolicyReader`` that alerts need."""

    async def alerts(self) -> AlertSettings: ...


class Incidents(Protocol):
    """The part of ``AlertHistory`` that alerts need."""

    async def incidents(self, server: str, present: str) -> int: ...

    async def is_drill(self, server: str, at: datetime) -> bool: ...


class AlertActivities:
    def __init__(self, policies: AlertPolicies, history: Incidents) -> None:
        self._policies, self._history = policies, history
        self._webhook, self._services, self._turns = Webhook(), Services(), Turns()

    @activity.defn
    async def plan_alert(self, message: AlertMessage) -> AlertPlan:
        """Whom the fleet tells now. Where that is nobody, the alert stands in the log at least."""
        async with pulse():
            settings = await self._policies.alerts()
            incidents = await self._history.incidents(message.server, message.incident)
            at = message.raised_at or datetime.now(UTC)
            # The drill's own messages say what they are.
            of_a_drill = message.workflow_id == drill_id(message.server)
            drill = not of_a_drill and await self._history.is_drill(message.server, at)
        named = list(addressees(settings.alerts, message))
        if not named:
            said = body(Delivery(message=message, target=""), settings, None)
            _log.warning("an alert has nowhere to go", **said)
        return AlertPlan(targets=named, incidents=incidents, drill=drill)

    @activity.defn
    async def deliver(self, order: Delivery) -> Delivered:
        """Tell one target, at the place that the fleet names now.

        Every failure is tried again, a 4xx too: whoever mends the secret mends the alert. It is
        logged as an error each time, as a wrong URL would else lose alerts in silence.

        Raises:
            ApplicationError: type ``AlertNotDelivered``; its detail is the attempt.
        """
        attempt = activity.info().attempt
        async with pulse():
            settings = await self._policies.alerts()
            ref = addressees(settings.alerts, order.message).get(order.target)
            if ref is None:
                why = "the fleet file no longer names it"
                return Delivered(
                    target=order.target, delivered=False, attempts=attempt, detail=why, gone=True
                )
            try:
                await self._tell(order, settings, ref)
            except NotDelivered as problem:
                raise _failed(order, problem) from None
        return Delivered(target=order.target, delivered=True, attempts=attempt)

    async def close(self) -> None:
        await self._webhook.close()
        self._services.close()

    async def _tell(self, order: Delivery, settings: AlertSettings, ref: SecretRef) -> None:
        called = "webhook" if order.target == WEBHOOK else "service"
        patience = _PATIENCE[order.target == WEBHOOK].total_seconds()
        async with self._turns.turn(order.target):
            try:
                async with asyncio.timeout(patience):
                    await self._send(order, settings, ref)
            except NotDelivered:
                raise
            except SecretError as problem:
                raise NotDelivered(f"alerts: {problem}", loud=True) from None
            except TimeoutError:
                raise NotDelivered(f"the {called} did not answer in {patience:.0f} s") from None
            except Exception as problem:  # noqa: BLE001 - whatever it is, its words may hold the URL
                kind = type(problem).__name__
                raise NotDelivered(f"the {called} can't be used ({kind})", loud=True) from None

    async def _send(self, order: Delivery, settings: AlertSettings, ref: SecretRef) -> None:
        info, message = activity.info(), order.message
        workflow = message.workflow_id or info.workflow_id or ""
        link = workflow_link(settings.temporal_ui, info.namespace, workflow)
        if order.target == WEBHOOK:
            content = body(order, settings, link)
            await self._webhook.post(resolve(ref), content, idempotency_key(message))
        else:
            await self._services.send(resolve(ref), words(order, settings, link))


def _failed(order: Delivery, problem: NotDelivered) -> ApplicationError:
    """The error to raise, said in the log too."""
    attempt, message = activity.info().attempt, order.message
    (_log.error if problem.loud else _log.warning)(
        "an alert was not delivered",
        server=message.server,
        incident=message.incident,
        cause=message.cause,
        target=order.target,
        attempt=attempt,
        why=problem.why,
    )
    return ApplicationError(
        problem.why, attempt, type=NOT_DELIVERED, next_retry_delay=problem.after
    )
