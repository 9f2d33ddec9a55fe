"""Runs that have ended are told once each, on a real server, whose listing is a moment behind."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from fleet.contracts.alerts import AlertResult
from tests.parts.temporal import dev_server
from worker import closed
from worker.closed import ClosedRuns, Ended

pytestmark = pytest.mark.anyio

QUEUE = "closed"


@workflow.defn(name="Brief", sandboxed=False)
class Brief:
    """Ends as it is told: well, badly, oddly, after going on as a new run, or never."""

    @workflow.run
    async def run(self, how: str) -> AlertResult | str:
        if how == "fails":
            raise ApplicationError("as told")
        if how == "again":
            workflow.continue_as_new("well")
        if how == "never":
            await workflow.wait_condition(lambda: False)
        if how == "odd":
            return "no alert's result"
        return AlertResult(delivered=True, detail=how)


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    folder: Path = tmp_path_factory.mktemp("closed")
    async with dev_server(folder) as server:
        client = await server.client()
        async with Worker(client, task_queue=QUEUE, workflows=[Brief]):
            yield client


@pytest.fixture
async def before(client: Client) -> ClosedRuns[AlertResult]:
    """A reader that has told of everything that the tests before have left."""
    runs = ClosedRuns(client, "Brief", AlertResult)
    while await runs.new():
        pass
    return runs


async def start(client: Client, *hows: str) -> list[str]:
    """Start a run for each, and wait for those that end by themselves."""
    names = [f"{how}-{number}-{id(hows)}" for number, how in enumerate(hows)]
    handles = [
        await client.start_workflow("Brief", how, id=name, task_queue=QUEUE)
        for how, name in zip(hows, names, strict=True)
    ]
    ending = [handle for how, handle in zip(hows, handles, strict=True) if how != "never"]
    await asyncio.gather(*(handle.result() for handle in ending), return_exceptions=True)
    return names


async def told(runs: ClosedRuns[AlertResult], count: int) -> list[Ended[AlertResult]]:
    """Look until so many are told, and a while longer."""
    found: list[Ended[AlertResult]] = []
    for _ in range(100):
        found += await runs.new()
        if len(found) >= count:
            break
        await asyncio.sleep(0.1)
    for _ in range(5):
        found += await runs.new()
        await asyncio.sleep(0.1)
    return found


async def test_each_is_told_once_oldest_first_with_its_result(
    client: Client, before: ClosedRuns[AlertResult]
) -> None:
    names = [*await start(client, "well"), *await start(client, "well", "fails")]
    found = await told(before, 3)
    assert sorted(each.run.id for each in found) == sorted(names)
    assert [each.result.delivered for each in found if each.result is not None] == [True, True]
    assert [each.run.id for each in found if each.result is None] == [names[2]]
    times = [each.run.close_time for each in found]
    assert times == sorted(times, key=str)


async def test_a_run_that_goes_on_as_a_new_one_has_not_ended(
    client: Client, before: ClosedRuns[AlertResult]
) -> None:
    [name] = await start(client, "again")
    [ended] = await told(before, 1)
    assert ended.run.id == name
    assert ended.result == AlertResult(delivered=True, detail="well")


async def test_one_that_somebody_terminated_is_told_without_a_result(
    client: Client, before: ClosedRuns[AlertResult]
) -> None:
    [name] = await start(client, "never")
    assert await before.new() == []
    await client.get_workflow_handle(name).terminate()
    [ended] = await told(before, 1)
    assert (ended.run.id, ended.result) == (name, None)


async def test_a_result_that_is_none_of_its_kind_holds_up_no_other(
    client: Client, before: ClosedRuns[AlertResult]
) -> None:
    names = await start(client, "odd", "well")
    found = await told(before, 2)
    assert {each.run.id for each in found if each.result is None} == {names[0]}
    assert {each.run.id for each in found} == set(names)


async def test_a_reader_that_begins_later_tells_of_all_that_temporal_keeps(
    client: Client, before: ClosedRuns[AlertResult]
) -> None:
    await start(client, "well", "fails")
    await told(before, 2)
    whole = await told(ClosedRuns(client, "Brief", AlertResult), 2)
    assert Counter(each.run.run_id for each in whole).most_common(1)[0][1] == 1
    assert len(whole) >= 2


async def test_of_many_the_rest_is_told_by_the_next_looks(
    client: Client, before: ClosedRuns[AlertResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed, "_MOST_READ", 3)
    names = await start(client, *["well"] * 8)
    found = await told(before, 8)
    assert sorted(each.run.id for each in found) == sorted(names)


async def test_one_whose_result_can_not_be_read_yet_is_told_when_it_can(
    client: Client, before: ClosedRuns[AlertResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    [name] = await start(client, "well")
    with monkeypatch.context() as broken:
        broken.setattr(closed, "_PATIENCE", timedelta(0))
        assert await told(before, 1) == []
    [ended] = await told(before, 1)
    assert ended.run.id == name


async def test_what_was_told_is_forgotten_when_no_listing_can_have_it_any_more(
    client: Client, before: ClosedRuns[AlertResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed, "_LATE", timedelta(0))
    for _ in range(3):
        await start(client, "well")
        assert len(await told(before, 1)) == 1
    assert len(before._told) == 1
