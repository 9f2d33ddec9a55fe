"""200 incidents at once on a real Temporal: what of them reaches ``storm-guard``, and who runs."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from activities.storms import StormActivities, StormReader
from fleet.contracts.fleet import StormTerms
from fleet.contracts.names import STORM_GUARD_ID
from fleet.contracts.storm import SLOT_SIGNAL, Look, SlotAsk, SlotFree, SlotWord
from fleet.policy import Storm
from tests.parts.people import People
from tests.parts.temporal import QUICK_TIMERS, dev_server
from worker.runner import PunctualRunner
from workflows.alert import Alert
from workflows.storm import StormGuard

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

INCIDENTS = 200
QUEUE = "crowd"
#: So few events that storm-guard continues as new in the middle of it, again and again.
RENEWED = "limit.historyCount.suggestContinueAsNew=300"
TERMS = StormTerms(version=1, servers=INCIDENTS, shards=2, storm=Storm())
_WITHIN = timedelta(seconds=30)


@workflow.defn(sandboxed=False)
class Waits:
    """Asks for a slot as a remediation does, restarts in it, and gives it back."""

    @workflow.init
    def __init__(self, server: str) -> None:
        self._server, self._words = server, list[SlotWord]()

    @workflow.run
    async def run(self, server: str) -> int:
        info = workflow.info()
        run = info.first_execution_run_id
        ask = SlotAsk(
            server=server,
            workflow_id=info.workflow_id,
            run=run,
            takes=timedelta(minutes=10),
            terms=TERMS,
        )
        await workflow.execute_activity_method(
            StormActivities.ask_slot, ask, start_to_close_timeout=_WITHIN
        )
        await workflow.wait_condition(lambda: any(word.granted for word in self._words))
        await workflow.execute_activity_method(
            Restarts.restart, server, start_to_close_timeout=_WITHIN
        )
        free = SlotFree(workflow_id=info.workflow_id, run=run, number=1)
        await workflow.execute_activity_method(
            StormActivities.release_slot, free, start_to_close_timeout=_WITHIN
        )
        return sum(word.granted for word in self._words)

    @workflow.signal(name=SLOT_SIGNAL)
    def slot(self, *words: Any) -> None:
        self._words.append(SlotWord.model_validate(words[0]))


@workflow.defn(sandboxed=False)
class GoesOn:
    """Continues as new once, and waits to be told to end."""

    @workflow.init
    def __init__(self, again: bool) -> None:
        self._again, self._done = again, False

    @workflow.run
    async def run(self, again: bool) -> None:
        if again:
            workflow.continue_as_new(False)
        await workflow.wait_condition(lambda: self._done)

    @workflow.signal
    def end(self) -> None:
        self._done = True


class Restarts:
    """How many run side by side, at most, and who was restarted."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.done: list[str] = []

    @activity.defn
    async def restart(self, server: str) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.2)
        self.done.append(server)
        self.now -= 1


class Limits:
    async def storm(self) -> StormTerms:
        return TERMS


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with dev_server(tmp_path, settings=(QUICK_TIMERS, RENEWED)) as server:
        yield await server.client()


async def test_200_incidents_at_once_are_all_heard_and_never_more_than_the_limit_run(
    client: Client,
) -> None:
    restarts = Restarts()
    storms = StormActivities(client, Limits())
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Waits, StormGuard, Alert],
        activities=[
            storms.ask_slot,
            storms.release_slot,
            storms.look_at_slots,
            restarts.restart,
            *People().activities,
        ],
        workflow_runner=PunctualRunner(),
    ):
        names = [f"gpu-{number}" for number in range(INCIDENTS)]
        handles = await asyncio.gather(
            *(
                client.start_workflow(Waits.run, name, id=f"remediate/{name}", task_queue=QUEUE)
                for name in names
            )
        )
        grants = await asyncio.gather(*(handle.result() for handle in handles))
        async with asyncio.timeout(30):
            while (await StormReader(client).state()).holders:
                await asyncio.sleep(0.1)
        state = await StormReader(client).state()
    assert sorted(restarts.done) == sorted(names)
    assert restarts.most <= TERMS.at_once == 40
    assert grants == [1] * INCIDENTS
    assert (state.waiting, state.holders) == ([], [])
    history = await _of_storm_guard(client)
    assert [said for event in history if (said := _trouble(event))] == []
    events = [event.event_type for event in history]
    assert events.count(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED) >= 2 * INCIDENTS
    assert EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW in events


def _trouble(event: HistoryEvent) -> str:
    """What a task of storm-guard failed of; a signal that came while it was renewed is no trouble:
    the server has the task done again, with the signal.
    """
    failed = event.workflow_task_failed_event_attributes
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        return ""
    if failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND:
        return ""
    return f"{WorkflowTaskFailedCause.Name(failed.cause)}: {failed.failure.message}"


async def _of_storm_guard(client: Client) -> list[HistoryEvent]:
    """All events of all its runs."""
    events: list[HistoryEvent] = []
    run = (await client.get_workflow_handle(STORM_GUARD_ID).describe()).run_id
    while run:
        history = await client.get_workflow_handle(STORM_GUARD_ID, run_id=run).fetch_history()
        events += history.events
        run = history.events[
            0
        ].workflow_execution_started_event_attributes.continued_execution_run_id
    return events


async def test_a_lease_is_held_as_long_as_its_chain_of_runs_goes_on(client: Client) -> None:
    storms = StormActivities(client, Limits())
    async with Worker(client, task_queue=QUEUE, workflows=[GoesOn]):
        handle = await client.start_workflow(GoesOn.run, True, id="remediate/a", task_queue=QUEUE)
        first = handle.first_execution_run_id
        assert first is not None
        while (await handle.describe()).run_id == first:
            await asyncio.sleep(0.05)
        mine = SlotFree(workflow_id=handle.id, run=first, number=1)
        others = [
            SlotFree(workflow_id=handle.id, run="an earlier one", number=1),
            SlotFree(workflow_id="remediate/never", run="r", number=1),
        ]
        look = Look(leases=[mine, *others])
        looked = await ActivityEnvironment().run(storms.look_at_slots, look)
        assert (looked.closed, looked.terms) == (others, TERMS)
        await client.get_workflow_handle(handle.id).signal(GoesOn.end)
        await client.get_workflow_handle(handle.id).result()
        looked = await ActivityEnvironment().run(storms.look_at_slots, look)
        assert looked.closed == [mine, *others]
