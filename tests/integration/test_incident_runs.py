"""One incident over several runs: what continues as new, and what a later sweep takes up again.

The workflow here stands in for the remediation, which continues as new only after days: it writes
the same kind of history and the same results.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from fleet.contracts.guard import Incident, OpenRequest, OpenResult
from fleet.contracts.host import Effect, RestartOrder, RestartResult
from fleet.contracts.names import REMEDIATION, incident_id, remediation_id
from fleet.contracts.remediation import (
    Carried,
    Moment,
    Outcome,
    Phase,
    RemediationInput,
    RemediationStatus,
)
from fleet.statistics import cases
from fleet.verdicts import Verdict
from tests.parts.temporal import dev_server
from worker.incident import Story, UnknownError, find
from worker.span import runs_since

pytestmark = pytest.mark.anyio

QUEUE = "runs"
SOON = timedelta(seconds=20)


def incident(server: str, began: datetime) -> Incident:
    name = incident_id(server, began)
    return Incident(id=name, server=server, first_observed=began, verdict=Verdict.HUNG)


class Parts:
    """``began`` is when the incident of a server was first observed; each run asks for it."""

    began: dict[str, datetime] = {}  # noqa: RUF012 - the one table of this test

    @activity.defn
    async def open_incident(self, request: OpenRequest) -> OpenResult:
        return OpenResult(
            incident=incident(request.server, self.began[request.server]), is_new=True
        )

    @activity.defn
    async def restart_server(self, order: RestartOrder) -> RestartResult:
        return RestartResult(effect=Effect.DONE, detail=order.key)


@workflow.defn(name=REMEDIATION)
class Told:
    """The first run of ``long`` goes on as new; every other ends with one restart."""

    @workflow.run
    async def run(self, request: RemediationInput) -> RemediationStatus:
        carried = request.carried
        timeline = list(carried.timeline) if carried else []
        if carried is None:
            opened = await workflow.execute_activity_method(
                Parts.open_incident,
                OpenRequest(server=request.server),
                start_to_close_timeout=SOON,
            )
            known = opened.incident
        else:
            known = carried.incident
        timeline.append(Moment(at=workflow.now(), text=f"run {workflow.info().run_id}"))
        if request.server == "long" and carried is None:
            kept = Carried(incident=known, outcome=Outcome.ESCALATED, timeline=timeline)
            workflow.continue_as_new(request.model_copy(update={"carried": kept}))
        await workflow.execute_activity_method(
            Parts.restart_server,
            RestartOrder.model_validate(
                {"server": request.server, "expected": {"status": "running"}, "key": known.id}
            ),
            start_to_close_timeout=SOON,
        )
        return RemediationStatus(
            server=request.server,
            incident=known.id,
            phase=Phase.CLOSED,
            verdict=known.verdict,
            outcome=Outcome.RESOLVED,
            since=known.first_observed,
            closed_at=workflow.now(),
            restarts=1,
            timeline=timeline,
        )


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    folder: Path = tmp_path_factory.mktemp("runs")
    parts = Parts()
    async with dev_server(folder) as server:
        connected = await server.client()
        async with Worker(
            connected,
            task_queue=QUEUE,
            workflows=[Told],
            activities=[parts.open_incident, parts.restart_server],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            yield connected


async def heal(client: Client, server: str) -> None:
    await client.execute_workflow(
        REMEDIATION,
        RemediationInput(server=server),
        id=remediation_id(server),
        task_queue=QUEUE,
        result_type=RemediationStatus,
    )


async def listed(client: Client, name: str, runs: int) -> Story:
    """Temporal's listing is a moment behind."""
    story: Story | None = None
    for _ in range(100):
        try:
            story = await find(client, name)
        except UnknownError:
            story = None
        if story is not None and len(story.runs) == runs and story.phase is Phase.CLOSED:
            return story
        await asyncio.sleep(0.1)
    pytest.fail(f"{name} has never had {runs} runs: {story}")


async def test_a_run_that_goes_on_as_new_is_part_of_the_story(client: Client) -> None:
    Parts.began["long"] = datetime.now(UTC)
    await heal(client, "long")
    story = await listed(client, "long", runs=2)
    assert story.outcome is Outcome.RESOLVED
    assert [each.text for each in story.timeline] == [f"run {run}" for run in story.runs]
    assert (story.restarts, len(story.commands)) == (1, 1)


async def test_each_incident_of_a_server_has_the_runs_of_its_own(client: Client) -> None:
    """A restart that could not be carried out is tried again by another run of one incident."""
    first, second = datetime.now(UTC), datetime.now(UTC) + timedelta(milliseconds=5)
    for began in (first, first, second):
        Parts.began["again"] = began
        await heal(client, "again")
    latest = await listed(client, "again", runs=1)
    assert latest.incident == incident_id("again", second)
    older = await listed(client, incident_id("again", first), runs=2)
    assert older.incident == incident_id("again", first)
    assert len(older.commands) == 2
    assert older.restarted_at == min(each.at for each in older.commands)


async def test_the_statistics_count_incidents_and_not_runs(client: Client) -> None:
    Parts.began["counted"] = datetime.now(UTC)
    for _ in range(3):
        await heal(client, "counted")
    await listed(client, "counted", runs=3)
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    runs, problems = await runs_since(client, hour_ago)
    assert problems == []
    assert [run.status.server for run in runs].count("counted") == 3
    assert [case.server for case in cases(runs, hour_ago)].count("counted") == 1
