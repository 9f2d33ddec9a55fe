"""One look at an engine server: its metrics page, or where it has none, the list of its models.

Whatever comes back, it becomes the small form that is judged. No look sends any work, and nothing
is imported that `steady check` would have to wait for.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from activities.answers import BadAnswer
from activities.engine_http import Broken, Got, Place, Unreachable, decoded, exchange
from activities.secrets import SecretError, resolve
from fleet.durations import show
from fleet.engines.answers import first_line, of_balancer, of_page
from fleet.engines.models import Models, lists
from fleet.engines.page import read_page
from fleet.engines.place import EnginePlace, reaches
from fleet.engines.profile import Profile
from fleet.engines.profiles import PROFILES, recognise
from fleet.engines.reading import EngineReading, EngineState, Page
from fleet.engines.requests import tells_its_death
from fleet.readings import Reading, ReadStatus

#: Real pages have up to 200 KB, and with many models some MB; a larger one is not read on.
LARGEST_PAGE = 16 * 1024 * 1024
_LARGEST_ANSWER = 1024 * 1024

_STATUS = {
    **dict.fromkeys((Page.OK, Page.BARE, Page.LISTED, Page.ALIVE, Page.DIED), ReadStatus.OK),
    Page.REFUSED: ReadStatus.MISSING,
}
_ASLEEP = (EngineState(asleep=True),)

#: What was found, and in words what is wrong with it or what it says.
_Found = tuple[EngineReading, str]


class EnginePages:
    """Reads engines' pages. Connections aren't kept."""

    async def look(self, server: str, source: EnginePlace, limit: timedelta) -> Reading:
        """One look, within ``limit``. What went wrong is in the reading; nothing is raised."""
        profile = PROFILES[source.kind]
        try:
            async with asyncio.timeout(limit.total_seconds()):
                engine, detail = await self._look(source, profile)
        except TimeoutError:
            detail = f"{place(source)} gave no {_what(source, profile)} within {show(limit)}"
            engine = EngineReading(profile=profile.name, page=Page.SLOW)
        except BadAnswer as problem:
            detail = f"{place(source)}: {problem}"
            engine = EngineReading(profile=profile.name, page=Page.UNREADABLE)
        except (Unreachable, Broken) as problem:
            page = Page.REFUSED if isinstance(problem, Unreachable) else Page.SLOW
            detail = f"{place(source)}: {problem}"
            engine = EngineReading(profile=profile.name, page=page)
        return Reading(
            server=server,
            at=datetime.now(UTC),
            status=_STATUS.get(engine.page, ReadStatus.UNREADABLE),
            detail=detail[:300],
            engine=engine,
        )

    async def get(self, source: EnginePlace, path: str, largest: int = _LARGEST_ANSWER) -> Got:
        """One small page under the base URL. Raises as ``exchange`` does."""
        return await _get(source, f"{source.url}{path}", largest)

    async def post(
        self, source: EnginePlace, path: str, body: dict[str, Any], more: dict[str, str]
    ) -> Got:
        """Send a request for work, and wait for all of its answer, for as long as it takes."""
        return await exchange(
            _place(source),
            f"{source.url}{path}",
            {**headers(source), **more},
            largest=_LARGEST_ANSWER,
            body=json.dumps(body).encode(),
        )

    async def json(self, source: EnginePlace, path: str) -> Any:
        """What a small page says; none where there is no such page, or it can't be understood."""
        with suppress(Unreachable, Broken, BadAnswer, ValueError, TimeoutError, RecursionError):
            async with asyncio.timeout(source.timeout.total_seconds()):
                got = await self.get(source, path)
            if got.status == 200 and not got.cut:
                return json.loads(decoded(got, _LARGEST_ANSWER))
        return None

    async def models(self, source: EnginePlace, engine: str) -> Models | None:
        """Its models, from the first page that tells which are loaded, else from the last."""
        found = None
        for path, understood in lists(engine):
            found = understood(await self.json(source, path)) or found
            if found is not None and found.loaded is not None:
                break
        return found

    async def death(self, source: EnginePlace) -> str:
        """In words that ``/health`` says that the engine died; a good word of it means nothing.

        Only of engines whose ``/health`` is no more than that flag: of others it sends work.
        """
        with suppress(Unreachable, Broken, BadAnswer, TimeoutError):
            async with asyncio.timeout(source.timeout.total_seconds()):
                got = await self.get(source, "/health")
            if got.status in (500, 503):
                return f"{place(source)} answers {_status(got)} for /health: its engine died"
        return ""

    async def _look(self, source: EnginePlace, profile: Profile) -> _Found:
        if source.balancer:
            return await self._balancer(source, profile)
        if not profile.metrics:
            return await self._listed(source, profile, "it has no counters")
        if await self._is_put_away(source, profile):
            engine = EngineReading(profile=profile.name, page=Page.LISTED, engines=_ASLEEP)
            return engine, "its model is put away, and a look at its metrics would load it"
        url = source.metrics_url or f"{source.url}{profile.path}"
        got = await _page(source, url)
        page = of_page(got.status)
        if page is Page.BARE:
            return await self._without_page(source, profile, got)
        if page is not Page.OK:
            return _refused(source, profile, got, "its metrics", page)
        return await self._read(source, profile, got)

    async def _is_put_away(self, source: EnginePlace, profile: Profile) -> bool:
        if profile.asleep_at is None:
            return False
        path, key = profile.asleep_at
        said = await self.json(source, path)
        return isinstance(said, dict) and said.get(key) is True

    async def _read(self, source: EnginePlace, profile: Profile, got: Got) -> _Found:
        body = decoded(got, LARGEST_PAGE)
        engine, said = read_page(body, profile, _start(got, profile))
        if engine.named is not None:
            engine = replace(engine, named=reaches(source, engine.named))
        if engine.page is not Page.BARE or not source.probe or recognise(body) is not None:
            return engine, said
        if tells_its_death(profile.name) and (died := await self.death(source)):
            return EngineReading(profile=profile.name, page=Page.DIED), died
        return replace(engine, page=Page.LISTED), said

    async def _without_page(self, source: EnginePlace, profile: Profile, got: Got) -> _Found:
        """Where it says that there is no such page: switched off, a router, or another server."""
        wrong = f"{place(source)} answers {_status(got)} for its metrics"
        if source.metrics_url is None:
            models = await self.models(source, profile.name)
            if models is not None and source.model in (models.loaded or ()):
                assert source.model is not None
                query = f"?model={quote(source.model, safe='')}&autoload=false"
                again = await _page(source, f"{source.url}{profile.path}{query}")
                if again.status == 200:
                    return await self._read(source, profile, again)
            if models is not None:
                return _of_models(source, profile, models, wrong)
        remedy = f"is source.url the base URL of a {profile.name} server?"
        if source.metrics_url is not None:
            remedy = "is source.metrics_url the page's?"
        raise BadAnswer(f"{wrong}: {remedy}".removeprefix(f"{place(source)} "))

    async def _listed(self, source: EnginePlace, profile: Profile, why: str) -> _Found:
        path, understood = lists(profile.name)[-1]
        got = await self.get(source, path)
        page = of_page(got.status)
        if page is Page.BARE:
            raise BadAnswer(
                f"answers {_status(got)} for {path}: is source.url the base URL of a server of kind"
                f" {profile.name}?"
            )
        if page is not Page.OK:
            return _refused(source, profile, got, path, page)
        models = understood(_parsed(got, path))
        if models is None:
            raise BadAnswer(f"{path} lists no models")
        return _of_models(source, profile, models, why)

    async def _balancer(self, source: EnginePlace, profile: Profile) -> _Found:
        got = await self.get(source, "/v1/models")
        page = of_balancer(got.status)
        if page is not Page.ALIVE:
            return _refused(source, profile, got, "/v1/models", page)
        said = f"a load balancer that answers {got.status} for /v1/models"
        return EngineReading(profile=profile.name, page=page), said


