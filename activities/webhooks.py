"""A webhook: one HTTP POST with JSON. Its URL is a secret: no error repeats it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx

from activities.undelivered import NotDelivered
from activities.web import new_client, why

_LONGEST_WAIT = timedelta(minutes=15)
_BUSY = frozenset({408, 425, 429})


class Webhook:
    def __init__(self) -> None:
        self._client = new_client(trust_env=True)

    async def post(self, url: str, content: Mapping[str, str | int | None], key: str) -> None:
        """Post; any 2xx is a delivery, and what it says beyond its status is not read.

        Raises:
            NotDelivered: it can't be reached, or answers otherwise.
        """
        try:
            headers = {"Idempotency-Key": key}
            async with self._client.stream("POST", url, json=content, headers=headers) as response:
                status, after = response.status_code, _retry_after(response)
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise NotDelivered(f"the webhook can't be reached: {why(problem)}") from None
        if not httpx.codes.is_success(status):
            raise NotDelivered(f"the webhook answers {status}", loud=is_wrong(status), after=after)

    async def close(self) -> None:
        await self._client.aclose()


def is_wrong(status: int) -> bool:
    """Whether a status speaks of the request, which no waiting mends."""
    return status < 500 and status not in _BUSY


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
