"""``make record-histories``: one history of every way that steady's workflows can go.

They are lived through on a real server, in about a minute and a half, and replace what lies in
``tests/histories``. Recorded anew only where a change of a workflow is meant, and the workflows
that run have been thought of: ``tests/workflows/test_replay.py`` says when one was not.
"""

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities
from activities.schedules import ScheduleActivities
from fleet.config import Fleet
from fleet.contracts.alerts import AlertMessage, Severity
from fleet.contracts.drill import DrillStatus
from fleet.contracts.fleet import ApplyRequest, FleetState, FleetUpdate, PauseRequest
from fleet.contracts.guard import GuardInput, GuardSignal, GuardUpdate, TakeRequest
from fleet.contracts.names import (
    FLEET,
    FLEET_ID,
    RECORD,
    SERVER_GUARD,
    STORM_GUARD_ID,
    TASK_QUEUE,
    alert_id,
    drill_id,
    guard_id,
    record_id,
    remediation_id,
)
from fleet.contracts.record import KeepRequest, Look, RecordInput, RecordSignal
from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from fleet.contracts.storm import OpenByHand, StormSignal, StormUpdate
from fleet.policy import Policy, RollingBudget, Storm
from fleet.recording import ms
from tests.parts.drilled import DRILLS, DrillWorld
from tests.parts.people import People
from tests.parts.shard import busy, gone, hung, shard
from tests.parts.stories import QUICK, STORIES, Scene, Story, escalate
from tests.parts.temporal import QUICK_TIMERS, dev_server
from tests.parts.town import Town
from workflows.alert import Alert
from workflows.drill import Drill
from workflows.fleet import FleetWorkflow
from workflows.guard import ServerGuard
from workflows.record import ReadingRecord
from workflows.remediation import Remediation
from workflows.storm import StormGuard

FOLDER = Path(__file__).parent / "histories"

SECOND = timedelta(seconds=1)
#: Events after which a workflow is asked to continue as new; in earnest it is thousands.
_SHORT = 40
_SUGGEST = f"limit.historyCount.suggestContinueAsNew={_SHORT}"
_AT_ONCE = 8


class Recorder:
    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self._folder = client, folder

    async def write(self, name: str, workflow_id: str, run_id: str | None = None) -> None:
        """Write the history of a run, by default of the newest, one event a line."""
        handle = self.client.get_workflow_handle(workflow_id, run_id=run_id)
        recorded = (await handle.fetch_history()).to_json_dict()
        events = ",\n".join(json.dumps(_public(event)) for event in recorded["events"])
        (self._folder / f"{name}.json").write_text(f'{{"events":[\n{events}\n]}}\n')

    async def write_chain(self, name: str, handle: WorkflowHandle[Any, Any]) -> None:
        """Write the first run, which continued as new, and the one that followed it."""
        first = handle.first_execution_run_id
        await self.write(name, handle.id, first)
        await self.write(f"{name}-continued", handle.id)


def _public(value: Any) -> Any:
    """Without the stack traces, which say where the machine that recorded keeps its files."""
    if isinstance(value, dict):
        return {name: _public(inner) for name, inner in value.items() if name != "stackTrace"}
    if isinstance(value, list):
        return [_public(inner) for inner in value]
    return value


Part = Callable[[Recorder], Coroutine[Any, Any, None]]

# --- remediations and their guards ---------------------------------------------------------------


async def remediations(recorder: Recorder) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)
    missing = set(Outcome) - {story.outcome for story in STORIES}
    assert not missing, f"no story ends as {missing}"

    async def live_through(story: Story) -> None:
        async with slots:
            scene = await story.play(recorder.client)
        await recorder.write(f"remediation-{story.name}", remediation_id(scene.server))

    async with asyncio.TaskGroup() as group:
        for each in STORIES:
            group.create_task(live_through(each))
    await recorder.write("guard-taken", guard_id("resolved"))
    await recorder.write("guard-given_back", guard_id("restart_failed-not_sent"))
    await recorder.write("guard-held", guard_id("cancelled"))


