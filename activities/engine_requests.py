"""One short request to an engine, with readings beside it. It is given up when a witness moves."""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from activities.answers import BadAnswer
from activities.engine_pages import EnginePages, first_line, headers
from activities.web import why
from fleet.contracts.engine import AskRequest
from fleet.engine_sources import EngineSource
from fleet.engines.asking import checked, concluded, has_moved, whom, with_answer
from fleet.engines.asking import rank as name_of
from fleet.engines.reading import Answer, Came, EngineReading, EngineState
from fleet.readings import Reading

#: Tells a data-parallel vLLM which of its engines is meant.
_RANK_HEADER = "X-data-parallel-rank"
_LARGEST_ANSWER = 1024 * 1024
_RARELY, _OFTEN = timedelta(seconds=5), timedelta(milliseconds=200)

_BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": ("/v1/completions", {"prompt": "Hi", "max_tokens": 1}),
    "chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    ),
    "embedding": ("/v1/embeddings", {"input": "Hi"}),
}
#: Only there where vLLM runs in its development mode, which alone can pause or put to sleep.
_FLAGS = (("/is_paused", "is_paused"), ("/is_sleeping", "is_sleeping"))


@dataclass(frozen=True)
class Question:
    """What is asked of whom: ``engines`` are the ones that are meant, one request each."""

    source: EngineSource
    server: str
    before: EngineReading
    engines: tuple[EngineState, ...]
    model: str


class EngineRequests:
    """Asks engines, and reads their pages meanwhile."""

    def __init__(self, pages: EnginePages) -> None:
        self._pages = pages

    async def ask(self, server: str, source: EngineSource, request: AskRequest) -> Reading:
        """The last reading, with what the request came to; without, where none is to be sent."""
        reading = await self._look(server, source)
        engines = whom(reading, request, probes=source.probe)
        if isinstance(engines, Reading):
            return engines
        return await self._ask_all(reading, source, engines)

    async def _ask_all(
        self, reading: Reading, source: EngineSource, engines: tuple[EngineState, ...]
    ) -> Reading:
        assert reading.engine is not None
        if (said := await self._not_to_be_asked(source)) is not None:
            return with_answer(reading, said)
        model = source.model or await self._first_model(source)
        if isinstance(model, Answer):
            return with_answer(reading, model)
        question = Question(source, reading.server, reading.engine, engines, model)
        return await self._ask_each(question, reading)

    async def _look(self, server: str, source: EngineSource) -> Reading:
        return await self._pages.look(server, source, source.timeout)

    async def _ask_each(self, question: Question, reading: Reading) -> Reading:
        """One engine after the other, until one does not answer."""
        answer = Answer(came=Came.GIVEN)
        for sent, engine in enumerate(question.engines, start=1):
            answer = (await self._ask_one(question, engine)).model_copy(update={"sent": sent})
            reading = await self._look(question.server, question.source)
            answer = checked(answer, reading, question.before, engine)
            if answer.came is not Came.GIVEN:
                break
        return concluded(reading, question.before, question.engines, answer)

    async def _ask_one(self, question: Question, engine: EngineState) -> Answer:
        rank = name_of(question.before, engine)
        sending = asyncio.create_task(self._send(question, rank))
        watching = asyncio.create_task(self._watch(question, engine))
        began, deadline = time.monotonic(), question.source.deadline.total_seconds()
        try:
            await asyncio.wait(
                {sending, watching}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED
            )
            took = time.monotonic() - began
            if sending.done():
                return sending.result().model_copy(update={"took": round(took, 2), "rank": rank})
            came = Came.MOVED if watching.done() else Came.NONE
            return Answer(came=came, took=round(took, 2), rank=rank)
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)

    async def _watch(self, question: Question, engine: EngineState) -> None:
        """Return when the engine moves."""
        every = min(_RARELY, max(_OFTEN, question.source.deadline / 6)).total_seconds()
        while True:
            await asyncio.sleep(every)
            reading = await self._look(question.server, question.source)
            if has_moved(reading, question.before, engine):
                return

    async def _send(self, question: Question, rank: str) -> Answer:
        path, body = _BODIES[question.source.request]
        to = {_RANK_HEADER: rank} if rank.isdecimal() else {}
        return await self._exchange(question.source, path, {"model": question.model, **body}, to)

    async def _exchange(
        self, source: EngineSource, path: str, body: dict[str, Any], to: dict[str, str]
    ) -> Answer:
        """Any 200 counts, also one without text: it is the engine that was asked, not the model."""
        try:
            sent = {**headers(source), **to}
            url = f"{source.url}{path}"
            async with self._pages.client.stream(
                "POST", url, json=body, headers=sent, timeout=None
            ) as answer:
                said = "" if answer.is_success else await first_line(answer)
        except BadAnswer as problem:
            return Answer(came=Came.REFUSED, detail=str(problem)[:200])
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            return Answer(came=Came.FAILED, detail=why(problem)[:200])
        return _by_status(answer.status_code, said)

    async def _not_to_be_asked(self, source: EngineSource) -> Answer | None:
        """Whether somebody paused it or put it to sleep: a request would hang, or crash it."""
        for path, key in _FLAGS:
            said = await self._json(source, path)
            if isinstance(said, dict) and said.get(key) is True:
                return Answer(came=Came.ASLEEP, detail=f"{path} says true")
        return None

    async def _first_model(self, source: EngineSource) -> str | Answer:
        said = await self._json(source, "/v1/models")
        try:
            model = str(said["data"][0]["id"])
        except (TypeError, LookupError):
            why_not = "/v1/models names no model: set source.model"
            return Answer(came=Came.REFUSED, detail=why_not)
        return model

    async def _json(self, source: EngineSource, path: str) -> Any:
        """What a page says; none where there is no such page, or it can't be understood."""
        with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError, BadAnswer):
            async with asyncio.timeout(source.timeout.total_seconds()):
                return await self._get(source, path)
        return None

    async def _get(self, source: EngineSource, path: str) -> Any:
        body = b""
        url = f"{source.url}{path}"
        async with self._pages.client.stream("GET", url, headers=headers(source)) as answer:
            if answer.status_code != httpx.codes.OK:
                return None
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > _LARGEST_ANSWER:
                    return None
        return json.loads(body)


def _by_status(status: int, said: str) -> Answer:
    detail = f"{status}" + (f", {said}" if said else "")
    if status < httpx.codes.MULTIPLE_CHOICES:
        return Answer(came=Came.GIVEN)
    if status == httpx.codes.TOO_MANY_REQUESTS or _is_overload(status, said):
        return Answer(came=Came.BUSY, detail=detail[:200])
    came = Came.FAILED if status >= httpx.codes.INTERNAL_SERVER_ERROR else Came.REFUSED
    return Answer(came=came, detail=detail[:200])


def _is_overload(status: int, said: str) -> bool:
    return status == httpx.codes.SERVICE_UNAVAILABLE and "overload" in said.lower()
