"""One engine, checked from here: the readings and the request of a sweep and a remediation, without
either. Imports what a check needs and no more, since a health check starts anew every time.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.engine_http import Got
from activities.engine_pages import EnginePages, place
from activities.engine_requests import EngineRequests
from fleet.contracts.engine import AskRequest
from fleet.durations import brief, show
from fleet.engines.checking import Checked, check
from fleet.engines.place import EnginePlace
from fleet.engines.proving import Ask, Pause, Step
from fleet.engines.reading import EngineReading, Page
from fleet.patience import Patience
from fleet.readings import Reading
from fleet.verdicts import Verdict
from worker.check_options import in_flags
from worker.check_report import Report, moved

#: Says what is waited for, for whoever watches.
Tell = Callable[[str], None]


class CountedPages(EnginePages):
    """Counts requests and looks, those during a request too, and keeps which witnesses moved."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = self.sent = 0
        self.moved: dict[str, set[str]] = {}
        self.last: EngineReading | None = None

    async def look(self, server: str, source: EnginePlace, limit: timedelta) -> Reading:
        reading = await super().look(server, source, limit)
        self.readings += 1
        engine = reading.engine
        if engine is not None and engine.page is Page.OK:
            for label, names in moved(self.last, engine).items():
                self.moved.setdefault(label, set()).update(names)
            self.last = engine
        return reading

    async def post(
        self, source: EnginePlace, path: str, body: dict[str, Any], more: dict[str, str]
    ) -> Got:
        self.sent += 1
        return await super().post(source, path, body, more)


class Checker:
    """Checks one engine, once. ``ask``: whether it may be sent a request at all."""

    def __init__(self, source: EnginePlace, policy: Patience, tell: Tell, *, ask: bool) -> None:
        self._source, self._policy, self._tell, self._ask = source, policy, tell, ask
        self._pages = CountedPages()
        self._requests = EngineRequests(self._pages)
        self._doing = ""

    async def run(self, limit: timedelta | None = None) -> Report:
        """Within ``limit``, where there is one: then it is unproven, whatever was seen so far."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(limit.total_seconds() if limit is not None else None):
                checked = await self._follow()
        except TimeoutError:
            checked = self._unfinished(show(limit or timedelta(0)))
        return Report(
            verdict=checked.verdict,
            why=in_flags(checked.why),
            engine=checked.reading.engine,
            moved={label: sorted(names) for label, names in self._pages.moved.items()},
            requests_sent=self._pages.sent,
            readings=self._pages.readings,
            seconds=time.monotonic() - began,
        )

    def _unfinished(self, limit: str) -> Checked:
        why = f"not done within {limit} ({self._doing})"
        seen = self._pages.last or EngineReading(profile=self._source.kind, page=Page.SLOW)
        reading = Reading(server=place(self._source), at=datetime.now(UTC), engine=seen)
        return Checked(Verdict.UNPROVEN, why, reading)

    async def _follow(self) -> Checked:
        story, came = check(self._policy), None
        while True:
            try:
                step = story.send(came)
            except StopIteration as end:
                checked: Checked = end.value
                return checked
            came = await self._do(step)

    async def _do(self, step: Step) -> Reading | None:
        if isinstance(step, Pause):
            self._now(f"waiting {show(step.span)}: does a witness of progress move?")
            await asyncio.sleep(step.span.total_seconds())
            return None
        if isinstance(step, Ask):
            return await self._asked(step) if self._ask else None
        self._now("reading its page")
        return await self._pages.look(place(self._source), self._source, self._source.timeout)

    def _now(self, doing: str) -> None:
        self._doing = doing
        self._tell(doing)

    async def _asked(self, step: Ask) -> Reading:
        at_most = brief(self._source.deadline)
        self._now(f"asking for a short answer, at most {at_most}; its page is read meanwhile")
        request = AskRequest(
            server=place(self._source),
            since=self._pages.last,
            suspected=step.suspected,
            ranks=step.ranks,
        )
        return await self._requests.ask(place(self._source), self._source, request)
