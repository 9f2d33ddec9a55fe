"""A world on virtual time with its guard and a worker, for the length of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from temporalio.worker import Worker

from activities.guards import GuardActivities
from fleet.contracts.guard import GuardInput, GuardState
from fleet.contracts.names import SERVER_GUARD, TASK_QUEUE, guard_id
from tests.parts.world import World
from worker.runner import PunctualRunner
from workflows.guard import ServerGuard
from workflows.remediation import Remediation

W = TypeVar("W", bound=World)


@asynccontextmanager
async def entered(world: W, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[W]:
    """Let the world's server hang, and let a worker run until the body ends.

    The time-skipping server stops skipping for good once a child outlives its parent, so here
    alerts are only written down; tests/integration sends them as the workflows that they are.
    """
    client = world.env.client
    await world.freeze()
    monkeypatch.setattr("workflows.case.raise_alert", world.write_down)
    guards = GuardActivities(client)
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=[Remediation, ServerGuard],
        activities=[
            *world.activities,
            guards.open_incident,
            guards.take_budget,
            guards.give_back,
            guards.close_incident,
            guards.report_starts,
        ],
        workflow_runner=PunctualRunner(),
    )
    async with worker:
        await client.start_workflow(
            SERVER_GUARD,
            GuardInput(server=world.server, founding=True),
            id=guard_id(world.server),
            task_queue=TASK_QUEUE,
        )
        yield world


async def guard_of(world: World) -> GuardState:
    handle = world.env.client.get_workflow_handle(guard_id(world.server))
    state: GuardState = await handle.query(ServerGuard.state)
    return state
