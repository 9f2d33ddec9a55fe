"""Servers are read from real stores and real HTTP servers, and nothing there can stop a sweep."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic_core import to_json
from redis import Redis
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.readings import ReadingActivities, longest_look
from fleet.config import RedisSource, SecretRef, ServerSpec, StatusSource, Store
from fleet.contracts.fleet import Pause, PresentPolicy, ShardSlice
from fleet.contracts.names import ServerRequest
from fleet.contracts.sweep import SweepReadings, SweepRequest
from fleet.durations import parse
from fleet.policy import Policy
from fleet.readings import Reading, ReadStatus, WorkState
from tests.parts.ports import free_port
from tests.parts.receiver import Answer, Receiver, receiver
from tests.parts.stores import StoreServer, redis_server, valkey

pytestmark = pytest.mark.anyio

SECRET = "planted-9f3b1c"


class Applied:
    """A fleet that is applied: what ``PolicyReader`` answers, without a Temporal server."""

    def __init__(self, *specs: ServerSpec) -> None:
        self._slice = ShardSlice(version=7, interval=parse("30s"), specs=list(specs))

    async def present(self, server: str) -> PresentPolicy:
        spec = next((spec for spec in self._slice.specs if spec.name == server), None)
        return PresentPolicy(version=7, spec=spec)

    async def shard(self, number: int) -> ShardSlice:
        pause = Pause(until=datetime(2030, 1, 1, tzinfo=UTC), who="me")
        return self._slice.model_copy(update={"paused": {"gpu-1": pause}})


def server(
    source: RedisSource | StatusSource,
    name: str = "gpu-1",
    store: Store | None = None,
    policy: Policy | None = None,
) -> ServerSpec:
    return ServerSpec(
        name=name, source=source, store=store, restart=None, host=None, policy=policy or Policy()
    )


async def sweep(*specs: ServerSpec, embedded: str | None = None) -> SweepReadings:
    reading = ReadingActivities(Applied(*specs), embedded)
    try:
        return await ActivityEnvironment().run(reading.read_shard, SweepRequest(shard=0))
    finally:
        await reading.close()


async def look(spec: ServerSpec, embedded: str | None = None) -> Reading:
    """One server through ``read_server``."""
    reading = ReadingActivities(Applied(spec), embedded)
    try:
        return await ActivityEnvironment().run(reading.read_server, ServerRequest(server=spec.name))
    finally:
        await reading.close()


@pytest.fixture(
    scope="module",
    params=["valkey", pytest.param("redis-server", marks=pytest.mark.needs("redis-server"))],
)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreServer]:
    folder = tmp_path_factory.mktemp("store")
    with (valkey if request.param == "valkey" else redis_server)(folder) as started:
        yield started


@pytest.fixture
def records(store: StoreServer) -> Iterator[Redis]:
    client = store.client()
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def web() -> Iterator[Receiver]:
    with receiver() as started:
        yield started


def now() -> int:
    return int(time.time())


# --- records in a store --------------------------------------------------------------------------


async def test_a_hash_is_read(store: StoreServer, records: Redis) -> None:
    beat = now()
    records.hset("w:1", mapping={"state": "busy", "heartbeat": beat, "job": "job-7", "more": "x"})
    before = datetime.now(UTC)
    reading = await look(server(RedisSource(key="w:1"), store=Store(url=store.url)))
    assert (reading.status, reading.state, reading.job) == (
        ReadStatus.OK,
        WorkState.PROCESSING,
        "job-7",
    )
    assert reading.heartbeat == datetime.fromtimestamp(beat, UTC)
    assert before <= reading.at <= datetime.now(UTC)


async def test_json_is_read_from_the_embedded_store(store: StoreServer, records: Redis) -> None:
    records.set("w:1", json.dumps({"state": "idle", "beat": {"at": now() * 1000}}))
    source = RedisSource.model_validate(
        {"key": "w:1", "format": "json", "fields": {"heartbeat": "beat.at"}}
    )
    reading = await look(server(source), embedded=store.url)
    assert (reading.status, reading.state) == (ReadStatus.OK, WorkState.IDLE)


async def test_bytes_that_are_no_text_are_read_as_far_as_they_go(
    store: StoreServer, records: Redis
) -> None:
    records.hset("w:1", mapping={"state": "busy", "heartbeat": now(), "job": b"\xff\xfe job"})
    reading = await look(server(RedisSource(key="w:1")), embedded=store.url)
    assert reading.status is ReadStatus.OK
    assert reading.job is not None
    assert reading.job.endswith(" job")


@pytest.mark.parametrize("form", ["hash", "json"])
async def test_no_record_is_missing(store: StoreServer, records: Redis, form: str) -> None:
    source = RedisSource.model_validate({"key": "w:none", "format": form})
    reading = await look(server(source), embedded=store.url)
    assert reading.status is ReadStatus.MISSING
    assert "'w:none'" in reading.detail


@pytest.mark.parametrize(("form", "other"), [("hash", "json"), ("json", "hash")])
async def test_a_record_of_the_other_kind_names_the_setting(
    store: StoreServer, records: Redis, form: str, other: str
) -> None:
    records.set("w:1", "{}") if form == "hash" else records.hset("w:1", "state", "busy")
    source = RedisSource.model_validate({"key": "w:1", "format": form})
    reading = await look(server(source), embedded=store.url)
    assert reading.status is ReadStatus.UNREADABLE
    assert f'set source.format = "{other}"' in reading.detail


@pytest.mark.parametrize("form", ["hash", "json"])
async def test_a_record_that_is_far_too_large_is_never_loaded(
    store: StoreServer, records: Redis, form: str
) -> None:
    large = "x" * 300_000
    records.set("w:1", large) if form == "json" else records.hset("w:1", "state", large)
    source = RedisSource.model_validate({"key": "w:1", "format": form})
    reading = await look(server(source), embedded=store.url)
    assert reading.status is ReadStatus.UNREADABLE
    assert "64 KiB" in reading.detail


async def test_without_any_store_the_remedy_is_named() -> None:
    reading = await look(server(RedisSource(key="w:1")))
    assert reading.status is ReadStatus.UNREADABLE
    assert "source.store" in reading.detail


# --- stores that fail ----------------------------------------------------------------------------


async def test_a_store_that_refuses_is_missing() -> None:
    reading = await look(
        server(RedisSource(key="w:1")), embedded=f"redis://127.0.0.1:{free_port()}"
    )
    assert (reading.status, reading.detail) == (ReadStatus.MISSING, "the store can't be reached")


async def test_a_store_that_never_answers_is_missing_within_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = RedisSource(key="w:1", timeout=parse("200ms"))
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        reading = await asyncio.wait_for(look(server(source), embedded=url), 10)
    assert (reading.status, reading.detail) == (ReadStatus.MISSING, "no answer within 200ms")


async def test_something_that_is_no_store_is_no_record(web: Receiver) -> None:
    source = RedisSource(key="w:1", timeout=parse("2s"))
    reading = await look(server(source), embedded=f"redis://127.0.0.1:{web.port}")
    assert reading.status is not ReadStatus.OK


async def test_an_answer_that_comes_too_late_is_never_taken_for_the_next_one(
    tmp_path: Path,
) -> None:
    """The old danger of pools: a reply left in a connection answers the next question."""
    with valkey(tmp_path) as started:
        client = started.client()
        client.hset("w:1", mapping={"state": "busy", "heartbeat": now(), "job": "one"})
        client.hset("w:2", mapping={"state": "busy", "heartbeat": now(), "job": "two"})
        specs = [
            server(RedisSource(key=f"w:{n}", timeout=parse("300ms")), f"gpu-{n}") for n in (1, 2)
        ]
        reading = ReadingActivities(Applied(*specs), started.url)
        env = ActivityEnvironment()
        await env.run(reading.read_server, ServerRequest(server="gpu-2"))
        client.client_pause(1000, all=True)
        late = await env.run(reading.read_server, ServerRequest(server="gpu-1"))
        assert late.status is ReadStatus.MISSING
        await asyncio.sleep(1.2)
        for _ in range(5):
            after = await env.run(reading.read_server, ServerRequest(server="gpu-2"))
            assert (after.status, after.job) == (ReadStatus.OK, "two")
        await reading.close()
        client.close()


async def test_a_store_that_was_restarted_is_read_again_by_the_same_activities(
    tmp_path: Path,
) -> None:
    with valkey(tmp_path) as started:
        reading = ReadingActivities(Applied(server(RedisSource(key="w:1"))), started.url)
        env, request = ActivityEnvironment(), ServerRequest(server="gpu-1")

        def publish() -> None:
            with started.client() as client:
                client.hset("w:1", mapping={"state": "busy", "heartbeat": now()})

        publish()
        assert (await env.run(reading.read_server, request)).status is ReadStatus.OK
        started.stop()
        assert (await env.run(reading.read_server, request)).status is ReadStatus.MISSING
        started.start()
        publish()
        assert (await env.run(reading.read_server, request)).status is ReadStatus.OK
        await reading.close()


# --- secrets of a store --------------------------------------------------------------------------


async def test_a_store_with_a_password_is_read_by_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = tmp_path / "password"
    key_file.write_text(f"{SECRET}\n")
    monkeypatch.setenv("STEADY_TEST_STORE", SECRET)
    with valkey(tmp_path / "store", "--requirepass", SECRET) as started:
        with started.client(password=SECRET) as client:
            client.hset("w:1", mapping={"state": "busy", "heartbeat": now()})
        for ref in (SecretRef(env="STEADY_TEST_STORE"), SecretRef(file=str(key_file))):
            store = Store(url=started.url, password=ref)
            assert (await look(server(RedisSource(key="w:1"), store=store))).status is ReadStatus.OK
        named = Store(url=started.url, username="default", password=SecretRef(file=str(key_file)))
        assert (await look(server(RedisSource(key="w:1"), store=named))).status is ReadStatus.OK


async def test_a_wrong_missing_or_unset_password_is_unreadable_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADY_TEST_STORE", f"not-{SECRET}")
    with valkey(tmp_path / "store", "--requirepass", SECRET) as started:
        for password, said in [
            (SecretRef(env="STEADY_TEST_STORE"), "refuses the password"),
            (SecretRef(env="STEADY_TEST_UNSET"), "STEADY_TEST_UNSET is not set"),
            (SecretRef(file="/nonexistent/password"), "/nonexistent/password"),
            (None, "wants one"),
        ]:
            store = Store(url=started.url, password=password)
            reading = await look(server(RedisSource(key="w:1"), store=store))
            assert reading.status is ReadStatus.UNREADABLE
            assert said in reading.detail
            assert SECRET not in to_json(reading).decode()


async def test_a_password_that_appears_later_is_picked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a connection that failed to log in ever used without a password."""
    with valkey(tmp_path / "store", "--requirepass", SECRET) as started:
        with started.client(password=SECRET) as client:
            client.hset("w:1", mapping={"state": "busy", "heartbeat": now()})
        store = Store(url=started.url, password=SecretRef(env="STEADY_TEST_STORE"))
        reading = ReadingActivities(Applied(server(RedisSource(key="w:1"), store=store)), None)
        env, request = ActivityEnvironment(), ServerRequest(server="gpu-1")
        assert (await env.run(reading.read_server, request)).status is ReadStatus.UNREADABLE
        monkeypatch.setenv("STEADY_TEST_STORE", SECRET)
        assert (await env.run(reading.read_server, request)).status is ReadStatus.OK
        await reading.close()


