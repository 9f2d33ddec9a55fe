"""What can be read of the fleet where no worker is there to answer."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest
from fleet.contracts.names import REMEDIATION, SearchAttribute, remediation_id
from fleet.contracts.remediation import Phase, RemediationInput
from fleet.verdicts import Verdict
from tests.parts.temporal import dev_server
from worker import apply
from worker.apply import apply_fleet
from worker.errors import SetupError
from worker.snapshot import Snapshot, fetch_snapshot

pytestmark = pytest.mark.anyio

_ATTRIBUTES = TypedSearchAttributes(
    [
        SearchAttributePair(SearchAttributeKey.for_keyword(name), str(value))
        for name, value in {
            SearchAttribute.SERVER: "gpu-1",
            SearchAttribute.PHASE: Phase.COOLING,
            SearchAttribute.VERDICT: Verdict.HUNG,
        }.items()
    ]
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with dev_server(tmp_path) as server:
        yield await server.client()


async def _start(client: Client) -> None:
    await client.start_workflow(
        REMEDIATION,
        RemediationInput(server="gpu-1"),
        id=remediation_id("gpu-1"),
        task_queue="nobody",
        search_attributes=_ATTRIBUTES,
    )


async def _listed(client: Client, *, closed: bool) -> Snapshot:
    """Temporal's listing is a moment behind."""
    for _ in range(100):
        seen = await fetch_snapshot(client)
        if seen.closed if closed else seen.open:
            return seen
        await asyncio.sleep(0.1)
    pytest.fail("the incident was never listed")


async def test_where_nothing_was_applied_the_rest_is_shown_and_the_lack_is_said(
    client: Client,
) -> None:
    seen = await fetch_snapshot(client)
    assert (seen.fleet, seen.servers, seen.open, seen.closed) == (None, [], [], [])
    assert [line.split(":")[0] for line in seen.problems] == ["the fleet can't be read"]


async def test_an_open_incident_is_told_by_its_search_attributes(client: Client) -> None:
    await _start(client)
    [status] = (await _listed(client, closed=False)).open
    assert (status.server, status.phase, status.verdict) == ("gpu-1", Phase.COOLING, Verdict.HUNG)
    assert status.next_step == "no worker answers for it: start `steady worker`"


async def test_one_that_somebody_terminated_is_closed_without_an_outcome(client: Client) -> None:
    await _start(client)
    await client.get_workflow_handle(remediation_id("gpu-1")).terminate()
    [status] = (await _listed(client, closed=True)).closed
    assert (status.phase, status.outcome) == (Phase.CLOSED, None)
    assert status.next_step == "the workflow terminated without a result"


async def test_a_fleet_that_no_worker_takes_is_refused_with_the_remedy(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "_PATIENCE", timedelta(seconds=1))
    monkeypatch.setattr(apply, "_PATIENCE_A_SERVER", timedelta(0))
    server = {"source": {"kind": "redis", "key": "worker:gpu-1"}}
    fleet = Fleet.model_validate({"servers": {"gpu-1": server}})
    said = r"not applied within 1s: no worker runs \(`steady worker`"
    with pytest.raises(SetupError, match=said):
        await apply_fleet(client, ApplyRequest(fleet=fleet))
