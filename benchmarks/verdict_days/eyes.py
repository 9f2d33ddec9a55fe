"""How steady sees a simulated server: its pages through the real reader, its answers, the clock."""

from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from benchmarks.verdict_days.server import Refused, Slow
from benchmarks.verdict_days.world import World
from fleet.contracts.engine import AskRequest
from fleet.engine_sources import EngineSource
from fleet.engines.asking import (
    Watched,
    checked,
    concluded,
    has_moved,
    is_named,
    left_of,
    rank,
    whom,
    with_answer,
)
from fleet.engines.page import read_page
from fleet.engines.profiles import PROFILES
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.readings import Reading, ReadStatus

NAME = "server"
#: A name for the second zero of a day.
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_WATCH_EVERY = 5
_STATUS = {Page.OK: ReadStatus.OK, Page.BARE: ReadStatus.OK, Page.REFUSED: ReadStatus.MISSING}

#: Which profile reads the pages of a kind of engine, where it has another name.
_PROFILE = {"vllm-v0": "vllm"}

Asking = Generator[float, None, Reading | None]


def is_known(kind: str) -> bool:
    return _PROFILE.get(kind, kind) in PROFILES


class Eyes:
    """``asking`` is the lock that the workflow ``ask/<server>`` is: one request at a time."""

    def __init__(self, world: World) -> None:
        self._world, self._server = world, world.server
        self._profile = PROFILES[_PROFILE.get(world.server.build.kind, world.server.build.kind)]
        source = EngineSource(url="http://server.test")
        self._deadline = source.deadline.total_seconds()
        self._timeout = source.timeout.total_seconds()
        self.asking = False
        self.restarted_at: datetime | None = None
        self._shown, self._read = "", (self._unseen(Page.BARE), "")

    @property
    def now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self._world.now)

    def look(self) -> Reading:
        try:
            page = self._server.page(self._timeout)
        except Refused:
            engine, detail = self._unseen(Page.REFUSED), "connection refused"
        except Slow:
            engine, detail = self._unseen(Page.SLOW), "no page in time"
        else:
            if page is not self._shown:
                self._shown, self._read = page, read_page(page.encode(), self._profile)
            engine, detail = self._read
        status = _STATUS.get(engine.page, ReadStatus.UNREADABLE)
        return Reading(server=NAME, at=self.now, status=status, detail=detail, engine=engine)

    def ask(self, request: AskRequest) -> Asking:
        """The look after the request, or none where another one is under way."""
        if self.asking:
            return None
        self.asking = True
        try:
            return (yield from self._ask(request))
        finally:
            self.asking = False

    def _ask(self, request: AskRequest) -> Asking:
        reading = self.look()
        engines = whom(reading, request, probes=True)
        if isinstance(engines, Reading):
            return engines
        before = reading.engine
        assert before is not None
        if self._server.is_paused:
            return with_answer(reading, Answer(came=Came.ASLEEP, detail="/is_paused says true"))
        yield 0.05
        sent = 0
        while True:
            engine, *others = engines
            sent, watched = sent + 1, Watched(before, engine)
            self._count_if_moved(before, engine, sent)
            answer = yield from self._send(before, engine, watched)
            reading = self.look()
            watched.saw(reading)
            answer = checked(answer, reading, before, engine)
            engines = left_of(tuple(others), before, reading)
            if answer.came is not Came.GIVEN or not engines:
                return concluded(reading, watched, replace(answer, sent=sent))

    def _send(
        self, before: EngineReading, engine: EngineState, watched: Watched
    ) -> Generator[float, None, Answer]:
        name, began = rank(before, engine), self._world.now
        try:
            request = self._server.post(2, 1, int(name) if name.isdecimal() else None)
        except Refused:
            return Answer(came=Came.FAILED, detail="connection refused", rank=name)
        process = self._server.began_at
        while (took := self._world.now - began) < self._deadline * (1 + watched.may_be_own):
            yield 1.0
            if request.done_at is not None:
                return Answer(came=Came.GIVEN, took=round(took, 2), rank=name)
            if self._server.began_at != process:
                return Answer(came=Came.FAILED, detail="disconnected", rank=name)
            if round(took) % _WATCH_EVERY == 0:
                watched.saw(self.look())
            if watched.others_moved:
                self._server.hang_up(request)
                return Answer(came=Came.MOVED, took=round(took, 2), rank=name)
        self._server.hang_up(request)
        return Answer(came=Came.NONE, took=round(took, 2), rank=name)

    def _count_if_moved(self, before: EngineReading, engine: EngineState, sent: int) -> None:
        """Whether a request goes out although the engine had shown progress of others by then.

        Where names are passed over, one of this probe's own may have moved an idle engine before.
        """
        reading = self.look()
        is_idle = reading.engine is not None and not reading.engine.in_flight
        if sent > 1 and is_idle and not is_named(before):
            return
        self._server.truth.despite_progress += has_moved(reading, before, engine)

    def _unseen(self, page: Page) -> EngineReading:
        at = self.restarted_at if page is Page.REFUSED else None
        return EngineReading(profile=self._profile.name, page=page, restarted_at=at)
