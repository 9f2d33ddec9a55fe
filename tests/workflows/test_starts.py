"""Sweeps that find another process than before, with the guards that book it."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client

from activities.ledgers import GuardReader
from fleet.contracts.fleet import Pause
from fleet.contracts.guard import GuardInput, GuardState, GuardUpdate, HostGuardInput, TakeRequest
from fleet.contracts.names import HOST_GUARD, SERVER_GUARD, guard_id, host_guard_id
from fleet.policy import RollingBudget
from fleet.readings import Reading
from tests.parts.shard import T0, Shard, busy, gone, shard
from tests.parts.temporal import DevServer, dev_server

pytestmark = pytest.mark.anyio

_numbers = itertools.count(100)
Enter = Callable[..., AbstractAsyncContextManager["Watched"]]


def run(seconds: float, process: str) -> Reading:
    return replace(busy(seconds), process=process)


class Watched:
    def __init__(self, client: Client, swept: Shard) -> None:
        self.client, self.shard = client, swept
        self.machine = f"{swept.server}.internal:22"

    async def found(self) -> None:
        guards: list[tuple[str, Any, str]] = [
            (SERVER_GUARD, GuardInput(server=self.shard.server, founding=True), "own"),
            (HOST_GUARD, HostGuardInput(machine=self.machine, founding=True), "host"),
        ]
        for workflow, start, which in guards:
            own = which == "own"
            name = guard_id(self.shard.server) if own else host_guard_id(self.machine)
            await self.client.start_workflow(workflow, start, id=name, task_queue=self.shard.queue)
        self.shard.guarded = {self.shard.server: self.machine}

    async def take(self, key: str, by: str = "steady") -> None:
        request = TakeRequest(
            server=self.shard.server,
            incident="",
            key=key,
            budget=RollingBudget(limit=9),
            cooldown=timedelta(minutes=10),
            by=by,
        )
        handle = self.client.get_workflow_handle(guard_id(self.shard.server))
        await handle.execute_update(GuardUpdate.TAKE, request)

    async def guard(self) -> GuardState:
        state = await GuardReader(self.client).state(self.shard.server)
        assert state is not None
        return state

    async def by(self) -> list[str]:
        return [taken.by for taken in (await self.guard()).takes]

    async def on_the_machine(self) -> list[str]:
        ledger = await GuardReader(self.client).host(self.machine)
        assert ledger is not None
        return [taken.by for taken in ledger.takes]

    @property
    def told(self) -> list[str]:
        return [alert.cause for alert in self.shard.told]


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    async with dev_server(tmp_path_factory.mktemp("temporal")) as running:
        yield running


@pytest.fixture
def enter(server: DevServer) -> Enter:
    @asynccontextmanager
    async def enter() -> AsyncIterator[Watched]:
        client = await server.client()
        async with shard(client, next(_numbers)) as swept, swept.worker():
            watched = Watched(client, swept)
            await watched.found()
            yield watched

    return enter


async def test_a_start_that_steady_did_not_order_counts_in_both_ledgers_and_is_told_once(
    enter: Enter,
) -> None:
    async with enter() as w:
        await w.shard.sweep(run(0, "a"), run(30, "b"), run(60, "b"), run(90, "c"))

        assert await w.by() == ["foreign", "foreign"]
        assert await w.on_the_machine() == ["foreign", "foreign"]
        assert (await w.guard()).cooldown_until is not None
        assert w.told == ["foreign_restart"]
        assert "another restarter is at work" in w.shard.told[0].title


async def test_the_process_of_a_restart_that_steady_took_is_its_own(enter: Enter) -> None:
    async with enter() as w:
        await w.shard.sweep(run(0, "a"))
        await w.take("ours")
        await w.shard.sweep(gone(30), run(60, "b"))

        assert await w.by() == ["steady"]
        assert w.told == []


async def test_the_first_sight_of_a_server_is_no_start(enter: Enter) -> None:
    async with enter() as w:
        await w.shard.sweep(run(0, "a"))
        assert await w.by() == []


async def test_a_start_while_steady_did_not_look_counts_too(enter: Enter) -> None:
    async with enter() as w:
        await w.shard.sweep(run(0, "a"), run(7200, "b"))
        assert await w.by() == ["foreign"]


async def test_nobody_is_told_during_a_pause_and_it_counts(enter: Enter) -> None:
    async with enter() as w:
        w.shard.paused = {w.shard.server: Pause(until=T0 + timedelta(days=1))}
        await w.shard.sweep(run(0, "a"), run(30, "b"))

        assert await w.by() == ["foreign"]
        assert w.told == []


async def test_a_start_that_a_lost_guard_hears_of_finds_it_used_up(enter: Enter) -> None:
    async with enter() as w:
        await w.shard.sweep(run(0, "a"))
        await w.guard()
        await w.client.get_workflow_handle(guard_id(w.shard.server)).terminate("by hand")
        await w.shard.sweep(run(30, "b"))

        state = await w.guard()
        assert state.lost_at is not None
        assert [taken.by for taken in state.takes] == ["foreign"]
