"""The checks that people use today, as they are shipped. Each may restart the server by itself.

After a restart each of them waits ten minutes, which is more than most do.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache

from benchmarks.verdict_days.kinds import IN_FLIGHT, OUTPUT, STEPS
from benchmarks.verdict_days.server import Refused, Slow, Unwell
from benchmarks.verdict_days.world import Process, World

GRACE = 600.0
_SCRAPE_EVERY, _SCRAPE_WITHIN = 30.0, 5.0
#: What ships with servers beside a liveness probe: a startup probe of 60 tries, 10 s apart.
_STARTUP = 600.0


@dataclass(frozen=True)
class Chat:
    """A short chat request; ``failures`` in a row without an answer in time restart the server."""

    every: float
    deadline: float
    failures: int

    def start(self, world: World) -> None:
        world.spawn(self._watch(world), self.every)

    def _watch(self, world: World) -> Process:
        failed = 0
        while True:
            began = world.now
            answered = yield from self._ask(world)
            failed = 0 if answered else failed + 1
            if failed >= self.failures:
                world.server.order_restart()
                failed = 0
                yield GRACE
            yield max(0.0, began + self.every - world.now)

    def _ask(self, world: World) -> Generator[float, None, bool]:
        server, limit = world.server, world.now + self.deadline
        try:
            request = server.post(8, 8)
        except Refused:
            return False
        while world.now < limit:
            yield min(1.0, limit - world.now)
            if request.done_at is not None:
                return request.done_at + server.lag <= limit
        server.hang_up(request)
        return False


@dataclass(frozen=True)
class Health:
    """``/health`` with the defaults of Kubernetes, and a startup probe while a process loads."""

    every: float = 10.0
    timeout: float = 1.0
    failures: int = 3

    def start(self, world: World) -> None:
        world.spawn(self._watch(world), self.every)

    def _watch(self, world: World) -> Process:
        server, failed, began, is_up = world.server, 0, -1.0, False
        while True:
            if server.began_at != began:
                began, is_up, failed = server.began_at, False, 0
            try:
                server.health(self.timeout)
                is_up, failed = True, 0
            except (Refused, Slow, Unwell):
                failed += 1
            limit = self.failures if is_up else _STARTUP / self.every
            if failed >= limit:
                server.order_restart()
            yield self.every


@dataclass(frozen=True)
class Counter:
    """One counter as the only witness: work in flight and no movement for ``limit`` seconds."""

    names: dict[str, str]
    limit: float = 120.0

    def start(self, world: World) -> None:
        world.spawn(self._watch(world), _SCRAPE_EVERY)

    def _watch(self, world: World) -> Process:
        server, kind = world.server, world.server.build.kind
        last, moved = -1.0, world.now
        shown, value, works = "", -1.0, False
        while True:
            try:
                page = server.page(_SCRAPE_WITHIN)
            except Refused:
                last, moved = -1.0, world.now
            except Slow:
                pass
            else:
                if page is not shown:
                    value, *in_flight = totals(page, (self.names[kind], *IN_FLIGHT[kind]))
                    shown, works = page, sum(in_flight) > 0
                if value != last or not works:
                    last, moved = value, world.now
                elif world.now - moved >= self.limit:
                    server.order_restart()
                    last, moved = -1.0, world.now
                    yield GRACE
            yield _SCRAPE_EVERY


@dataclass(frozen=True)
class Errors:
    """A count of answers with status 5xx: ``most`` within ``window`` seconds restart the server."""

    most: int = 10
    window: float = 300.0

    def start(self, world: World) -> None:
        world.spawn(self._watch(world), _SCRAPE_EVERY)

    def _watch(self, world: World) -> Process:
        server, seen = world.server, list[tuple[float, float]]()
        shown, count = "", 0.0
        while True:
            try:
                page = server.page(_SCRAPE_WITHIN)
            except (Refused, Slow):
                seen.clear()
            else:
                if page is not shown:
                    (count,) = totals(page, ('http_requests_total{status="5xx"}',))
                    shown = page
                seen = [each for each in seen if each[0] >= world.now - self.window]
                seen.append((world.now, count))
                if count - seen[0][1] >= self.most:
                    server.order_restart()
                    seen.clear()
                    yield GRACE
            yield _SCRAPE_EVERY


def totals(page: str, names: tuple[str, ...]) -> list[float]:
    """The sum of each series over all labels, as a dashboard shows it."""
    found = dict.fromkeys(names, 0.0)
    for name, value in _series(names).findall(f"\n{page}"):
        found[name] += float(value)
    return list(found.values())


@cache
def _series(names: tuple[str, ...]) -> re.Pattern[str]:
    """A line of one of them; a page has no other line that begins so."""
    return re.compile(rf"\n({'|'.join(map(re.escape, names))})(?:\{{[^}}]*\}})? (\S+)")


CHAT_45 = Chat(every=300.0, deadline=45.0, failures=5)
CHAT_10 = Chat(every=60.0, deadline=10.0, failures=1)
HEALTH = Health()
OUTPUT_TOKENS = Counter(OUTPUT)
STEP_COUNTER = Counter(STEPS)
ERRORS = Errors()
