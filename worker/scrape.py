"""A scrape comes from a thread of the listener, and looks again where the last look is old."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress

import structlog

from worker.census import CensusTaker
from worker.metrics import Metrics
from worker.sweeps import Shard

_log = structlog.get_logger(__name__)

#: Two scrapers, or an impatient one, cost Temporal no more than this often.
CACHED = 5.0
#: Less than the ten seconds that Prometheus waits by default.
PATIENCE = 8.0


class Scrape:
    """Metrics that were looked up at most five seconds ago, or as late as could be had in eight."""

    def __init__(
        self, taker: CensusTaker, metrics: Metrics, shards: Callable[[], Sequence[Shard]]
    ) -> None:
        self._taker, self._metrics, self._shards = taker, metrics, shards
        self._loop = asyncio.get_running_loop()
        self._looking = asyncio.Lock()
        self._looked: float | None = None
        self._problems: Sequence[str] = ()

    def page(self, accept: str) -> tuple[bytes, str]:
        """The page, for a thread: where the loop is blocked, or Temporal away, what is known."""
        looking = self._look()
        try:
            future = asyncio.run_coroutine_threadsafe(looking, self._loop)
        except RuntimeError:
            looking.close()
        else:
            with suppress(TimeoutError, CancelledError):
                future.result(PATIENCE)
        return self._metrics.render(accept)

    async def _look(self) -> None:
        async with self._looking:
            if self._looked is not None and time.monotonic() - self._looked < CACHED:
                return
            shards = self._shards()
            census = await self._taker.take(shards)
            self._metrics.show(census, shards)
            self._looked = time.monotonic()
            if list(census.problems) != list(self._problems):
                _log.warning("metrics lack a part", problems=list(census.problems) or "none now")
            self._problems = census.problems
