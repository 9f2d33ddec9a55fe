"""What a drill is told of the budgets: as much as the server and its machine would both grant."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client

from activities.drill import DrillActivities
from fleet.contracts.drill import SurveyRequest
from fleet.contracts.guard import GuardState, HostLedger, Take
from fleet.policy import HostBudget, RollingBudget

pytestmark = pytest.mark.anyio


def taken(count: int) -> list[Take]:
    at = datetime.now(UTC) - timedelta(minutes=1)
    return [Take(key=f"take {number}", at=at, cooldown_until=at) for number in range(count)]


class Guards:
    def __init__(self, server: int | None, machine: int | None = None) -> None:
        self._server, self._machine = server, machine

    async def state(self, server: str) -> GuardState | None:
        takes = self._server
        return GuardState(server=server, takes=taken(takes)) if takes is not None else None

    async def host(self, machine: str) -> HostLedger | None:
        takes = self._machine
        return HostLedger(machine=machine, takes=taken(takes)) if takes is not None else None


async def left(guards: Guards, **machine: Any) -> int:
    hands = DrillActivities(cast("Any", None), cast("Client", None))
    hands._guards = cast("Any", guards)
    asked = SurveyRequest(server="gpu-1", budget=RollingBudget(limit=3), **machine)
    return (await hands._ledger(asked)).left


MACHINE: dict[str, Any] = {"machine": "box:22", "machine_budget": HostBudget(limit=6)}


async def test_it_is_what_both_would_grant() -> None:
    assert await left(Guards(1)) == 2
    assert await left(Guards(1, 2), **MACHINE) == 2
    assert await left(Guards(1, 5), **MACHINE) == 1


async def test_a_ledger_that_is_not_there_grants_nothing() -> None:
    assert await left(Guards(None)) == 0
    assert await left(Guards(0, None), **MACHINE) == 0
