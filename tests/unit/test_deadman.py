"""The dead man's switch against a real HTTP receiver; fleet and sweeps are as the test says."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from fleet.config import Fleet, SecretRef
from fleet.contracts.fleet import FleetState
from fleet.contracts.sweep import SweepResult
from tests.parts.receiver import Answer, Receiver, receiver
from worker import deadman
from worker.deadman import DeadMansSwitch
from worker.sweeps import Shard

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
EVERY = timedelta(seconds=30)
TOKEN = "planted-ping-token"
SWITCH = SecretRef(env="PLANTED_SWITCH")


class Temporal:
    """Two shards of one server each, last swept so long ago; or what asking for them raises."""

    def __init__(self, *ages: float | None, switch: SecretRef | None = SWITCH) -> None:
        self.ages, self.switch = ages, switch
        self.has_fleet = True
        self.fails: Exception | None = None
        self.sweeps_fail: Exception | None = None

    async def state(self) -> FleetState:
        if self.fails is not None:
            raise self.fails
        if not self.has_fleet:
            return FleetState()
        fleet = {
            "fleet": {"shard_size": 1},
            "alerts": {"dead_mans_switch": self.switch},
            "servers": {
                name: {"source": {"kind": "redis", "key": name}} for name in ("gpu-1", "gpu-2")
            },
        }
        return FleetState(version=1, fleet=Fleet.model_validate(fleet))

    async def fetch(self) -> list[Shard]:
        if self.sweeps_fail is not None:
            raise self.sweeps_fail
        return [self._shard(number, age) for number, age in enumerate(self.ages)]

    def _shard(self, number: int, age: float | None) -> Shard:
        since = NOW - timedelta(hours=1)
        if age is None:
            return Shard(number, EVERY, since)
        at = NOW - timedelta(seconds=age)
        return Shard(number, EVERY, since, result=SweepResult(shard=number, at=at))


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiver() as running:
        monkeypatch.setenv("PLANTED_SWITCH", running.url(f"/ping/{TOKEN}"))
        yield running


async def look(temporal: Temporal, told: list[bool] | None = None) -> bool:
    switch = DeadMansSwitch(
        temporal, temporal, told.append if told is not None else lambda _: None, now=lambda: NOW
    )
    return await switch.look()


async def test_it_pings_while_every_shard_was_swept_lately(web: Receiver) -> None:
    told: list[bool] = []
    assert await look(Temporal(5, 89), told)
    [ping] = web.received
    assert (ping.method, ping.path, ping.body) == ("GET", f"/ping/{TOKEN}", b"")
    assert told == [True]


@pytest.mark.parametrize(
    "ages",
    [(5, 90), (90, 5), (5, None), (5,), (), (None, None)],
    ids=["one stale", "the other", "one never swept", "one unscheduled", "none", "none swept"],
)
async def test_it_is_silent_where_one_shard_was_not(
    web: Receiver, ages: tuple[float | None, ...]
) -> None:
    told: list[bool] = []
    assert not await look(Temporal(*ages), told)
    assert (web.received, told) == ([], [])


async def test_it_is_silent_where_temporal_or_the_fleet_can_not_be_asked(web: Receiver) -> None:
    for problem in (
        RPCError("gone", RPCStatusCode.UNAVAILABLE, b""),
        ApplicationError("no worker answers", type="FleetUnreachable"),
        TimeoutError(),
    ):
        temporal = Temporal(5, 5)
        temporal.fails = problem
        assert not await look(temporal)
        temporal.fails, temporal.sweeps_fail = None, problem
        assert not await look(temporal)
    assert web.received == []


async def test_it_is_silent_without_a_fleet_and_where_none_is_configured(web: Receiver) -> None:
    temporal = Temporal(5, 5)
    temporal.has_fleet = False
    assert not await look(temporal)
    assert not await look(Temporal(5, 5, switch=None))
    assert web.received == []


@pytest.mark.parametrize(
    ("answer", "arrives"), [(Answer(204), True), (Answer(500), False), (Answer(302), False)]
)
async def test_any_2xx_is_an_arrival_and_no_redirect_is_followed(
    web: Receiver, answer: Answer, arrives: bool
) -> None:
    web.answer = lambda _: answer
    told: list[bool] = []
    assert await look(Temporal(5, 5), told) is arrives
    assert told == [arrives]
    assert len(web.received) == 1


async def test_an_answer_without_end_is_not_read(web: Receiver) -> None:
    web.answer = lambda _: Answer(body=b"x" * 65536, endless=True)
    async with asyncio.timeout(10):
        assert await look(Temporal(5, 5))


async def test_one_that_does_not_answer_is_given_up(
    web: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadman, "_PATIENCE", timedelta(seconds=0.3))
    web.answer = lambda _: Answer(silent=True)
    async with asyncio.timeout(10):
        assert not await look(Temporal(5, 5))


async def test_it_goes_on_by_itself_and_says_once_that_it_fell_silent_and_once_that_it_speaks(
    web: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadman, "PING_EVERY", timedelta(seconds=0.01))
    monkeypatch.setattr(deadman, "LOOK_EVERY", timedelta(seconds=0.01))
    temporal = Temporal(5, 5)

    async def pings(more: int) -> None:
        wanted = len(web.received) + more
        async with asyncio.timeout(20):
            while len(web.received) < wanted:
                await asyncio.sleep(0.01)

    with structlog.testing.capture_logs() as logs:
        running = asyncio.create_task(DeadMansSwitch(temporal, temporal, now=lambda: NOW).run())
        await pings(2)
        temporal.fails = ZeroDivisionError("a fault of its own")
        await asyncio.sleep(0.1)
        temporal.fails, temporal.ages = None, (5, 95)
        await asyncio.sleep(0.3)
        temporal.ages = (5, 5)
        await pings(2)
        running.cancel()
        await asyncio.wait({running})
    said = [(entry["log_level"], entry["event"], entry.get("why")) for entry in logs]
    assert said[-2:] == [
        ("warning", "the dead man's switch is silent", "the last sweep of shard 1 is 95 s old"),
        ("info", "the dead man's switch is no longer silent", None),
    ]
    assert {level for level, *_ in said[:-2]} == {"error"}


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/{token}",
        "http://{token}.invalid/",
        "http://127.0.0.1:PORT/{token}",
        "ftp://{token}/",
        "http://[{token}",
        "{token}",
        "http://{token}@127.0.0.1:bad/",
    ],
)
async def test_the_url_stands_in_no_log_line_even_when_debugging(
    web: Receiver,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    web.answer = lambda _: Answer(404)
    address = url.replace("{token}", TOKEN).replace("PORT", str(web.port))
    monkeypatch.setenv("PLANTED_SWITCH", address)
    with structlog.testing.capture_logs() as logs:
        assert not await look(Temporal(5, 5))
    assert [entry["event"] for entry in logs] == ["the dead man's switch is silent"]
    assert TOKEN not in str(logs)
    own = [line for line in caplog.records if line.levelno > logging.DEBUG]
    assert TOKEN not in "".join(line.getMessage() for line in own)


async def test_a_secret_that_is_not_there_is_named_by_its_place(
    web: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLANTED_SWITCH")
    with structlog.testing.capture_logs() as logs:
        assert not await look(Temporal(5, 5))
    assert logs[0]["why"] == (
        "alerts.dead_mans_switch: the environment variable PLANTED_SWITCH is not set or empty:"
        " the worker needs it"
    )