async def test_a_user_without_the_right_to_read_is_told_what_to_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADY_TEST_STORE", SECRET)
    with valkey(tmp_path / "store") as started:
        with started.client() as client:
            client.acl_setuser(
                "steady", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], commands=["+ping"]
            )
        store = Store(
            url=started.url, username="steady", password=SecretRef(env="STEADY_TEST_STORE")
        )
        reading = await look(server(RedisSource(key="w:1"), store=store))
    assert reading.status is ReadStatus.UNREADABLE
    assert "may not read" in reading.detail


# --- status URLs ---------------------------------------------------------------------------------


def page(web: Receiver, path: str = "/", **more: object) -> ServerSpec:
    return server(StatusSource.model_validate({"kind": "status", "url": web.url(path), **more}))


async def test_a_status_url_is_read_with_its_token(
    web: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADY_TEST_TOKEN", SECRET)
    record = json.dumps({"state": "busy", "heartbeat": now()}).encode()
    web.answer = lambda _: Answer(body=record)
    reading = await look(page(web, "/status", token=SecretRef(env="STEADY_TEST_TOKEN")))
    assert (reading.status, reading.state) == (ReadStatus.OK, WorkState.PROCESSING)
    assert web.received[0].headers["Authorization"] == f"Bearer {SECRET}"
    assert [request.path for request in web.received] == ["/status"]


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (Answer(status=404), ReadStatus.MISSING, "404"),
        (Answer(status=500), ReadStatus.UNREADABLE, "500"),
        (Answer(status=503), ReadStatus.UNREADABLE, "503"),
        (Answer(status=401), ReadStatus.UNREADABLE, "401"),
        (Answer(status=204, body=b""), ReadStatus.UNREADABLE, "204"),
        (
            Answer(status=302, headers={"Location": "/elsewhere"}),
            ReadStatus.UNREADABLE,
            "not followed",
        ),
        (Answer(body=b"<html>ok</html>"), ReadStatus.UNREADABLE, "no JSON"),
        (Answer(body=b""), ReadStatus.UNREADABLE, "no JSON"),
        (Answer(body=b"[1]"), ReadStatus.UNREADABLE, "no object"),
        (Answer(body=b"x" * 1_000_000), ReadStatus.UNREADABLE, "64 KiB"),
        (Answer(body=b"x" * 1000, endless=True), ReadStatus.UNREADABLE, "64 KiB"),
        (Answer(headers={"Content-Encoding": "gzip"}), ReadStatus.UNREADABLE, "compresses"),
        (Answer(silent=True), ReadStatus.MISSING, "no answer within"),
    ],
)
async def test_answers_that_are_no_record(
    web: Receiver, answer: Answer, status: ReadStatus, said: str
) -> None:
    web.answer = lambda _: answer
    reading = await asyncio.wait_for(look(page(web, timeout="1s")), 15)
    assert reading.status is status
    assert said in reading.detail
    assert len(web.received) == 1


