"""Alerts to people through a webhook. Its URL is a secret: no error, result or log repeats it."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Protocol

import httpx
import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.pulse import pulse
from activities.secrets import SecretError, resolve
from activities.web import new_client, why
from fleet.config import SecretRef
from fleet.contracts import AlertMessage, AlertResult, AlertSettings
from fleet.webhooks import body, idempotency_key, workflow_link

#: ``ApplicationError.type`` of a delivery that failed and is tried again.
NOT_DELIVERED = "AlertNotDelivered"

_PATIENCE = timedelta(seconds=15)
_LONGEST_WAIT = timedelta(minutes=15)
_BUSY = frozenset({408, 425, 429})

_log = structlog.get_logger()


class AlertPolicies(Protocol):
    """The part of ``PolicyReader`` that alerts need."""

    async def alerts(self) -> AlertSettings: ...


class AlertActivities:
    def __init__(self, policies: AlertPolicies) -> None:
        self._policies = policies
        self._client = new_client(trust_env=True)

    @activity.defn
    async def deliver(self, message: AlertMessage) -> AlertResult:
        """Post one alert to the webhook that the fleet names now; any 2xx is a delivery.

        Everything else is tried again, a 4xx too: whoever mends the secret mends the alert. It is
        logged as an error each time, as a wrong URL would else lose alerts in silence.

        Raises:
            ApplicationError: type ``AlertNotDelivered``; its detail is the attempt.
        """
        attempt = activity.info().attempt
        async with pulse():
            settings = await self._policies.alerts()
            if settings.alerts.webhook is None:
                _log.warning("an alert has no webhook to go to", **body(message, settings, None))
                return AlertResult(
                    delivered=False, attempts=attempt, detail="no webhook configured"
                )
            await self._post(message, settings, settings.alerts.webhook)
        return AlertResult(delivered=True, attempts=attempt)

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, message: AlertMessage, settings: AlertSettings, ref: SecretRef) -> None:
        info = activity.info()
        link = workflow_link(
            settings.temporal_ui, info.namespace, message.workflow_id or info.workflow_id or ""
        )
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                status, after = await self._send(
                    resolve(ref), body(message, settings, link), idempotency_key(message)
                )
        except SecretError as problem:
            raise _failed(message, f"alerts.webhook: {problem}", loud=True) from None
        except TimeoutError:
            raise _failed(message, "the webhook did not answer in 15 s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise _failed(message, f"the webhook can't be reached: {why(problem)}") from None
        except Exception as problem:  # noqa: BLE001 - whatever it is, its words may hold the URL
            kind = type(problem).__name__
            raise _failed(message, f"the webhook can't be used ({kind})", loud=True) from None
        if not httpx.codes.is_success(status):
            loud = status < 500 and status not in _BUSY
            raise _failed(message, f"the webhook answers {status}", loud=loud, after=after)

    async def _send(
        self, url: str, content: dict[str, str | None], key: str
    ) -> tuple[int, timedelta | None]:
        """Post; what the webhook has to say beyond its status is not read."""
        headers = {"Idempotency-Key": key}
        async with self._client.stream("POST", url, json=content, headers=headers) as response:
            return response.status_code, _retry_after(response)


def _retry_after(response: httpx.Response) -> timedelta | None:
    """The wait that the service asks for, in seconds or as a date; never over 15 minutes."""
    asked = response.headers.get("Retry-After", "")
    if asked.isascii() and asked.isdecimal():
        return min(timedelta(seconds=int(asked[:6])), _LONGEST_WAIT)
    try:
        wait = parsedate_to_datetime(asked) - datetime.now(UTC)
    except (ValueError, TypeError):
        return None
    return min(max(wait, timedelta(seconds=1)), _LONGEST_WAIT)


def _failed(
    message: AlertMessage, detail: str, *, loud: bool = False, after: timedelta | None = None
) -> ApplicationError:
    """The error to raise, said in the log too: ``loud`` where only a person can mend it."""
    attempt = activity.info().attempt
    (_log.error if loud else _log.warning)(
        "an alert was not delivered",
        server=message.server,
        incident=message.incident,
        cause=message.cause,
        attempt=attempt,
        why=detail,
    )
    return ApplicationError(detail, attempt, type=NOT_DELIVERED, next_retry_delay=after)
