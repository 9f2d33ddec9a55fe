"""Virtual time: checks are processes that say how long they sleep, and nobody waits for them."""

import heapq
from collections.abc import Generator, Sequence

from benchmarks.verdict_days.server import Build, Event, Server

#: Yields the seconds until it wants to go on.
Process = Generator[float, None, None]


class World:
    def __init__(self, build: Build, script: Sequence[Event]) -> None:
        self.server = Server(build, script)
        self._due: list[tuple[float, int, Process]] = []
        self._number = 0

    @property
    def now(self) -> float:
        return self.server.now

    def spawn(self, process: Process, after: float = 0.0) -> None:
        self._number += 1
        heapq.heappush(self._due, (self.now + after, self._number, process))

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            at, number, process = heapq.heappop(self._due)
            self.server.advance(at)
            try:
                delay = next(process)
            except StopIteration:
                continue
            heapq.heappush(self._due, (self.now + max(delay, 1e-3), number, process))
        self.server.advance(until)