async def test_a_trickle_that_never_ends_is_cut_off_by_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def trickle() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        spec = server(StatusSource(url=url, timeout=parse("500ms")))
        try:
            reading = await asyncio.wait_for(look(spec), 15)
        finally:
            stop.set()
            thread.join()
    assert (reading.status, reading.detail) == (ReadStatus.MISSING, "no answer within 500ms")


async def test_a_refused_connection_and_a_name_that_is_none_are_missing() -> None:
    for url in (f"http://127.0.0.1:{free_port()}/status", "http://no-such-host.invalid/status"):
        reading = await look(server(StatusSource(url=url)))
        assert reading.status is ReadStatus.MISSING
        assert "/status" not in reading.detail


async def test_plain_http_behind_https_is_something_that_answers(web: Receiver) -> None:
    reading = await look(server(StatusSource(url=f"https://127.0.0.1:{web.port}/")))
    assert reading.status is ReadStatus.UNREADABLE
    assert "TLS" in reading.detail


async def test_a_token_that_is_not_there_is_said_before_anything_is_asked(web: Receiver) -> None:
    reading = await look(page(web, token=SecretRef(env="STEADY_TEST_UNSET")))
    assert reading.status is ReadStatus.UNREADABLE
    assert "STEADY_TEST_UNSET is not set" in reading.detail
    assert web.received == []


