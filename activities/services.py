"""Chat, mail and paging services through apprise. Their URLs are secrets: nothing repeats them.

Apprise is imported where it is first needed: few fleets use it, and every command would wait.
"""

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import cache, partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from activities.undelivered import NotDelivered
from activities.webhooks import is_wrong
from fleet.contracts.alerts import AlertAction, Severity
from fleet.webhooks import Words

if TYPE_CHECKING:
    from apprise import AppriseAsset, NotifyBase, NotifyType

_MOST_THREADS = 64
#: Apprise's own 4 s make a slow answer a failure, and what had arrived would come again.
_READ_SECONDS = 10.0

#: How a URL names the key of an incident (empty here), and that a success is to resolve it.
_BY_DEDUP = {"dedup": "", "action": "map"}
_BY_ENTITY = {"entity_id": ""}
_KEYED = {
    **dict.fromkeys(("pagerduty", "incidentio", "pagertree", "signl4", "squadcast"), _BY_DEDUP),
    **dict.fromkeys(("splunk", "victorops"), _BY_ENTITY),
}

_statuses: ContextVar[list[int] | None] = ContextVar("statuses", default=None)


class Services:
    """Sends in threads of its own: a service that hangs takes none from apprise's other calls,
    whose pool is small, and none from the event loop, which looks up host names in its pool.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="alert")

    async def send(self, url: str, said: Words) -> None:
        """Tell one service. Where it has several recipients and one fails, all count as failed.

        Raises:
            NotDelivered: the service did not take it, or there is none for the URL.
        """
        statuses: list[int] = []
        _statuses.set(statuses)
        call = partial(copy_context().run, _send, url, said)
        if await asyncio.get_running_loop().run_in_executor(self._threads, call):
            return
        if statuses:
            loud = is_wrong(statuses[-1])
            raise NotDelivered(f"the service answers {statuses[-1]}", loud=loud)
        raise NotDelivered("the service can't be reached, or did not take it")

    def close(self) -> None:
        """Wait for no thread: each ends with its own time-outs."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def recipients(url: str) -> int | None:
    """How many a service URL reaches; none where apprise can't make sense of it."""
    service = _service(url)
    return max(len(service), 1) if service is not None else None


def _send(url: str, said: Words) -> bool:
    from apprise import NotifyFormat  # noqa: PLC0415

    service = _service(with_key(url, said.key))
    if service is None:
        raise NotDelivered("apprise can't make sense of its URL", loud=True)
    # What is declared as plain text is escaped, and with it Slack's way to mention: <!here>.
    body = "\n".join(said.lines)
    body = f"{said.mention} {body}" if said.mention else body
    is_slack = str(service.service_name) == "Slack"
    sent = service.notify(
        title=said.title,
        body=body,
        notify_type=_kind(said),
        body_format=None if is_slack else NotifyFormat.TEXT,
    )
    return bool(sent)


def with_key(url: str, key: str) -> str:
    """The URL of a service that keeps one incident a key, with this incident's; any other as it is.

    What the operator wrote into the URL stays: their own key, or an action for every message.
    """
    schema, _, rest = url.partition("://")
    names = _KEYED.get(schema.strip().lower())
    if names is None or not key:
        return url
    place, _, query = rest.partition("?")
    if names is _BY_ENTITY and "/" in place.rstrip("/"):
        return url
    given = {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    ours = {name: value or key for name, value in names.items() if name not in given}
    added = urlencode(ours, quote_via=quote)
    return f"{schema}://{place}?{'&'.join(part for part in (query, added) if part)}"


def _kind(said: Words) -> "NotifyType":
    from apprise import NotifyType  # noqa: PLC0415

    if said.action is AlertAction.RESOLVE:
        return NotifyType.SUCCESS
    return NotifyType.FAILURE if said.severity is Severity.PAGE else NotifyType.INFO


def _service(url: str) -> "NotifyBase | None":
    from apprise import Apprise  # noqa: PLC0415

    service = Apprise.instantiate(url, asset=_asset())
    if service is not None:
        service.socket_read_timeout = max(service.socket_read_timeout, _READ_SECONDS)
    return service


@cache
def _asset() -> "AppriseAsset":
    """Nothing is fetched from apprise's own addresses, and no redirect turns a POST into a GET."""
    from apprise import AppriseAsset  # noqa: PLC0415

    _silence()
    return AppriseAsset(
        app_id="steady",
        app_desc="steady",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        http_redirects=False,
        pem_autogen=False,
        pgp_autogen=False,
    )


_STATUS = re.compile(r"\berror=([1-5]\d\d)\b")


def _keep_status(record: logging.LogRecord) -> bool:
    """Apprise tells only its log why it failed, and its lines may hold a part of the URL."""
    found, statuses = _STATUS.search(record.getMessage()), _statuses.get()
    if found and statuses is not None:
        statuses.append(int(found[1]))
    return False


def _silence() -> None:
    logging.getLogger("apprise").addFilter(_keep_status)
    # It names paths, which hold the secrets of most services.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
