"""An engine's port that is closed: right after a restart by steady it loads, else it is missing."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities import readings
from activities.readings import ReadingActivities
from fleet.config import ServerSpec
from fleet.contracts.fleet import PresentPolicy, ShardSlice
from fleet.contracts.guard import GuardState, Incident, Take
from fleet.contracts.sweep import SweepRequest
from fleet.engine_sources import EngineSource
from fleet.engines.judge import find
from fleet.policy import Policy
from fleet.verdicts import Verdict
from tests.parts.ports import free_port

pytestmark = pytest.mark.anyio

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
POLICY = Policy(load_limit=20 * MINUTE)


class Applied:
    """What ``PolicyReader`` answers of a fleet of engines whose ports are closed."""

    def __init__(self, *names: str) -> None:
        self._specs = {
            name: ServerSpec(
                name=name,
                source=EngineSource(url=f"http://127.0.0.1:{free_port()}"),
                store=None,
                restart=None,
                host=None,
                policy=POLICY,
            )
            for name in names
        }

    async def present(self, server: str) -> PresentPolicy:
        return PresentPolicy(version=1, spec=self._specs.get(server))

    async def shard(self, number: int) -> ShardSlice:
        return ShardSlice(version=1, interval=MINUTE, specs=list(self._specs.values()))


class Guards:
    """What each server's guard says: a state, none where it does not run, or it fails so."""

    def __init__(self, **says: GuardState | Exception | None) -> None:
        self._says = says

    async def state(self, server: str) -> GuardState | None:
        said = self._says[server]
        if isinstance(said, TimeoutError):
            await asyncio.sleep(600)
        if isinstance(said, Exception):
            raise said
        return said


def restarted(*ago: timedelta, is_open: bool = False) -> GuardState:
    now = datetime.now(UTC)
    takes = [
        Take(key=f"{at}", at=now - at, cooldown_until=now - at, incident=f"v@{at}") for at in ago
    ]
    first = now - 30 * HOUR
    opened = Incident(id=takes[-1].incident, server="v", first_observed=first) if is_open else None
    return GuardState(server="v", takes=takes, incident=opened)


async def verdicts(guards: Guards, *names: str) -> dict[str, Verdict]:
    """What a sweep of the shard makes of each, by one look."""
    reading = ReadingActivities(Applied(*names), None, guards)
    try:
        seen = await ActivityEnvironment().run(reading.read_shard, SweepRequest(shard=0))
    finally:
        await reading.close()
    return {each.server: find(each, None, POLICY).verdict for each in seen.readings}


async def test_a_port_that_is_closed_right_after_a_restart_by_steady_is_a_load() -> None:
    guards = Guards(
        just=restarted(MINUTE),
        again=restarted(9 * HOUR, 2 * MINUTE),
        never=restarted(),
        unguarded=None,
    )
    assert await verdicts(guards, "just", "again", "never", "unguarded") == {
        "just": Verdict.LOADING,
        "again": Verdict.LOADING,
        "never": Verdict.MISSING,
        "unguarded": Verdict.MISSING,
    }


async def test_one_that_never_came_back_is_overdue_and_one_that_worked_since_is_missing() -> None:
    guards = Guards(
        away=restarted(21 * MINUTE, is_open=True),
        worked=restarted(21 * MINUTE),
        yesterday=restarted(20 * HOUR),
    )
    assert await verdicts(guards, "away", "worked", "yesterday") == {
        "away": Verdict.OVERDUE,
        "worked": Verdict.MISSING,
        "yesterday": Verdict.MISSING,
    }


async def test_a_guard_that_can_not_be_asked_is_one_servers_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readings, "_GUARD_WITHIN", SECOND / 5)
    guards = Guards(
        down=RPCError("no worker", RPCStatusCode.UNAVAILABLE, b""),
        silent=TimeoutError(),
        strange=ValueError("another version wrote it"),
        just=restarted(MINUTE),
    )
    async with asyncio.timeout(30):
        seen = await verdicts(guards, "down", "silent", "strange", "just")
    assert seen == {
        "down": Verdict.MISSING,
        "silent": Verdict.MISSING,
        "strange": Verdict.MISSING,
        "just": Verdict.LOADING,
    }
