"""``steady budget`` against a real Temporal and worker; and a ledger lost in each way there is."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import Worker

from activities.ledgers import GuardReader, Ledgers
from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest, FleetUpdate, PauseRequest
from fleet.contracts.guard import HostShare, TakeRequest, TakeResult
from fleet.contracts.names import (
    FLEET_ID,
    HOST_GUARD,
    SERVER_GUARD,
    guard_id,
    host_guard_id,
)
from fleet.policy import RollingBudget
from tests.parts.ended import Ended
from tests.parts.temporal import DevServer, dev_server
from worker.apply import apply_fleet
from worker.connection import connect
from worker.settings import Settings
from worker.worker import build_worker
from workflows.guard import ServerGuard
from workflows.host_guard import HostGuard

pytestmark = pytest.mark.anyio

STEADY = Path(sys.executable).with_name("steady")
MACHINE = "rack.internal:22"
DAY = timedelta(hours=24)
NAMES = ("one", "two", "keyed", "paused", "full", "shown")


def fleet() -> Fleet:
    return Fleet.model_validate(
        {
            "defaults": {"budget": {"limit": 2}, "cooldown": "1s", "verify_after": "1s"},
            "hosts": {
                "rack": {
                    "address": "rack.internal",
                    "user": "ops",
                    "key": "/key",
                    "budget": {"limit": 8},
                }
            },
            "servers": {
                name: {
                    "source": {"kind": "status", "url": f"http://127.0.0.1:9/{name}"},
                    "restart": {"kind": "docker", "host": "rack", "name": name},
                    # Long enough that no slow machine has it over between two commands.
                    **(
                        {"policy": {"cooldown": "5m", "verify_after": "5m"}}
                        if name == "two"
                        else {}
                    ),
                }
                for name in NAMES
            },
            "fleet": {"sweep_every": "1h"},
        }
    )


@dataclass
class Place:
    temporal: DevServer
    client: Client
    folder: Path

    async def steady(self, *arguments: object) -> Ended:
        process = await asyncio.create_subprocess_exec(
            STEADY,
            "budget",
            *map(str, arguments),
            env={
                **os.environ,
                "TEMPORAL_ADDRESS": self.temporal.address,
                "STEADY_STATE_DIR": str(self.folder / "state"),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ended(process.returncode or 0, out.decode(), err.decode())

    async def take(self, name: str, *more: object) -> Ended:
        return await self.steady("take", name, "--by", "deploy", "--why", "new image", *more)

    async def shown(self, name: str) -> Any:
        return (await self.steady("show", name, "--json")).document["servers"][0]


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("budget")
    async with AsyncExitStack() as stack:
        temporal = await stack.enter_async_context(dev_server(folder))
        settings = Settings(state_dir=folder / "state")
        client = await connect(settings, address=temporal.address)
        await stack.enter_async_context(build_worker(client, settings))
        await apply_fleet(client, ApplyRequest(fleet=fleet()))
        yield Place(temporal, client, folder)


async def test_a_script_takes_until_the_budget_is_used_up_and_is_told_when_the_next_is_free(
    place: Place,
) -> None:
    first = await place.take("one")
    await asyncio.sleep(1.2)
    second = await place.take("one", "--json")
    await asyncio.sleep(1.2)
    third = await place.take("one")

    assert (first.code, second.code, third.code) == (0, 0, 1)
    assert "granted, 1 left" in first.out
    assert second.document["left"] == 0
    assert "2 of 2 restarts in 1d are used; the next is free at " in third.out


async def test_asked_again_with_its_key_it_counts_once(place: Place) -> None:
    codes = [(await place.take("keyed", "--key", "rollout-7")).code for _ in range(2)]
    shown = await place.shown("keyed")

    assert codes == [0, 0]
    assert [taken["key"] for taken in shown["own"]["takes"]] == ["deploy/rollout-7"]
    assert (shown["own"]["used"], shown["own"]["left"]) == (1, 1)


async def test_while_a_restart_cools_down_or_the_server_is_paused_it_is_refused(
    place: Place,
) -> None:
    await place.take("two", "--key", "first")
    cooling = await place.take("two", "--key", "second", "--json")
    kept = await place.shown("two")
    pause = PauseRequest(server="paused", span=timedelta(hours=1), who="ann", why="new driver")
    await place.client.get_workflow_handle(FLEET_ID).execute_update(FleetUpdate.PAUSE, pause)
    paused = await place.take("paused", "--json")

    assert (cooling.code, cooling.document["refused_by"]) == (1, "cooldown")
    assert cooling.document["next_at"] == kept["own"]["cooldown_until"]
    assert [taken["key"] for taken in kept["own"]["takes"]] == ["deploy/first"]
    assert (paused.code, paused.document["refused_by"]) == (1, "pause")
    assert "paused by ann: new driver" in paused.document["why"]


async def test_a_person_fills_it_up_again_and_that_is_shown(place: Place) -> None:
    await place.take("full", "--key", "1")
    await asyncio.sleep(1.2)
    await place.take("full", "--key", "2")
    await asyncio.sleep(1.2)

    unsaid = await place.steady("reset", "full", "--why", "mended")
    still = await place.take("full", "--key", "3")
    done = await place.steady("reset", "full", "--why", "mended", "--yes")
    granted = await place.take("full", "--key", "4")
    shown = await place.steady("show", "full")

    assert (unsaid.code, still.code, done.code, granted.code) == (1, 1, 0, 0)
    assert "1 of 2 restarts left in 1d" in shown.out
    assert ": mended" in shown.out
    assert shown.out.count("counts no longer") == 2


async def test_of_a_machine_too(place: Place) -> None:
    done = await place.steady("reset", "shown", "--host", "--why", "moved", "--yes", "--json")
    shown = await place.shown("shown")

    assert done.document["machine"] == MACHINE
    assert shown["host"]["left"] == 8
    assert shown["host"]["resets"][0]["why"] == "moved"


async def test_all_servers_are_one_line_each(place: Place) -> None:
    shown = await place.steady("show")
    assert [line.split(":")[0] for line in shown.out.splitlines()] == sorted(NAMES)


@pytest.mark.parametrize(
    "arguments",
    [
        ("take", "one", "--by", " ", "--why", "x"),
        ("take", "nobody", "--by", "a", "--why", "b"),
        ("reset", "one", "--yes"),
    ],
)
async def test_wrong_usage_is_exit_code_2(place: Place, arguments: tuple[str, ...]) -> None:
    assert (await place.steady(*arguments)).code == 2


# --- a ledger that can't be read is used up ------------------------------------------------------


@workflow.defn(name=SERVER_GUARD, sandboxed=False)
class EndingGuard:
    """A guard of another make, which ends."""

    @workflow.run
    async def run(self, start: Any) -> None: ...


@workflow.defn(name=HOST_GUARD, sandboxed=False)
class EndingHostGuard:
    @workflow.run
    async def run(self, start: Any) -> None: ...


class Lost:
    """A ledger that is gone in one way or another; ``of_host``: the machine's, not the server's."""

    def __init__(self, client: Client, name: str, *, of_host: bool) -> None:
        self.client, self.name, self.of_host = client, name, of_host
        self.queue, self.machine = f"lost-{name}", f"{name}:22"
        self.id = host_guard_id(self.machine) if of_host else guard_id(name)
        self.type = HOST_GUARD if of_host else SERVER_GUARD

    @asynccontextmanager
    async def worker(self, *workflows: type) -> AsyncIterator[None]:
        async with Worker(
            self.client, task_queue=self.queue, workflows=workflows or (ServerGuard, HostGuard)
        ):
            yield

    async def start(self, given: Any = None, **more: Any) -> None:
        both = {"server": self.name, "machine": self.machine, "founding": True, **more}
        start = given if given is not None else both
        await self.client.start_workflow(self.type, start, id=self.id, task_queue=self.queue)

    async def closed(self) -> None:
        handle = self.client.get_workflow_handle(self.id)
        while (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
            await asyncio.sleep(0.05)

    async def take(self) -> TakeResult:
        if self.of_host:
            founding = {"server": self.name, "founding": True}
            await self.client.start_workflow(
                SERVER_GUARD, founding, id=guard_id(self.name), task_queue=self.queue
            )
        share = HostShare(machine=self.machine, budget=RollingBudget(limit=3, window=DAY))
        request = TakeRequest(
            server=self.name,
            incident="",
            key="first",
            budget=RollingBudget(limit=3, window=DAY),
            cooldown=timedelta(0),
            host=share if self.of_host else None,
        )
        return await Ledgers(self.client, self.queue).take(request, "asker")


async def terminated(lost: Lost) -> None:
    await lost.start()
    await lost.client.get_workflow_handle(lost.id).terminate("by hand")


async def cancelled(lost: Lost) -> None:
    async with lost.worker():
        await lost.start()
        await lost.client.get_workflow_handle(lost.id).cancel()
        await lost.closed()


async def completed(lost: Lost) -> None:
    async with lost.worker(EndingGuard, EndingHostGuard):
        await lost.start()
        await lost.closed()


async def deleted_by_retention(lost: Lost) -> None:
    await terminated(lost)
    request = DeleteWorkflowExecutionRequest(
        namespace=lost.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=lost.id),
    )
    await lost.client.workflow_service.delete_workflow_execution(request)


async def never_there(_lost: Lost) -> None: ...


async def carried_in_pieces(lost: Lost) -> None:
    await lost.start(state={"takes": "none of them", "server": 5, "machine": 5})


async def carried_as_nonsense(lost: Lost) -> None:
    await lost.start("no guard's input")


@pytest.mark.parametrize("of_host", [False, True], ids=["server", "host"])
@pytest.mark.parametrize(
    "lose",
    [
        terminated,
        cancelled,
        completed,
        deleted_by_retention,
        never_there,
        carried_in_pieces,
        carried_as_nonsense,
    ],
    ids=lambda lose: lose.__name__,
)
async def test_a_ledger_that_is_lost_is_used_up(place: Place, lose: Any, of_host: bool) -> None:
    lost = Lost(place.client, f"{lose.__name__}-{of_host}", of_host=of_host)
    await lose(lost)

    async with lost.worker():
        took = await lost.take()
        reader = GuardReader(place.client)
        kept = await (reader.host(lost.machine) if of_host else reader.state(lost.name))

    assert not took.granted
    assert "the ledger's history was lost" in took.why
    assert kept is not None
    assert kept.lost_at is not None


async def test_what_nobody_answers_for_is_shown_as_such_and_grants_nothing(
    tmp_path: Path,
) -> None:
    async with dev_server(tmp_path) as temporal:
        settings = Settings(state_dir=tmp_path / "state")
        client = await connect(settings, address=temporal.address)
        async with build_worker(client, settings):
            await apply_fleet(client, ApplyRequest(fleet=fleet()))
        nobody = Place(temporal, client, tmp_path)
        shown, took = await asyncio.gather(nobody.steady("show", "one"), nobody.take("one"))

    assert (shown.code, took.code) == (3, 3)
    assert "worker" in took.err