async def long_remediation(recorder: Recorder) -> None:
    """One that waits for so long that it continues as new, and recovers after that."""
    handles: list[WorkflowHandle[Any, RemediationStatus]] = []

    async def tell(scene: Scene) -> None:
        handle = await escalate(scene)
        handles.append(handle)
        while (await scene.handle.describe()).run_id == handle.first_execution_run_id:
            await asyncio.sleep(0.1)
        await scene.reaches(Phase.ESCALATED)
        scene.frozen_at = None

    story = Story("escalated-for_long", Outcome.ESCALATED, tell, {})
    await story.play(recorder.client)
    await recorder.write_chain(f"remediation-{story.name}", handles[0])


async def storm(recorder: Recorder) -> None:
    """Two servers, of which one waits for the other, and for a person who ends a suspicion; by
    then their ``storm-guard`` has continued as new.
    """
    client = recorder.client
    town = Town(
        WorkflowEnvironment.from_client(client),
        ["first", "second"],
        Policy(
            **{
                **QUICK,
                "cooldown": 3 * SECOND,
                "verify_after": 3 * SECOND,
                "load_limit": 5 * SECOND,
            }
        ),
        Storm(restarts_at_once=1, at_least=2),
    )
    async with Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=[Remediation, ServerGuard, StormGuard, Alert],
        activities=[*town.activities, *People(town.told).activities],
    ):
        await town.found()
        for world in town.worlds.values():
            world.boot = timedelta(0)
            await world.freeze()
        first = await town["first"].report()
        await _reaches(first, Phase.COOLING)
        second = await town["second"].report()
        await _reaches(second, Phase.WAITING)
        began = await town.storm_guard.describe()
        await town.sweep("first", "second")
        while not (await town.state()).suspicion:
            await asyncio.sleep(0.05)
        await first.result()
        while (await town.storm_guard.describe()).run_id == began.run_id:
            await town.storm_guard.signal(StormSignal.FREE, "nothing")
        await town.storm_guard.execute_update(StormUpdate.OPEN, OpenByHand(who="ann"))
        await second.result()
        await recorder.write("remediation-resolved-after_others", remediation_id("second"))
        await recorder.write("storm-guard", STORM_GUARD_ID, began.run_id)
        await recorder.write("storm-guard-continued", STORM_GUARD_ID)


async def _reaches(handle: WorkflowHandle[Any, RemediationStatus], phase: Phase) -> None:
    while (await handle.query(Remediation.status)).phase is not phase:
        await asyncio.sleep(0.05)


async def guards(recorder: Recorder) -> None:
    """One whose history was lost, and one that lives so long that it continues as new."""
    async with Worker(recorder.client, task_queue="recorded-guards", workflows=[ServerGuard]):
        await _guard(recorder.client, "lost", founding=False)
        await recorder.write("guard-lost", guard_id("lost"))
        handle = await _guard(recorder.client, "for_long", founding=True)
        present = recorder.client.get_workflow_handle(handle.id)
        while (await present.describe()).run_id == handle.first_execution_run_id:
            await present.signal(GuardSignal.FORGET_HOLD)
        await present.execute_update(GuardUpdate.TAKE, _take("for_long", "one more"))
        await recorder.write_chain("guard-for_long", handle)


async def _guard(client: Client, name: str, *, founding: bool) -> WorkflowHandle[Any, Any]:
    handle: WorkflowHandle[Any, Any] = await client.start_workflow(
        SERVER_GUARD,
        GuardInput(server=name, founding=founding),
        id=guard_id(name),
        task_queue="recorded-guards",
    )
    for number in range(4):
        await handle.execute_update(GuardUpdate.TAKE, _take(name, f"try {number}"))
    return handle


