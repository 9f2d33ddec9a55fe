"""``make record-histories``: one history of every way that steady's workflows can go.

They are lived through on a real server, in about two minutes, and replace what lies in
``tests/histories`` itself: the newest set. Recorded anew only where a change of a workflow is
meant, and the workflows that run have been thought of: ``tests/workflows/test_replay.py`` says when
one was not.

The folders in there, such as ``first``, are never touched: they hold what the workflows of earlier
releases wrote, which may still run when steady is renewed, and must go on. Where the newest set was
released, it is moved to a folder of its own before the next one is recorded.
"""

import asyncio
import dataclasses
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
from fleet.contracts.guard import GuardInput
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
    host_guard_id,
    record_id,
    remediation_id,
)
from fleet.contracts.record import KeepRequest, Look, RecordInput, RecordSignal
from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from fleet.contracts.storm import OpenByHand, StormSignal, StormUpdate
from fleet.policy import Policy, Storm
from fleet.readings import Reading
from fleet.recording import ms
from tests.parts.drilled import DRILLS, DrillWorld
from tests.parts.people import People
from tests.parts.recorded_engines import ENGINE_STORIES, probes
from tests.parts.recorded_guards import guards
from tests.parts.recorder import Part, Recorder
from tests.parts.shard import Shard, busy, gone, hung, shard
from tests.parts.stories import QUICK, STORIES, Scene, Story, escalate
from tests.parts.temporal import QUICK_TIMERS, dev_server
from tests.parts.town import Town
from workflows.alert import Alert
from workflows.drill import Drill
from workflows.fleet import FleetWorkflow
from workflows.guard import ServerGuard
from workflows.host_guard import HostGuard
from workflows.record import ReadingRecord
from workflows.remediation import Remediation
from workflows.storm import StormGuard

FOLDER = Path(__file__).parent / "histories"

SECOND = timedelta(seconds=1)
#: Events after which a workflow is asked to continue as new; in earnest it is thousands.
_SHORT = 40
_SUGGEST = f"limit.historyCount.suggestContinueAsNew={_SHORT}"
_AT_ONCE = 8
#: Seconds that one part may take; the longest takes less than a third of that.
_WITHIN = 240


# --- remediations and their guards ---------------------------------------------------------------


async def remediations(recorder: Recorder) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)
    stories = [*STORIES, *ENGINE_STORIES]
    missing = set(Outcome) - {story.outcome for story in stories}
    assert not missing, f"no story ends as {missing}"

    async def live_through(story: Story) -> None:
        async with slots:
            scene = await story.play(recorder.client)
        await recorder.write(f"remediation-{story.name}", remediation_id(scene.server))

    async with asyncio.TaskGroup() as group:
        for each in stories:
            group.create_task(live_through(each))
    await recorder.write("guard-taken", guard_id("resolved"))
    await recorder.write("guard-given_back", guard_id("restart_failed-not_sent"))
    await recorder.write("guard-held", guard_id("cancelled"))
    await recorder.write("guard-another_restarter", guard_id("resolved-after_another_restarter"))
    machines = {
        "taken": "resolved-on_a_machine",
        "refused": "budget_exhausted-of_its_machine",
        "given_back": "restart_failed-on_a_machine",
        "another_restarter": "resolved-after_another_restarter",
    }
    for name, scene in machines.items():
        await recorder.write(f"host-guard-{name}", host_guard_id(f"{scene}:22"))


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
        "another_process": [_run(busy(0), "a"), _run(busy(30), "b")],
    }
    reminding = Policy(remind_after=60 * SECOND)
    for number, (name, seen) in enumerate(looks.items()):
        async with shard(recorder.client, number, reminding) as made, made.worker():
            made.follows_up = name in ("reminding", "over")
            made.keep_for = timedelta(days=7) if name == "keeping" else None
            if name == "another_process":
                await _guarded(made)
            await made.sweep(*seen[:-1])
            made.unsent = {made.server: "no answer within 5s"} if name == "unsent" else {}
            handle = await made.start(seen[-1])
            await handle.result()
            await recorder.write(f"health-{name}", handle.id, handle.run_id)


def _run(reading: Reading, process: str) -> Reading:
    return dataclasses.replace(reading, process=process)


