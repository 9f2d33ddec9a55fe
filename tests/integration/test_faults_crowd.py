"""Many at once: two workers, fifty detectors, and a server that hangs a fourth time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.reports import ReportActivities
from fleet.contracts.names import TASK_QUEUE
from fleet.contracts.remediation import Outcome, Phase
from fleet.contracts.sweep import Observation, Report, ReportBatch
from fleet.readings import Reading, WorkState
from fleet.verdicts import Verdict
from tests.parts.rig import Rig
from tests.parts.watched import Plan, Server, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(180),
]

CLIENTS, EACH = 5, 10
#: The detectors come before the sweep, which looks twice.
STALE = timedelta(seconds=3)
#: A hang is over in some ten seconds, so that four of them fit into a test.
SWIFT = {"persist_hung": "0s", "cooldown": "1s", "verify_after": "1s", "stale_after": "1s"}


@pytest.fixture(scope="module")
async def hung(rig: Rig) -> AsyncIterator[dict[str, Server]]:
    """Frozen servers, and two workers that both look after them."""
    second = await rig.start_worker()
    plans = {"fifty": Plan({"stale_after": "3s"}), "fourth": Plan(SWIFT), "pair": Plan()}
    async with rig.fleet(plans) as servers:
        await asyncio.gather(*(server.freeze() for server in servers.values()))
        yield servers
    await asyncio.to_thread(second.stop)


async def _is_healed_once(server: Server) -> None:
    status = await server.ends()
    assert status.outcome is Outcome.RESOLVED
    assert len(await server.runs()) == 1
    assert (await server.facts()).starts == 2
    guard = await server.guard()
    assert [taken.incident for taken in guard.takes] == [status.incident]
    await server.is_told("resolved")
    assert server.causes == ["confirmed", "resolved", "restarting"]


async def _heartbeat(server: Server) -> datetime:
    with server.rig.store.client() as store:
        record = await asyncio.to_thread(store.hget, f"worker:{server.name}", "heartbeat")
    assert isinstance(record, bytes)
    return datetime.fromtimestamp(float(record), UTC)


async def test_fifty_detectors_make_one_workflow_and_one_restart(
    hung: dict[str, Server], rig: Rig
) -> None:
    server = hung["fifty"]
    heartbeat = await _heartbeat(server)
    clients = [await rig.temporal.client() for _ in range(CLIENTS)]

    def batch(number: int) -> ReportBatch:
        at = datetime.now(UTC)
        reading = Reading(
            server=server.name, at=at, state=WorkState.PROCESSING, heartbeat=heartbeat
        )
        seen = Observation(
            server=server.name,
            verdict=Verdict.HUNG,
            since=at,
            reading=reading,
            key=f"detector-{number}",
        )
        return ReportBatch(reports=[Report(observation=seen)], search_attributes=True)

    async def detect(number: int) -> None:
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, task_queue=TASK_QUEUE)
        activities = ReportActivities(clients[number % CLIENTS])
        await environment.run(activities.report, batch(number))

    while datetime.now(UTC) < heartbeat + STALE:
        await asyncio.sleep(0.05)
    await asyncio.gather(*(detect(number) for number in range(CLIENTS * EACH)))
    await _is_healed_once(server)
    status = await server.ends()
    heard = [moment for moment in status.timeline if moment.text.startswith("sweep: hung")]
    assert len(heard) >= CLIENTS * EACH // 2


async def test_two_workers_make_one_workflow_and_one_restart(
    hung: dict[str, Server], rig: Rig
) -> None:
    assert len([each for each in rig.workers if each.process.poll() is None]) == 2
    await _is_healed_once(hung["pair"])


async def test_the_fourth_hang_within_a_day_is_refused_and_goes_to_a_person(
    hung: dict[str, Server],
) -> None:
    server = hung["fourth"]
    for number in range(1, 4):

        async def is_over(number: int = number) -> bool:
            return len(await server.runs()) == number and server.causes.count("resolved") == number

        await until(is_over, f"hang {number} is healed")
        assert (await server.facts()).starts == number + 1
        await server.freeze()
    status = await server.comes_to(Phase.ESCALATED)
    assert status.outcome is Outcome.BUDGET_EXHAUSTED
    assert (await server.facts()).starts == 4
    assert len((await server.guard()).takes) == 3
    await server.is_told("budget_exhausted")
    assert server.pages == ["budget_exhausted"]

    await server.thaw()
    assert (await server.ends()).outcome is Outcome.BUDGET_EXHAUSTED
    await server.is_told("recovered_later")
    assert (await server.facts()).starts == 4
