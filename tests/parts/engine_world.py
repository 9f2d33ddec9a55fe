"""An engine as a fake on virtual time: it steps while it works, and answers when it is asked.

What a short request comes to is decided by the same state that its page shows.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from fleet.contracts.engine import AskRequest
from fleet.contracts.fleet import PresentPolicy
from fleet.contracts.names import ServerRequest
from fleet.contracts.remediation import RemediationStatus
from fleet.contracts.sweep import Observation
from fleet.engine_sources import EngineSource
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.engines.sighting import Sighting, compare
from fleet.policy import Policy
from fleet.readings import Reading, ReadStatus
from fleet.verdicts import Verdict
from tests.parts.world import World


class EngineWorld(World):
    """``profile`` is the engine's. ``running`` requests are in flight. ``frozen_at`` is when its
    engine froze. ``stale`` says that its gauges are, and ``load`` how long its port is closed after
    a restart.
    """

    def __init__(self, env: WorkflowEnvironment, name: str, policy: Policy) -> None:
        super().__init__(env, name, policy)
        self.profile = "vllm"
        self.running = 2
        self.stale = False
        self.asks_fail: Came | None = None
        self.asked: list[datetime] = []
        self.reads: list[datetime] = []
        self.load = timedelta(minutes=2)
        self.freezes_again = False
        self._epoch: datetime | None = None
        self._extra = 0

    async def doubt(
        self, *, answer: Came | None = None, since: datetime | None = None, key: str = "sweep-1"
    ) -> WorkflowHandle[Any, RemediationStatus]:
        """Do what a sweep does that saw work standing still, or a probe without an answer."""
        at = await self.now()
        reading = self._page(at)
        assert reading.engine is not None
        if answer is not None:
            said = Answer(came=answer, took=60, sent=1)
            engine = replace(reading.engine, answer=said)
            reading = replace(reading, engine=engine)
        seen = Observation(
            server=self.server,
            verdict=Verdict.SUSPECT,
            since=since or at,
            reading=reading,
            why="work in flight, and no witness moved",
            key=key,
        )
        return await self._start("observe", seen)

    @property
    def _is_frozen(self) -> bool:
        return self.frozen_at is not None

    def _page(self, at: datetime) -> Reading:
        if self.started_at is not None and at < self.started_at + self.load:
            engine = EngineReading(
                profile=self.profile, page=Page.REFUSED, restarted_at=self.started_at
            )
            return Reading(
                server=self.server,
                at=at,
                status=ReadStatus.MISSING,
                detail="refused",
                engine=engine,
            )
        return Reading(server=self.server, at=at, engine=self._engine(at))

    def _engine(self, at: datetime) -> EngineReading:
        self._epoch = self._epoch or at
        until = self.frozen_at or at
        moves = self.running > 0 and not self.stale
        steps = self._extra + (int((until - self._epoch).total_seconds()) if moves else 0)
        state = EngineState(
            label="0", running=self.running, steps=steps, witnesses={"step_tokens": steps}
        )
        return EngineReading(profile=self.profile, started=f"{self.generation}", engines=(state,))

    def _restarted(self, at: datetime) -> None:
        self.generation += 1
        self.started_at = self._epoch = at
        self._extra = 0
        if self.cure_works:
            self.frozen_at, self.stale = None, False

    # --- the activities ---------------------------------------------------------------------------

    @activity.defn
    async def present_policy(self, request: ServerRequest) -> PresentPolicy:
        present = await super().present_policy(request)
        if present.spec is None:
            return present
        spec = present.spec.model_copy(update={"source": EngineSource(url="http://v-1:8000")})
        return present.model_copy(update={"spec": spec})

    @activity.defn
    async def read_server(self, request: ServerRequest) -> Reading:
        await self._answer("read_server")
        at = await self.now()
        self.reads.append(at)
        return self._page(at)

    @activity.defn
    async def ask_engine(self, request: AskRequest) -> Reading:
        await self._answer("ask_engine")
        reading = self._page(await self.now())
        engine = reading.engine
        if engine is None or engine.page is not Page.OK:
            return reading
        if request.since is not None:
            change = compare(engine, Sighting.of(request.since))
            if change.restarted:
                return reading
            if change.moved:
                return self._said(reading, Came.MOVED)
            if not change.still and engine.in_flight:
                return self._said(reading, Came.BUSY)
        self.asked.append(await self.now())
        return self._said(reading, self.asks_fail or self._comes())

    def _comes(self) -> Came:
        if self._is_frozen:
            return Came.NONE
        self._extra += 1
        return Came.GIVEN

    def _said(self, reading: Reading, came: Came) -> Reading:
        assert reading.engine is not None
        engine = self._engine(reading.at)
        took = 60.0 if came is Came.NONE else 0.1
        answer = Answer(came=came, took=took, sent=1, detail="500, boom")
        return replace(reading, engine=replace(engine, answer=answer))

    @property
    def activities(self) -> list[Callable[..., Any]]:
        return [*super().activities, self.ask_engine]
