"""Engines to be recorded: suspicions in real seconds, and probes of those that are idle."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from fleet.contracts.engine import AskRequest
from fleet.contracts.names import PROBE_SWEEP, ask_id, probe_id
from fleet.contracts.remediation import Outcome
from fleet.contracts.sweep import ProbeReadings, SweepReadings, SweepRequest
from fleet.engines.reading import Answer, Came, EngineReading, EngineState
from fleet.policy import Policy
from fleet.readings import Reading
from tests.parts.engine_world import EngineWorld
from tests.parts.recorder import Recorder
from tests.parts.shard import EVERY, T0, Shard, scheduled
from tests.parts.stories import Scene, Story
from workflows.ask import AskEngine
from workflows.probe import ProbeSweep

SECOND = timedelta(seconds=1)


class EngineScene(Scene, EngineWorld):
    """An engine that looks stuck, on a real Temporal server."""

    def __init__(self, client: Client, name: str, policy: Policy) -> None:
        super().__init__(client, name, policy)
        self.load = SECOND / 2

    @property
    def workflows(self) -> list[type]:
        return [*super().workflows, AskEngine]


def _story(name: str, outcome: Outcome, tell: Callable[[EngineScene], Any]) -> Story:
    policy = {"confirm_wait": SECOND, "load_limit": 10 * SECOND}
    return Story(name, outcome, tell, policy, EngineScene)


async def _answers(s: EngineScene) -> None:
    s.frozen_at, s.stale = None, True
    await s.doubt()


async def _is_stuck(s: EngineScene) -> None:
    await s.doubt()


async def _froze_while_idle(s: EngineScene) -> None:
    s.running = 0
    await s.doubt(answer=Came.NONE)


ENGINE_STORIES = [
    _story("not_confirmed-by_an_answer", Outcome.NOT_CONFIRMED, _answers),
    _story("resolved-stuck", Outcome.RESOLVED, _is_stuck),
    _story("resolved-unresponsive", Outcome.RESOLVED, _froze_while_idle),
]


# --- probes --------------------------------------------------------------------------------------


def _idle(seconds: float) -> Reading:
    """What is seen ``seconds`` after T0 of an engine that has nothing to do."""
    state = EngineState(label="0", steps=7, witnesses={"step_tokens": 7})
    engine = EngineReading(profile="vllm", started="1", engines=(state,))
    return Reading(server="v", at=T0 + timedelta(seconds=seconds), engine=engine)


class Probed(Shard):
    """A shard of one engine that nobody uses. ``comes`` is what a short request comes to."""

    workflow = PROBE_SWEEP

    def __init__(self, client: Client, number: int) -> None:
        super().__init__(client, number)
        self.comes: Came | None = Came.GIVEN

    @property
    def name(self) -> str:
        return probe_id(self.number)

    @activity.defn
    async def read_engines(self, request: SweepRequest) -> ProbeReadings:
        look = self.looks.pop(0)
        assert isinstance(look, Reading)
        self.seen = replace(look, server=self.server)
        seen = SweepReadings(
            interval=EVERY,
            version=1,
            readings=[self.seen],
            policies=[self.policy],
            policy_of={self.server: 0},
        )
        return ProbeReadings(engines=[self.server], seen=seen)

    @activity.defn
    async def ask_engine(self, request: AskRequest) -> Reading:
        if self.comes is None:
            raise ApplicationError("the worker went away", type="Gone", non_retryable=True)
        answer = Answer(came=self.comes, took=1, sent=1)
        assert self.seen.engine is not None
        engine = replace(self.seen.engine, answer=answer)
        return replace(self.seen, engine=engine)

    def worker(self) -> Worker:
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=[ProbeSweep, AskEngine],
            activities=[self.read_engines, self.ask_engine, self.report],
        )


async def probes(recorder: Recorder) -> None:
    """Each is the one after another that saw the engine well."""
    comes = {"quiet": Came.GIVEN, "reporting": Came.NONE, "blind": None}
    asked = {"quiet": "answered", "reporting": "no_answer", "blind": "failed"}
    for number, (name, came) in enumerate(comes.items()):
        made = Probed(recorder.client, number)
        async with scheduled(made), made.worker():
            await made.sweep(_idle(0))
            made.comes = came
            handle = await made.start(_idle(300))
            await handle.result()
            bad = [report for report in made.reports if not report.good]
            assert bool(bad) is (name == "reporting"), made.reports
            await recorder.write(f"probe-{name}", handle.id, handle.run_id)
            await recorder.write(f"ask-{asked[name]}", ask_id(made.server))