def _take(server: str, key: str) -> TakeRequest:
    return TakeRequest(
        server=server,
        incident="",
        key=key,
        budget=RollingBudget(limit=3),
        cooldown=timedelta(minutes=10),
    )


# --- drills --------------------------------------------------------------------------------------


async def drills(recorder: Recorder) -> None:
    for outcome, tell in DRILLS.items():
        world = DrillWorld(
            WorkflowEnvironment.from_client(recorder.client),
            f"drill-{outcome}",
            Policy(**QUICK, stale_after=SECOND),
        )
        world.boot = timedelta(0)
        status = await _drilled(recorder.client, world, tell)
        assert status.outcome is outcome, status
        await recorder.write(f"drill-{outcome}", drill_id(world.server))


async def _drilled(
    client: Client, world: DrillWorld, tell: Callable[[DrillWorld], Coroutine[Any, Any, None]]
) -> DrillStatus:
    guards = GuardActivities(client)
    async with (
        asyncio.timeout(120),
        Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[Drill, Remediation, ServerGuard, Alert],
            activities=[
                *world.activities,
                *People(world.told).activities,
                guards.open_incident,
                guards.take_budget,
                guards.give_back,
                guards.close_incident,
            ],
        ),
    ):
        await client.start_workflow(
            SERVER_GUARD,
            GuardInput(server=world.server, founding=True),
            id=guard_id(world.server),
            task_queue=TASK_QUEUE,
        )
        await tell(world)
        handle: WorkflowHandle[Any, DrillStatus] = client.get_workflow_handle(
            drill_id(world.server), result_type=DrillStatus
        )
        return await handle.result()


# --- sweeps, alerts, the fleet -------------------------------------------------------------------


async def sweeps(recorder: Recorder) -> None:
    looks = {
        "quiet": [busy(0), busy(30)],
        "reporting": [busy(0), hung(30), hung(60)],
        "alerting": [busy(0), gone(30), gone(60)],
        "unsent": [busy(0), hung(30), hung(60)],
        "keeping": [busy(0), busy(30), hung(60, 30)],
        "reminding": [busy(0), gone(30), gone(60), gone(90)],
        "over": [busy(0), gone(30), gone(60), busy(90)],
    }
    reminding = Policy(remind_after=60 * SECOND)
    for number, (name, seen) in enumerate(looks.items()):
        async with shard(recorder.client, number, reminding) as made, made.worker():
            made.follows_up = name in ("reminding", "over")
            made.keep_for = timedelta(days=7) if name == "keeping" else None
            await made.sweep(*seen[:-1])
            made.unsent = {made.server: "no answer within 5s"} if name == "unsent" else {}
            handle = await made.start(seen[-1])
            await handle.result()
            await recorder.write(f"health-{name}", handle.id, handle.run_id)


async def records(recorder: Recorder) -> None:
    """One that lives so long that it continues as new, and ends when all of it is too old."""
    client, queue = recorder.client, "recorded-records"
    at = ms(datetime(2026, 11, 30, 12, 0, tzinfo=UTC))
    async with Worker(client, task_queue=queue, workflows=[ReadingRecord]):
        handle: WorkflowHandle[Any, Any] = await client.start_workflow(
            RECORD, RecordInput(shard=0), id=record_id(0), task_queue=queue
        )
        present: WorkflowHandle[Any, Any] = client.get_workflow_handle(handle.id)
        while (await present.describe()).run_id == handle.first_execution_run_id:
            at += 30_000
            looks = [Look("gpu-1", at, 30_000, "missing", "missing")]
            request = KeepRequest(shard=0, looks=looks, keep_for=3 * SECOND)
            await present.signal(RecordSignal.KEEP, request)
        await present.result()
        await recorder.write_chain("record-for_long", handle)


