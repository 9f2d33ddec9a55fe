"""Several gateway processes on one port, as one: orders, state, health and figures of all."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import TimeoutError as TookTooLong
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from fleet.config import Fleet
from gateway.costs import Costs
from gateway.figures import Figures, lasting, read, shown, together
from gateway.generation import spending
from gateway.kept import Kept
from gateway.metrics import restarts
from gateway.plane import At, Loads, NotTaken
from gateway.server import new_marker
from worker.errors import SetupError
from worker.gateway_member import Member
from worker.gateway_talk import Begin, Reply
from worker.vitals import Health

#: For all processes to take an order. Whoever gave it waits 5 s.
_TAKEN_WITHIN = 4.0
_SHOWN_WITHIN = 2.0
_SPARE = 1.0
#: So much of what a process that is killed has counted is lost at most.
_LOOK_EVERY = 10.0
_STANDS_STILL = 5.0

T = TypeVar("T")


class Group:
    """``apply``, ``loads``, ``health`` and ``page`` are called from any thread but the loop's."""

    def __init__(
        self,
        fleet: Fleet,
        secrets: Mapping[tuple[str, str], str],
        places: list[tuple[str, int, str | None]],
        kept: Kept,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept = kept
        self._within = fleet.gateway.graceful_shutdown.total_seconds()
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._costs = Costs(fleet.endpoints, self._loop.time())
        self._own = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._own)
        count, marker = fleet.gateway.processes, new_marker()
        self.members = [
            Member(
                Begin(
                    number=number,
                    of=count,
                    places=places,
                    marker=marker,
                    settings=fleet.gateway,
                    endpoints=fleet.endpoints,
                    secrets=[(*at, secret) for at, secret in secrets.items()],
                ),
                lambda: self._kept,
            )
            for number in range(1, count + 1)
        ]

    async def start(self) -> None:
        """Start all processes, and wait until they listen.

        Raises:
            SetupError: one of them can't.
        """
        began = await asyncio.gather(
            *(each.start() for each in self.members), return_exceptions=True
        )
        for problem in began:
            if problem is not None:
                raise problem
        self._tasks = [asyncio.create_task(each.run()) for each in self.members]
        self._tasks.append(asyncio.create_task(self._look()))

    async def given_up(self) -> None:
        """Wait until no process is left that would be started anew.

        Raises:
            SetupError: that is so.
        """
        await asyncio.gather(*self._tasks[:-1])
        raise SetupError("no process of the gateway stays alive: its log says how each ended")

    async def stop(self) -> None:
        """Let all finish what is in flight, at most for the time that is set; and end them."""
        self._stopping = True
        await asyncio.gather(*(each.stop(self._within) for each in self.members))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            await self._figures()

    # --- orders ----------------------------------------------------------------------------------

    def apply(self, kept: Kept) -> list[str]:
        return self._on_loop(self._apply(kept), _TAKEN_WITHIN)

    async def _apply(self, kept: Kept) -> list[str]:
        self._kept = kept
        said = await self._all(lambda each: each.ask("apply", _TAKEN_WITHIN, kept))
        behind = [
            each.number
            for each, reply in zip(self.members, said, strict=True)
            if each.is_live and (reply is None or reply.fault)
        ]
        if behind:
            raise NotTaken(
                f"{_named(behind)} of {len(self.members)} did not take the order in time: it is"
                " kept, and in force there as soon as it is taken"
            )
        return [
            f"process {each.number} has ended too often and is not started any more"
            if each.given_up
            else f"process {each.number} is being started anew, and begins with this"
            for each in self.members
            if not each.is_live
        ]

    # --- what is shown ---------------------------------------------------------------------------

    def loads(self) -> Loads:
        loads = Loads()
        for reply in self._on_loop(self._loads(), _SHOWN_WITHIN):
            loads.backends.update(reply.backends)
            counts = {At(endpoint, name): n for endpoint, name, n in reply.candidates}
            loads.candidates.update(counts)
        return loads

    async def _loads(self) -> list[Reply]:
        """Of those that serve; of one that is silent, what it said last."""
        await self._all(lambda each: each.ask("loads", _SHOWN_WITHIN))
        return [each.loads for each in self.members if each.loads is not None]

    def health(self) -> Health:
        try:
            return self._on_loop(self._health(), _SHOWN_WITHIN)
        except NotTaken:
            return Health(["the event loop of the first process stands still"], {})

    async def _health(self) -> Health:
        said = await self._all(lambda each: each.ask("loads", _SHOWN_WITHIN))
        why = ["the gateway is stopping"] if self._stopping else []
        still: list[float] = []
        for each, reply in zip(self.members, said, strict=True):
            name = f"process {each.number}"
            if each.given_up:
                why.append(f"{name} has ended too often and is not started any more")
            elif each.is_live and (reply is None or reply.fault):
                why.append(f"{name} does not answer")
            elif reply is not None:
                still.append(reply.still)
                if reply.still > _STANDS_STILL:
                    why.append(f"the event loop of {name} has stood still for {reply.still:.0f} s")
        if not any(each.is_live for each in self.members):
            why.append("no process serves")
        return Health(why, {"loop": round(max(still), 1) if still else None})

    def page(self, accept: str) -> tuple[bytes, str]:
        """The figures of all processes together, as the ``Accept`` header wants them."""
        encode, kind = choose_encoder(accept)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Shown(self._on_loop(self._figures(), _SHOWN_WITHIN)))
        return encode(registry), kind

    async def _figures(self) -> Figures:
        """What was counted never falls: what ended processes had counted is in it."""
        await self._all(lambda each: each.ask("figures", _SHOWN_WITHIN))
        parts = [read([*self._own.collect(), *self._of_all()])]
        for each in self.members:
            parts += [each.past, each.figures if each.is_live else lasting(each.figures)]
        # Money passes once, however many processes there are.
        return {**together(parts), **read(spending(self._costs, self._loop.time()))}

    def _of_all(self) -> list[Metric]:
        return [
            GaugeMetricFamily("steady_gateway_processes", "Processes that serve now.", 0),
            restarts(sum(each.restarts for each in self.members)),
        ]

    # --- how it is done --------------------------------------------------------------------------

    async def _all(self, ask: Callable[[Member], Awaitable[Reply | None]]) -> list[Reply | None]:
        return await asyncio.gather(*(ask(each) for each in self.members))

    def _on_loop(self, work: Coroutine[Any, Any, T], within: float) -> T:
        late = "the gateway's first process did not take it in time"
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as problem:  # the loop is closed
            work.close()
            raise NotTaken(late) from problem
        try:
            return future.result(within + _SPARE)
        except TookTooLong as problem:
            future.cancel()
            raise NotTaken(late) from problem


class _Shown(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> list[Metric]:
        return shown(self._figures)


def _named(numbers: list[int]) -> str:
    word = "process" if len(numbers) == 1 else "processes"
    return f"{word} {', '.join(map(str, numbers))}"
