"""One short request to an engine, and readings beside it: given up when others' work moves."""

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import timedelta

from activities.answers import BadAnswer
from activities.engine_http import Broken, Unreachable
from activities.engine_pages import EnginePages
from activities.engine_questions import Question, Questions
from fleet.contracts.engine import AskRequest
from fleet.engines.answers import first_line, of_request
from fleet.engines.asking import Watched, checked, concluded, left_of, rank, whom, with_answer
from fleet.engines.place import EnginePlace
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.engines.windows import longest_window
from fleet.readings import Reading

#: Tells a data-parallel vLLM which of its engines is meant.
_RANK_HEADER = "X-data-parallel-rank"
_RARELY, _OFTEN = timedelta(seconds=5), timedelta(milliseconds=200)

#: All of one question, within what ``ask/<server>`` allows.
_LONGEST = timedelta(minutes=14)


@dataclass(frozen=True)
class _Asking:
    """What is asked of whom, and what its page showed before."""

    server: str
    source: EnginePlace
    before: EngineReading
    question: Question

    @property
    def deadline(self) -> timedelta:
        """No shorter than its witnesses may stand still while it works."""
        if self.before.page is not Page.OK:
            return self.source.deadline
        return max(self.source.deadline, longest_window(self.before))


class EngineRequests:
    """Asks engines, and reads their pages meanwhile."""

    def __init__(self, pages: EnginePages) -> None:
        self._pages = pages
        self._questions = Questions(pages)

    async def ask(self, server: str, source: EnginePlace, request: AskRequest) -> Reading:
        """The last reading, with what the request came to; without, where none is to be sent."""
        reading = await self._pages.look(server, source, source.timeout)
        is_known = reading.engine is not None and self._questions.are_known(source, reading.engine)
        engines = whom(reading, request, probes=source.probe and is_known)
        if isinstance(engines, Reading):
            return engines
        assert reading.engine is not None
        question = await self._questions.prepare(source, reading.engine)
        if isinstance(question, Answer):
            return with_answer(reading, question)
        return await self._ask_each(_Asking(server, source, reading.engine, question), engines)

    async def _ask_each(self, asking: _Asking, engines: tuple[EngineState, ...]) -> Reading:
        """One engine after the other, until one does not answer."""
        sent = 0
        while True:
            engine, *others = engines
            watched = Watched(asking.before, engine)
            answer = await self._ask_one(asking, engine, watched)
            sent += 1
            reading = await self._look(asking)
            watched.saw(reading)
            answer = checked(answer, reading, asking.before, engine)
            engines = left_of(tuple(others), asking.before, reading)
            if answer.came is not Came.GIVEN or not engines:
                answer = replace(answer, sent=sent)
                return concluded(reading, watched, answer)

    async def _look(self, asking: _Asking) -> Reading:
        return await self._pages.look(asking.server, asking.source, asking.source.timeout)

    async def _ask_one(self, asking: _Asking, engine: EngineState, watched: Watched) -> Answer:
        name = rank(asking.before, engine)
        sending = asyncio.create_task(self._send(asking, name))
        watching = asyncio.create_task(self._watch(asking, watched))
        began = time.monotonic()
        try:
            await self._wait(asking, sending, watching, watched)
            took = round(time.monotonic() - began, 2)
            if sending.done():
                return replace(sending.result(), took=took, rank=name)
            came = Came.MOVED if watched.others_moved else Came.NONE
            return Answer(came=came, took=took, rank=name)
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)

    async def _wait(
        self,
        asking: _Asking,
        sending: asyncio.Task[Answer],
        watching: asyncio.Task[None],
        watched: Watched,
    ) -> None:
        """Until the answer, or others' movement, or the deadline; past it once, where one movement
        was seen that may be the request's own step or the first of a slow engine's.
        """
        deadline = asking.deadline
        for span in (deadline, min(deadline, _LONGEST - deadline)):
            await asyncio.wait(
                {sending, watching},
                timeout=max(span.total_seconds(), 0),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if sending.done() or watching.done() or not watched.may_be_own:
                return

    async def _watch(self, asking: _Asking, watched: Watched) -> None:
        """Return when work moves that is not the request's own."""
        if asking.before.page is not Page.OK:
            await asyncio.Event().wait()
        every = min(_RARELY, max(_OFTEN, asking.deadline / 6)).total_seconds()
        while not watched.others_moved:
            await asyncio.sleep(every)
            watched.saw(await self._look(asking))

    async def _send(self, asking: _Asking, name: str) -> Answer:
        question = asking.question
        more = {_RANK_HEADER: name} if name.isdecimal() else {}
        try:
            got = await self._pages.post(asking.source, question.path, question.body, more)
        except BadAnswer as problem:
            return Answer(came=Came.REFUSED, detail=str(problem)[:200])
        except (Unreachable, Broken) as problem:
            return Answer(came=Came.FAILED, detail=str(problem)[:200])
        return of_request(got.status, first_line(got.body))
