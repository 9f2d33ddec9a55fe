"""Engines' metrics pages: one GET each, whatever comes back, in the small form that is judged."""

import asyncio
from datetime import UTC, datetime, timedelta
from urllib.parse import urljoin, urlsplit

import httpx

from activities.answers import BadAnswer
from activities.secrets import SecretError, resolve
from activities.web import is_distrust, new_client, why
from fleet.durations import show
from fleet.engine_sources import EngineSource
from fleet.engines.page import read_page
from fleet.engines.profile import Profile
from fleet.engines.profiles import PROFILES
from fleet.engines.reading import EngineReading, Page
from fleet.readings import Reading, ReadStatus

#: Real pages have up to 200 KB, and with many models some MB; a larger one is not read on.
LARGEST_PAGE = 16 * 1024 * 1024

_STATUS = {Page.OK: ReadStatus.OK, Page.BARE: ReadStatus.OK, Page.REFUSED: ReadStatus.MISSING}


class EnginePages:
    """Reads engines' pages. Connections aren't kept, and nothing here sends an engine any work."""

    def __init__(self) -> None:
        self.client = new_client(trust_env=False)

    async def look(self, server: str, source: EngineSource, limit: timedelta) -> Reading:
        """One look, within ``limit``. What went wrong is in the reading; nothing is raised."""
        profile = PROFILES[source.kind]
        try:
            async with asyncio.timeout(limit.total_seconds()):
                engine, detail = await self._get(source, profile)
        except TimeoutError:
            engine = EngineReading(profile=profile.name, page=Page.SLOW)
            detail = f"{place(source)} gave no metrics within {show(limit)}"
        except BadAnswer as problem:
            engine, detail = EngineReading(profile=profile.name, page=Page.UNREADABLE), str(problem)
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            engine, detail = _failed(source, profile, problem)
        return Reading(
            server=server,
            at=datetime.now(UTC),
            status=_STATUS.get(engine.page, ReadStatus.UNREADABLE),
            detail=detail[:300],
            engine=engine,
        )

    async def close(self) -> None:
        await self.client.aclose()

    async def _get(self, source: EngineSource, profile: Profile) -> tuple[EngineReading, str]:
        url = source.metrics_url or f"{source.url}{profile.path}"
        moved = await self._try(source, url, profile)
        if isinstance(moved, str):
            # Some versions serve the page at /metrics/ and point there.
            moved = await self._try(source, moved, profile)
        if isinstance(moved, str):
            raise BadAnswer(f"{place(source)} redirects its metrics in a circle")
        return moved

    async def _try(
        self, source: EngineSource, url: str, profile: Profile
    ) -> tuple[EngineReading, str] | str:
        """The page, or the address with a slash more to which the server points."""
        async with self.client.stream("GET", url, headers=headers(source)) as response:
            if response.is_redirect:
                return _with_slash(url, response, source)
            if response.status_code != httpx.codes.OK:
                return await _refusal(response, source, profile)
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise BadAnswer(f"{place(source)} compresses its page, though asked not to")
            page = await _bounded(response, source)
        return read_page(page, profile)


def place(source: EngineSource) -> str:
    """Host and port, as they may be shown."""
    return urlsplit(source.url).netloc.rpartition("@")[2]


def headers(source: EngineSource) -> dict[str, str]:
    """What every request carries.

    Raises:
        BadAnswer: the API key can't be resolved or sent.
    """
    sent = {"Accept-Encoding": "identity"}
    if source.api_key is not None:
        try:
            sent["Authorization"] = f"Bearer {resolve(source.api_key)}".encode().decode("ascii")
        except SecretError as problem:
            raise BadAnswer(f"source.api_key: {problem}") from None
        except UnicodeDecodeError:
            raise BadAnswer(
                "source.api_key: the secret has characters that HTTP can't send"
            ) from None
    return sent


async def first_line(response: httpx.Response) -> str:
    """The first line of a body that says what went wrong, cut short."""
    body = b""
    async for chunk in response.aiter_raw(2048):
        body += chunk
        if len(body) >= 2048:
            break
    text = body.decode(errors="replace").strip()
    return text.splitlines()[0][:150] if text else ""


def _with_slash(url: str, response: httpx.Response, source: EngineSource) -> str:
    to = urljoin(url, str(response.headers.get("Location", "")))
    if to != f"{url}/":
        raise BadAnswer(f"{place(source)} redirects its metrics: name the final base URL")
    return to


async def _refusal(
    response: httpx.Response, source: EngineSource, profile: Profile
) -> tuple[EngineReading, str]:
    status, said = response.status_code, await first_line(response)
    text = f"{place(source)} answers {status} for its metrics" + (f": {said}" if said else "")
    if status == httpx.codes.SERVICE_UNAVAILABLE:
        return EngineReading(profile=profile.name, page=Page.UNAVAILABLE), text
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise BadAnswer(f"{text}: it lives, and asks for source.api_key")
    if status in (httpx.codes.NOT_FOUND, httpx.codes.NOT_IMPLEMENTED):
        raise BadAnswer(f"{text}: is source.url the base URL of a {profile.name} server?")
    if response.is_server_error:
        return EngineReading(profile=profile.name, page=Page.FAILING), text
    raise BadAnswer(text)


async def _bounded(response: httpx.Response, source: EngineSource) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > LARGEST_PAGE:
            raise BadAnswer(f"{place(source)} has a page of over {LARGEST_PAGE // 1024**2} MiB")
    return bytes(body)


def _failed(
    source: EngineSource, profile: Profile, problem: httpx.HTTPError | httpx.InvalidURL
) -> tuple[EngineReading, str]:
    """Whether nothing is there, or something that could not be understood."""
    page, text = Page.UNREADABLE, f"{place(source)}: {why(problem)}"
    if isinstance(problem, httpx.TransportError) and not is_distrust(problem):
        page = Page.REFUSED if isinstance(problem, httpx.ConnectError) else Page.SLOW
    return EngineReading(profile=profile.name, page=page), text
