"""Incidents in real seconds, one for each way that a remediation can go, to be recorded."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities
from fleet.actions import RebootRestart
from fleet.config import ComposeRestart, DockerRestart
from fleet.contracts.fleet import Pause
from fleet.contracts.gateway import Gateways
from fleet.contracts.guard import GuardInput, HostGuardInput, Take
from fleet.contracts.host import Effect, GpuFault, GpuHolder, HostStatus
from fleet.contracts.names import (
    HOST_GUARD,
    REMEDIATION,
    SERVER_GUARD,
    guard_id,
    host_guard_id,
    remediation_id,
)
from fleet.contracts.remediation import (
    Outcome,
    Phase,
    RemediationInput,
    RemediationSignal,
    RemediationStatus,
)
from fleet.gpu_faults import Remedy
from fleet.gpu_memory import GpuMemory
from fleet.policy import HostBudget, Mode, Policy, RollingBudget
from fleet.readings import WorkState
from fleet.secret_refs import SecretRef
from fleet.verdicts import Verdict
from tests.parts.people import People
from tests.parts.world import World
from workflows.alert import Alert
from workflows.guard import ServerGuard
from workflows.host_guard import HostGuard
from workflows.remediation import Remediation

SECOND = timedelta(seconds=1)
QUICK: dict[str, Any] = {
    "persist_hung": SECOND,
    "persist_error": SECOND,
    "cooldown": SECOND,
    "verify_after": SECOND,
    "load_limit": 2 * SECOND,
    "reading_max_age": 4 * SECOND,
    "approval_timeout": 2 * SECOND,
    "escalated_reads": (SECOND,),
}
_WITHIN = 200
_GATEWAYS = Gateways(
    urls=["http://gw:9465"], token=SecretRef(env="TOKEN"), wait=SECOND, wait_hung=SECOND
)


class Scene(World):
    """A hung server on a real Temporal server, with its guard, its alerts and a worker."""

    def __init__(self, client: Client, name: str, policy: Policy) -> None:
        super().__init__(WorkflowEnvironment.from_client(client), name, policy)
        self.client, self.queue = client, f"recorded-{name}"
        self.boot = timedelta(0)

    @property
    def handle(self) -> WorkflowHandle[Any, RemediationStatus]:
        return self.client.get_workflow_handle_for(Remediation.run, remediation_id(self.server))

    async def _start(self, signal: str, argument: Any) -> WorkflowHandle[Any, RemediationStatus]:
        return await self.client.start_workflow(
            REMEDIATION,
            RemediationInput(server=self.server, search_attributes=True),
            id=remediation_id(self.server),
            task_queue=self.queue,
            start_signal=signal,
            start_signal_args=[argument],
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            result_type=RemediationStatus,
        )

    async def reaches(self, phase: Phase) -> None:
        while (await self.handle.query(Remediation.status)).phase is not phase:
            await asyncio.sleep(0.05)

    async def say(self, signal: RemediationSignal, **words: str) -> None:
        await self.handle.signal(signal, {"who": "ann", "why": "as told", **words})

    @property
    def workflows(self) -> list[type]:
        return [Remediation, ServerGuard, HostGuard, Alert]

    def worker(self) -> Worker:
        guards = GuardActivities(self.client)
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=self.workflows,
            activities=[
                *self.activities,
                *People(self.told).activities,
                guards.open_incident,
                guards.take_budget,
                guards.give_back,
                guards.close_incident,
                guards.report_starts,
            ],
        )

    async def found(self) -> None:
        await self.client.start_workflow(
            SERVER_GUARD,
            GuardInput(server=self.server, founding=True),
            id=guard_id(self.server),
            task_queue=self.queue,
        )

    async def on_a_machine(self, *, limit: int, used: int = 0) -> None:
        self.machine, self.host_budget = f"{self.server}:22", HostBudget(limit=limit)
        now = await self.now()
        takes = [Take(key=f"gpu-2/{n}", at=now, cooldown_until=now, by="bob") for n in range(used)]
        await self.client.start_workflow(
            HOST_GUARD,
            HostGuardInput(machine=self.machine, founding=True, takes=takes),
            id=host_guard_id(self.machine),
            task_queue=self.queue,
        )


Tell = Callable[[Any], Awaitable[object]]


@dataclass(frozen=True)
class Story:
    """``tell`` begins it; it is over when its remediation has closed with ``outcome``."""

    name: str
    outcome: Outcome
    tell: Tell
    policy: dict[str, Any]
    scene: type[Scene] = Scene

    async def play(self, client: Client) -> Scene:
        """Live it through.

        Raises:
            AssertionError: it came out differently.
            TimeoutError: it did not come to an end.
        """
        scene = self.scene(client, self.name, Policy(**{**QUICK, **self.policy}))
        await scene.freeze()
        async with asyncio.timeout(_WITHIN), scene.worker():
            await scene.found()
            await self.tell(scene)
            try:
                await scene.handle.result()
            except WorkflowFailureError:
                assert self.outcome is Outcome.CANCELLED, self.name
            status = await scene.handle.query(Remediation.status)
        assert status.outcome is self.outcome, f"{self.name} ended {status.outcome}: {status}"
        return scene


STORIES: list[Story] = []


def story(outcome: Outcome, variant: str = "", **policy: Any) -> Callable[[Tell], Tell]:
    """``variant``: another way to the same outcome."""

    def told(tell: Tell) -> Tell:
        name = f"{outcome}-{variant}" if variant else str(outcome)
        STORIES.append(Story(name, outcome, tell, policy))
        return tell

    return told


@story(Outcome.RESOLVED)
async def _(s: Scene) -> None:
    await s.report()


@story(Outcome.RESOLVED, "after_an_error")
async def _(s: Scene) -> None:
    s.state, s.frozen_at = WorkState.ERROR, None

    def work_again() -> None:
        s.state = WorkState.PROCESSING

    s.before("restart_server", work_again)
    await s.report(Verdict.ERROR)


def _cured_by_the_second(s: Scene) -> None:
    """The first restart has no effect, and the one after it helps."""
    s.cure_works = False

    def works_next_time() -> None:
        def cure() -> None:
            s.cure_works = True

        s.before("restart_server", cure)

    s.before("restart_server", works_next_time)


@story(Outcome.RESOLVED, "at_the_second_try")
async def _(s: Scene) -> None:
    _cured_by_the_second(s)
    await s.report()


@story(Outcome.RESOLVED, "by_a_stronger_step")
async def _(s: Scene) -> None:
    s.ladder = (ComposeRestart(kind="compose", host="box", directory="/srv/models"),)
    _cured_by_the_second(s)
    await s.report()


@story(Outcome.RESOLVED, "in_parts")
async def _(s: Scene) -> None:
    s.action = _in_parts()
    s.stop_says = Effect.UNKNOWN
    await s.report()


@story(Outcome.RESOLVED, "on_a_machine")
async def _(s: Scene) -> None:
    await s.on_a_machine(limit=2, used=1)
    await s.report()


@story(Outcome.RESOLVED, "after_another_restarter")
async def _(s: Scene) -> None:
    """Its first run finds another process than it saw, and waits for it in vain."""

    def restart() -> None:
        s.generation += 1

    await s.on_a_machine(limit=3, used=1)
    s.before("collect_evidence", restart)
    await s.report()


@story(Outcome.RESOLVED, "drained")
async def _(s: Scene) -> None:
    s.gateways = _GATEWAYS
    await s.report()


@story(Outcome.RESOLVED, "drained-with_another")
async def _(s: Scene) -> None:
    """A stronger step that takes another backend along."""
    s.gateways = _GATEWAYS.model_copy(update={"backends": [s.server, "gpu-2"]})
    s.ladder = (RebootRestart(kind="reboot", host="box", also_restarts=("gpu-2",)),)
    _cured_by_the_second(s)
    await s.report()


@story(Outcome.RESOLVED, "with_a_gateway_that_is_down")
async def _(s: Scene) -> None:
    s.gateways, s.gateway_is_down = _GATEWAYS, True
    await s.report()


@story(Outcome.RESTART_FAILED, "drained")
async def _(s: Scene) -> None:
    s.gateways, s.effect = _GATEWAYS, Effect.FAILED
    await s.report()


@story(Outcome.RESOLVED, "settled_by_the_host")
async def _(s: Scene) -> None:
    s.effect = Effect.UNKNOWN
    await s.report()


@story(Outcome.RESOLVED, "approved", mode=Mode.APPROVE, approval_timeout=60 * SECOND)
async def _(s: Scene) -> None:
    await s.report()
    await s.reaches(Phase.APPROVING)
    await s.say(RemediationSignal.APPROVE)


@story(Outcome.RESOLVED, "by_hand")
async def _(s: Scene) -> None:
    s.frozen_at = None
    await s.order(RemediationSignal.RESTART_NOW, {"who": "ann", "why": "new driver", "id": "r"})


@story(Outcome.RESOLVED, "snoozed", persist_hung=60 * SECOND)
async def _(s: Scene) -> None:
    await s.report()
    await s.reaches(Phase.PERSISTING)
    await s.say(RemediationSignal.SNOOZE, span="1s")
    await s.say(RemediationSignal.RESTART_NOW)


@story(Outcome.RECOVERED)
async def _(s: Scene) -> None:
    s.recovers_at = await s.now() + SECOND / 2
    await s.report()


@story(Outcome.RECOVERED, "told_by_a_sweep", persist_hung=60 * SECOND)
async def _(s: Scene) -> None:
    await s.report()
    await s.reaches(Phase.PERSISTING)
    s.frozen_at = None
    await s.report(Verdict.BUSY, key="sweep-2")


@story(Outcome.NOT_CONFIRMED)
async def _(s: Scene) -> None:
    await s.order(RemediationSignal.APPROVE, {"who": "ann"})


@story(Outcome.CANCELLED, persist_hung=60 * SECOND)
async def _(s: Scene) -> None:
    await s.report()
    await s.reaches(Phase.PERSISTING)
    await s.say(RemediationSignal.CANCEL)


@story(Outcome.CANCELLED, "in_temporal", persist_hung=60 * SECOND)
async def _(s: Scene) -> None:
    await s.report()
    await s.reaches(Phase.PERSISTING)
    await s.handle.cancel(reason="as told")


@story(Outcome.PAUSED)
async def _(s: Scene) -> None:
    async def pause() -> None:
        s.pause = Pause(until=await s.now() + 60 * SECOND, who="ann")

    s.before("collect_evidence", pause)
    await s.report()


@story(Outcome.REMOVED)
async def _(s: Scene) -> None:
    def remove() -> None:
        s.in_fleet = False

    s.before("collect_evidence", remove)
    await s.report()


@story(Outcome.DRY_RUN, mode=Mode.DRY_RUN)
async def _(s: Scene) -> None:
    await s.report()


@story(Outcome.ALERT_ONLY, mode=Mode.ALERT_ONLY)
async def _(s: Scene) -> None:
    await s.report()


@story(Outcome.NOT_APPROVED, mode=Mode.APPROVE)
async def _(s: Scene) -> None:
    await s.report()


@story(Outcome.HANDED_OVER)
async def _(s: Scene) -> None:
    def stop() -> None:
        s.status = HostStatus.STOPPED

    s.before("collect_evidence", stop)
    await s.report()


@story(Outcome.HANDED_OVER, "memory_held")
async def _(s: Scene) -> None:
    s.action, s.freed = _in_parts(), False
    s.holders = [GpuHolder(pid=4711, mib=70000, gpu="GPU-1", name="python3")]
    await s.report()


def _in_parts() -> DockerRestart:
    return DockerRestart(
        kind="docker",
        host="box",
        name="worker",
        group=("proxy", "worker"),
        gpu_memory=GpuMemory(within=SECOND),
    )


@story(Outcome.HANDED_OVER, "incurable")
async def _(s: Scene) -> None:
    s.faults = [GpuFault(what="Xid 79: GPU has fallen off the bus", remedy=Remedy.REBOOT)]
    await s.report()


@story(Outcome.RESTART_FAILED)
async def _(s: Scene) -> None:
    s.unreachable = True
    await s.report()


@story(Outcome.RESTART_FAILED, "not_sent")
async def _(s: Scene) -> None:
    def cut() -> None:
        s.unreachable = True

    s.before("restart_server", cut)
    await s.report()


@story(Outcome.RESTART_FAILED, "on_a_machine")
async def _(s: Scene) -> None:
    """Both ledgers get theirs back."""

    def cut() -> None:
        s.unreachable = True

    await s.on_a_machine(limit=1)
    s.before("restart_server", cut)
    await s.report()


@story(Outcome.RESTART_FAILED, "by_the_command")
async def _(s: Scene) -> None:
    s.effect = Effect.FAILED
    await s.report()


@story(Outcome.BUDGET_EXHAUSTED, budget=RollingBudget(limit=1))
async def _(s: Scene) -> None:
    s.cure_works = False
    await s.report()
    await s.reaches(Phase.ESCALATED)
    s.frozen_at = None


@story(Outcome.BUDGET_EXHAUSTED, "of_its_machine")
async def _(s: Scene) -> None:
    await s.on_a_machine(limit=1, used=1)
    await s.report()
    await s.reaches(Phase.ESCALATED)
    s.frozen_at = None


async def escalate(s: Scene) -> WorkflowHandle[Any, RemediationStatus]:
    """A restart that does not help, and a person who wants no second one."""
    s.cure_works = False

    async def cancel() -> None:
        await s.say(RemediationSignal.CANCEL)

    s.before("restart_server", cancel)
    handle = await s.report()
    await s.reaches(Phase.ESCALATED)
    return handle


@story(Outcome.ESCALATED)
async def _(s: Scene) -> None:
    await escalate(s)
    s.frozen_at = None


@story(Outcome.ESCALATED, "drained")
async def _(s: Scene) -> None:
    s.gateways = _GATEWAYS
    await escalate(s)
    s.frozen_at = None


@story(Outcome.INTERNAL_ERROR)
async def _(s: Scene) -> None:
    def fails() -> None:
        raise ApplicationError("no such thing", type="NoSuchThing", non_retryable=True)

    s.before("present_policy", fails)
    await s.report()