async def alerts(recorder: Recorder) -> None:
    people = People()
    async with Worker(
        recorder.client,
        task_queue="recorded-alerts",
        workflows=[Alert],
        activities=people.activities,
    ):
        for cause in ("delivered", "not_delivered"):
            people.reachable = cause == "delivered"
            message = AlertMessage(
                server="gpu-1",
                incident="gpu-1@20261130T120000.000Z",
                cause=cause,
                severity=Severity.PAGE,
                title="gpu-1: the restart budget is used up",
                give_up_after=2 * SECOND,
            )
            workflow_id = alert_id(message.incident, cause)
            result = await recorder.client.execute_workflow(
                Alert.run, message, id=workflow_id, task_queue="recorded-alerts"
            )
            assert result.delivered is people.reachable, result
            await recorder.write(f"alert-{cause}", workflow_id)


async def fleets(recorder: Recorder) -> None:
    client = recorder.client
    async with Worker(
        client,
        task_queue="recorded-fleet",
        workflows=[FleetWorkflow, ServerGuard],
        activities=[ScheduleActivities(client).reconcile, GuardActivities(client).found_guards],
    ):
        handle: WorkflowHandle[Any, Any] = await client.start_workflow(
            FLEET, FleetState(), id=FLEET_ID, task_queue="recorded-fleet"
        )
        fleet: WorkflowHandle[Any, Any] = client.get_workflow_handle(FLEET_ID)
        await fleet.execute_update(FleetUpdate.APPLY, ApplyRequest(fleet=_fleet("gpu-1", "gpu-2")))
        await fleet.execute_update(FleetUpdate.PAUSE, PauseRequest(server="gpu-1", span=SECOND))
        await fleet.execute_update(FleetUpdate.APPLY, ApplyRequest(fleet=_fleet("gpu-1")))
        while (await fleet.describe()).run_id == handle.first_execution_run_id:
            await fleet.execute_update(FleetUpdate.PAUSE, PauseRequest(span=60 * SECOND))
            await fleet.execute_update(FleetUpdate.PAUSE, PauseRequest())
        await fleet.execute_update(FleetUpdate.APPLY, ApplyRequest(fleet=_fleet("gpu-1")))
        await recorder.write_chain("fleet-applied", handle)


def _fleet(*names: str) -> Fleet:
    url = "http://127.0.0.1:8000"
    servers = {name: {"source": {"kind": "status", "url": f"{url}/{name}"}} for name in names}
    return Fleet.model_validate({"servers": servers, "fleet": {"sweep_every": "1h"}})


# --- the recording -------------------------------------------------------------------------------


@asynccontextmanager
async def _recorder(folder: Path, *settings: str) -> AsyncIterator[Recorder]:
    with tempfile.TemporaryDirectory() as state:
        async with dev_server(Path(state), settings=(QUICK_TIMERS, *settings)) as server:
            # The default identity names the machine.
            client = await Client.connect(
                server.address, data_converter=pydantic_data_converter, identity="steady"
            )
            yield Recorder(client, folder)


async def record(folder: Path) -> None:
    """Write every history into ``folder``.

    Raises:
        ExceptionGroup: a story came out differently, or did not end.
    """
    async with _recorder(folder) as recorder:
        await _together(recorder, remediations, drills, sweeps, alerts)
    async with _recorder(folder, _SUGGEST) as recorder:
        await _together(recorder, long_remediation, guards, fleets, records, storm)


async def _together(recorder: Recorder, *parts: Part) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part(recorder))


def main() -> int:
    """Record beside the old ones first, so that a failed run leaves them as they were."""
    # Some of the stories are of things that fail.
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as place:
        fresh = Path(place)
        asyncio.run(record(fresh))
        FOLDER.mkdir(exist_ok=True)
        for old in FOLDER.glob("*.json"):
            old.unlink()
        for new in sorted(fresh.glob("*.json")):
            (FOLDER / new.name).write_bytes(new.read_bytes())
    sys.stdout.write(f"{len(list(FOLDER.glob('*.json')))} histories in {FOLDER}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
