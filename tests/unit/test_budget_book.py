"""When a script that asks for a restart is refused, since steady itself is at it."""

from typing import Any

import pytest

from activities.ledgers import Ledgers
from fleet.config import Fleet
from fleet.contracts.fleet import FleetState
from fleet.contracts.guard import TakeRequest, TakeResult
from fleet.contracts.remediation import Phase, RemediationStatus
from worker import budget
from worker.budget import Counter, Refused

pytestmark = pytest.mark.anyio

_SERVER = {
    "source": {"kind": "status", "url": "http://127.0.0.1:9/"},
    "restart": {"kind": "docker", "host": "box", "name": "worker"},
}
FLEET = Fleet.model_validate(
    {
        "hosts": {"box": {"address": "box.internal", "user": "ops", "key": "/key"}},
        "servers": {"gpu-1": _SERVER},
    }
)
#: Here the command has left, or may leave at any moment, and what it did is not yet known.
ACTING = {
    Phase.TAKING,
    Phase.RESTARTING,
    Phase.SETTLING,
    Phase.FREEING,
    Phase.COOLING,
    Phase.VERIFYING,
}


class Client:
    def get_workflow_handle(self, _id: str) -> None: ...


@pytest.mark.parametrize("phase", Phase)
async def test_he_is_refused_in_each_phase_that_acts_and_in_no_other(
    phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def status(*_: Any) -> RemediationStatus:
        return RemediationStatus(server="gpu-1", phase=phase)

    async def grant(_self: object, request: TakeRequest, _asker: str) -> TakeResult:
        asked.append(request.key)
        return TakeResult(granted=True, left=1)

    monkeypatch.setattr(budget, "ask", status)
    monkeypatch.setattr(Ledgers, "take", grant)
    counter = Counter(Client(), FleetState(fleet=FLEET), "queue")  # type: ignore[arg-type]
    took = await counter.take("gpu-1", "deploy", "new image", "k")

    assert took.granted is (phase not in ACTING)
    assert took.refused_by is (Refused.REMEDIATION if phase in ACTING else None)
    assert asked == ([] if phase in ACTING else ["deploy/k"]), "nothing is taken where refused"