async def _guarded(made: Shard) -> None:
    await made.client.start_workflow(
        SERVER_GUARD,
        GuardInput(server=made.server, founding=True),
        id=guard_id(made.server),
        task_queue=made.queue,
    )
    made.guarded = {made.server: ""}


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
        workflows=[FleetWorkflow, ServerGuard, HostGuard],
        activities=[ScheduleActivities(client).reconcile, GuardActivities(client).found_guards],
    ):
        handle: WorkflowHandle[Any, Any] = await client.start_workflow(
            FLEET, FleetState(), id=FLEET_ID, task_queue="recorded-fleet"
        )
        fleet: WorkflowHandle[Any, Any] = client.get_workflow_handle(FLEET_ID)
        await fleet.execute_update(FleetUpdate.APPLY, ApplyRequest(fleet=_fleet("gpu-1", "gpu-2")))
        await fleet.execute_update(FleetUpdate.PAUSE, PauseRequest(server="gpu-1", span=SECOND))
        await fleet.execute_update(FleetUpdate.PAUSE, PauseRequest(span=60 * SECOND))
        await fleet.execute_update(FleetUpdate.PAUSE, PauseRequest())
        await fleet.execute_update(FleetUpdate.APPLY, ApplyRequest(fleet=_fleet("gpu-1")))
        while (await fleet.describe()).run_id == handle.first_execution_run_id:
            await fleet.execute_update(FleetUpdate.PAUSE, PauseRequest(span=60 * SECOND))
            await fleet.execute_update(FleetUpdate.PAUSE, PauseRequest())
        await fleet.execute_update(FleetUpdate.APPLY, ApplyRequest(fleet=_fleet("gpu-1")))
        await recorder.write_chain("fleet-applied", handle)
        await _renamed(recorder)


async def _renamed(recorder: Recorder) -> None:
    """A server that is restarted on a machine, and then goes by another name."""
    handle: WorkflowHandle[Any, Any] = await recorder.client.start_workflow(
        FLEET, FleetState(), id=f"{FLEET_ID}-renamed", task_queue="recorded-fleet"
    )
    for name in ("gpu-1", "renamed"):
        request = ApplyRequest(fleet=_fleet(name, container="worker"), founds_all=True)
        await handle.execute_update(FleetUpdate.APPLY, request)
    await recorder.write("fleet-renamed", handle.id, handle.first_execution_run_id)


def _fleet(*names: str, container: str | None = None) -> Fleet:
    """``container``: the first server is restarted, by that name, on a machine."""
    url = "http://127.0.0.1:8000"
    servers: dict[str, dict[str, object]] = {
        name: {"source": {"kind": "status", "url": f"{url}/{name}"}} for name in names
    }
    hosts: dict[str, object] = {}
    if container is not None:
        hosts = {"rack": {"address": "rack.internal", "user": "ops", "key": "/key"}}
        servers[names[0]]["restart"] = {"kind": "docker", "host": "rack", "name": container}
    return Fleet.model_validate(
        {"servers": servers, "hosts": hosts, "fleet": {"sweep_every": "1h"}}
    )


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
        await _together(recorder, remediations, drills, sweeps, probes, alerts)
    async with _recorder(folder, _SUGGEST) as recorder:
        await _together(recorder, long_remediation, guards, fleets, records, storm)


async def _together(recorder: Recorder, *parts: Part) -> None:
    async def live_through(part: Part) -> None:
        try:
            async with asyncio.timeout(_WITHIN):
                await part(recorder)
        except TimeoutError as problem:
            raise TimeoutError(f"{part.__name__} did not end within {_WITHIN} s") from problem

    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(live_through(part))


def replace(fresh: Path, folder: Path) -> None:
    """Put the fresh histories where the newest were; those of earlier releases stay."""
    for old in folder.glob("*.json"):
        old.unlink()
    for new in sorted(fresh.glob("*.json")):
        (folder / new.name).write_bytes(new.read_bytes())


def main() -> int:
    """Record beside the old ones first, so that a failed run leaves them as they were."""
    # Some of the stories are of things that fail.
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as place:
        fresh = Path(place)
        asyncio.run(record(fresh))
        replace(fresh, FOLDER)
    sys.stdout.write(f"{len(list(FOLDER.glob('*.json')))} histories in {FOLDER}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