async def test_a_token_that_http_cannot_send_is_not_shown(
    web: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADY_TEST_TOKEN", f"{SECRET}-ü")
    reading = await look(page(web, token=SecretRef(env="STEADY_TEST_TOKEN")))
    assert reading.status is ReadStatus.UNREADABLE
    assert SECRET not in reading.detail


# --- a shard -------------------------------------------------------------------------------------


async def test_a_shard_is_read_side_by_side_and_one_server_stops_no_other(
    store: StoreServer, records: Redis, web: Receiver
) -> None:
    """Forty servers that never answer cost one time-out, not forty."""
    web.answer = lambda _: Answer(silent=True)
    hanging = [
        server(StatusSource(url=web.url(), timeout=parse("1s")), f"hangs-{n}") for n in range(40)
    ]
    records.hset("w:1", mapping={"state": "busy", "heartbeat": now()})
    good = server(RedisSource(key="w:1"), "works")
    refused = server(StatusSource(url=f"http://127.0.0.1:{free_port()}/"), "gone")
    began = time.monotonic()
    seen = await sweep(*hanging, good, refused, embedded=store.url)
    assert time.monotonic() - began < 10
    assert [reading.server for reading in seen.readings] == [
        *(f"hangs-{n}" for n in range(40)),
        "works",
        "gone",
    ]
    by_name = {reading.server: reading.status for reading in seen.readings}
    assert by_name["works"] is ReadStatus.OK
    assert by_name["gone"] is by_name["hangs-7"] is ReadStatus.MISSING


async def test_three_hundred_records_share_a_few_connections(
    store: StoreServer, records: Redis
) -> None:
    for n in range(300):
        records.hset(f"w:{n}", mapping={"state": "busy", "heartbeat": now(), "job": n})
    specs = [server(RedisSource(key=f"w:{n}"), f"gpu-{n}") for n in range(300)]
    before = records.info()["total_connections_received"]
    seen = await sweep(*specs, embedded=store.url)
    assert [reading.job for reading in seen.readings] == [str(n) for n in range(300)]
    assert records.info()["total_connections_received"] - before <= 40


async def test_what_the_sweep_needs_beside_readings_comes_along(
    store: StoreServer, records: Redis
) -> None:
    patient = Policy(stale_after=parse("5m"))
    specs = [
        server(RedisSource(key="w:1"), f"gpu-{n}", policy=patient if n == 2 else None)
        for n in range(4)
    ]
    seen = await sweep(*specs, embedded=store.url)
    assert (seen.interval, seen.version) == (timedelta(seconds=30), 7)
    assert seen.policies == [Policy(), patient]
    assert seen.policy_of == {"gpu-0": 0, "gpu-1": 0, "gpu-2": 1, "gpu-3": 0}
    assert list(seen.paused) == ["gpu-1"]


async def test_a_time_out_longer_than_the_interval_holds_up_no_sweep(web: Receiver) -> None:
    class Hurried(Applied):
        async def shard(self, number: int) -> ShardSlice:
            return self._slice.model_copy(update={"interval": parse("500ms")})

    web.answer = lambda _: Answer(silent=True)
    reading = ReadingActivities(Hurried(page(web, timeout="5m")), None)
    seen = await asyncio.wait_for(
        ActivityEnvironment().run(reading.read_shard, SweepRequest(shard=0)), 15
    )
    assert seen.readings[0].detail == "no answer within 500ms"
    await reading.close()


async def test_however_many_servers_hang_a_shard_is_read_in_twenty_seconds() -> None:
    half_minute = parse("30s")
    assert longest_look(1, half_minute) == longest_look(200, half_minute) == parse("20s")
    assert longest_look(800, half_minute) == parse("5s")
    assert longest_look(100, parse("5s")) == parse("5s")


async def test_reading_heartbeats_and_ends_when_it_is_cancelled(web: Receiver) -> None:
    web.answer = lambda _: Answer(silent=True)
    reading = ReadingActivities(Applied(page(web, timeout="30s")), None)
    env = ActivityEnvironment()
    beats: list[tuple[object, ...]] = []
    env.on_heartbeat = lambda *details: beats.append(details)
    running = asyncio.create_task(env.run(reading.read_server, ServerRequest(server="gpu-1")))
    while not (beats and web.received):
        await asyncio.sleep(0.01)
    env.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 10)
    await reading.close()


async def test_a_server_that_is_not_in_the_fleet_is_said_to_be_removed_and_not_retried() -> None:
    reading = ReadingActivities(Applied(), None)
    with pytest.raises(ApplicationError) as raised:
        await ActivityEnvironment().run(reading.read_server, ServerRequest(server="gone"))
    assert (raised.value.type, raised.value.non_retryable) == ("ServerRemoved", True)
    await reading.close()