def place(source: EnginePlace) -> str:
    """Host and port or the socket, as they may be shown."""
    return source.socket or urlsplit(source.url).netloc.rpartition("@")[2]


def headers(source: EnginePlace) -> dict[str, str]:
    """What every request carries.

    Raises:
        BadAnswer: the API key can't be resolved or sent.
    """
    if source.api_key is None:
        return {}
    try:
        key = resolve(source.api_key)
    except SecretError as problem:
        raise BadAnswer(f"source.api_key: {problem}") from None
    if not key.isascii():
        raise BadAnswer("source.api_key: the secret has characters that HTTP can't send")
    return {"Authorization": f"Bearer {key}"}


def _place(source: EnginePlace) -> Place:
    return Place(socket=source.socket, ca=source.ca)


async def _get(source: EnginePlace, url: str, largest: int) -> Got:
    return await exchange(_place(source), url, headers(source), largest=largest)


async def _page(source: EnginePlace, url: str) -> Got:
    """The metrics page; some versions serve it with a slash more, and point there."""
    got = await _get(source, url, LARGEST_PAGE)
    if 300 <= got.status < 400:
        head, query, rest = url.partition("?")
        slashed = f"{head}/{query}{rest}"
        if urljoin(url, got.headers.get("location", "")) != slashed:
            raise BadAnswer("redirects its metrics: name the final base URL")
        got = await _get(source, slashed, LARGEST_PAGE)
        if 300 <= got.status < 400:
            raise BadAnswer("redirects its metrics in a circle")
    if got.cut:
        raise BadAnswer(f"has a page of over {LARGEST_PAGE // 1024**2} MiB")
    return got


def _start(got: Got, profile: Profile) -> str | None:
    return got.headers.get(profile.start_header.lower()) if profile.start_header else None


def _what(source: EnginePlace, profile: Profile) -> str:
    return "metrics" if profile.metrics and not source.balancer else "list of its models"


def _status(got: Got) -> str:
    said = first_line(got.body)
    return f"{got.status}" + (f" ({said})" if said else "")


def _refused(source: EnginePlace, profile: Profile, got: Got, what: str, page: Page) -> _Found:
    text = f"answers {_status(got)} for {what}"
    if page is not Page.UNREADABLE:
        return EngineReading(profile=profile.name, page=page), f"{place(source)} {text}"
    if got.status in (401, 403):
        raise BadAnswer(f"{text}: it lives, and asks for source.api_key")
    if 300 <= got.status < 400:
        raise BadAnswer(f"redirects {what}: name the final base URL")
    raise BadAnswer(text)


def _parsed(got: Got, path: str) -> Any:
    try:
        return json.loads(decoded(got, _LARGEST_ANSWER))
    except (ValueError, RecursionError):
        raise BadAnswer(f"what it says at {path} is no JSON") from None


def _of_models(source: EnginePlace, profile: Profile, models: Models, why: str) -> _Found:
    if models.none_is_loaded:
        engine = EngineReading(profile=profile.name, page=Page.LISTED, engines=_ASLEEP)
        return engine, f"no model is loaded ({why})"
    named = models.loaded if models.loaded is not None else models.names
    many = f"{len(named)} models" if len(named) != 1 else "one model"
    said = f"lists {many}{' loaded' if models.loaded is not None else ''}; {why}"
    page = Page.LISTED if source.probe else Page.BARE
    return EngineReading(profile=profile.name, page=page), said
