"""Each engine over real HTTP: its one page is read, and it is asked only where nothing moves."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta

import pytest

from activities.answers import BadAnswer
from activities.engine_pages import EnginePages
from activities.engine_requests import EngineRequests
from fleet.contracts.engine import AskRequest
from fleet.engine_sources import EngineSource
from fleet.engines.place import Kind
from fleet.engines.profiles import profile_named
from fleet.engines.proof import proof_of
from fleet.engines.reading import Came, EngineReading, Page
from fleet.policy import Policy
from fleet.verdicts import Verdict
from tests.parts import engine_pages as texts
from tests.parts import vllm_pages
from tests.parts.raw_backend import Connection, RawBackend, raw_backend

pytestmark = pytest.mark.anyio

LIMIT = timedelta(seconds=5)
PAGES: list[tuple[Kind, str, bytes]] = [
    ("vllm", "/metrics", vllm_pages.page(vllm_pages.engine(running=1))),
    ("sglang", "/metrics", texts.sglang(running=1)),
    ("llamacpp", "/metrics", texts.llamacpp(processing=1)),
    ("tgi", "/metrics", texts.tgi(batch=1)),
    ("triton", "/metrics", texts.triton(active=1)),
    ("trtllm", "/prometheus/metrics", texts.trtllm(running=1)),
    ("nim", "/v1/metrics", texts.nim(running=1)),
    ("lmdeploy", "/metrics", texts.lmdeploy(running=1)),
    ("dynamo", "/metrics", texts.dynamo(texts.sglang(), inflight=1)),
    ("engine", "/metrics", texts.tgi(batch=1)),
]


def serving(path: str, page: bytes, *more: bytes) -> AbstractAsyncContextManager[RawBackend]:
    """A server that has this one page, and says 404 to everything else."""

    async def script(connection: Connection) -> None:
        while True:
            request = await connection.request()
            found = request.line.split()[1] == path.encode()
            status, body = (b"200 OK", page) if found else (b"404 Not Found", b"no such page")
            head = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *more]
            await connection.send(b"\r\n".join(head) + b"\r\n\r\n" + body)

    return raw_backend(script)


def asked(server: RawBackend) -> list[str]:
    return [request.line.split()[1].decode() for request in server.requests]


async def read(source: EngineSource) -> EngineReading:
    reading = await EnginePages().look("s", source, LIMIT)
    assert reading.engine is not None
    return reading.engine


@pytest.mark.parametrize(("kind", "path", "page"), PAGES)
async def test_one_get_of_its_own_page_says_that_work_is_in_flight(
    kind: Kind, path: str, page: bytes
) -> None:
    async with serving(path, page) as server:
        seen = await read(EngineSource(kind=kind, url=server.url))
        assert (seen.page, seen.in_flight) == (Page.OK, True)
        first = ["/props"] if kind == "llamacpp" else []
        assert asked(server) == [*first, path]


async def test_llamacpp_whose_model_is_put_away_is_not_read_since_that_would_load_it() -> None:
    async with serving("/props", b'{"is_sleeping": true}') as server:
        seen = await read(EngineSource(kind="llamacpp", url=server.url))
        assert (seen.asleep, asked(server)) == (True, ["/props"])


@pytest.mark.parametrize("said", [b'{"is_sleeping": false}', b"{}", b"[true]", b"<html>"])
async def test_whatever_else_llamacpp_says_there_its_page_is_read(said: bytes) -> None:
    async with serving("/props", said) as server:
        with suppress(BadAnswer):
            await read(EngineSource(kind="llamacpp", url=server.url))
        assert asked(server)[:2] == ["/props", "/metrics"]


async def test_trtllms_other_page_is_left_alone_also_where_the_right_one_is_missing() -> None:
    async with serving("/metrics", b'[{"iter": 1}]') as server:
        await read(EngineSource(kind="trtllm", url=server.url))
        assert "/metrics" not in asked(server)


async def test_a_page_on_another_port_is_read_there() -> None:
    async with serving("/here", texts.triton(active=1)) as metrics:
        source = EngineSource(
            kind="triton", url="http://127.0.0.1:1", metrics_url=f"{metrics.url}/here"
        )
        assert (await read(source)).in_flight
        assert asked(metrics) == ["/here"]


@pytest.mark.parametrize("kind", ["llamacpp", "engine"])
async def test_the_start_of_llamacpp_is_in_a_header_and_opaque(kind: Kind) -> None:
    page, header = texts.llamacpp(), b"Process-Start-Time-Unix: 48151623"
    async with serving("/metrics", page, header) as server:
        assert (await read(EngineSource(kind=kind, url=server.url))).started == "48151623"


#: Of each kind the page of an engine at work after so many steps, and where it is asked.
AT_WORK: list[tuple[Kind, str, Callable[[int], bytes], str]] = [
    ("sglang", "/metrics", lambda n: texts.sglang(running=1, decode=n), "/v1/completions"),
    ("llamacpp", "/metrics", lambda n: texts.llamacpp(processing=1, decodes=n), "/v1/completions"),
    ("tgi", "/metrics", lambda n: texts.tgi(batch=1, decodes=(n + 1, n, 0)), "/generate"),
    ("triton", "/metrics", lambda n: texts.triton(active=1, iteration=n), "/infer"),
    (
        "trtllm",
        "/prometheus/metrics",
        lambda n: texts.trtllm(running=1, missed=n),
        "/v1/completions",
    ),
    ("nim", "/v1/metrics", lambda n: texts.nim(running=1, output=n), "/v1/completions"),
    ("lmdeploy", "/metrics", lambda n: texts.lmdeploy(running=1, steps=n), "/v1/completions"),
    (
        "dynamo",
        "/metrics",
        lambda n: texts.dynamo(texts.trtllm(blocks=n), inflight=1),
        "/v1/completions",
    ),
]


def working(
    path: str, page: Callable[[int], bytes], *, frozen: bool
) -> AbstractAsyncContextManager[RawBackend]:
    """An engine that takes a step between two looks, or none at all; it answers no request."""
    steps = [7]

    async def script(connection: Connection) -> None:
        request = await connection.request()
        asks = request.line.startswith(b"POST")
        if asks:
            await asyncio.Event().wait()
        found = {path: page(steps[0]), "/v1/models": b'{"data": [{"id": "m"}]}'}
        body = found.get(request.line.split()[1].decode())
        steps[0] += 0 if frozen else 1
        status = b"200 OK" if body is not None else b"404 Not Found"
        body = body or b""
        head = b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        await connection.send(head % (status, len(body)) + body)

    return raw_backend(script)


def posts(server: RawBackend) -> list[str]:
    lines = [request.line.split() for request in server.requests]
    return [path.decode() for method, path, _ in lines if method == b"POST"]


async def doubted(source: EngineSource) -> EngineReading:
    """What came of a suspicion, after the look that aroused it."""
    pages = EnginePages()
    first = (await pages.look("s", source, LIMIT)).engine
    request = AskRequest(server="s", since=first, suspected=True)
    reading = await EngineRequests(pages).ask("s", source, request)
    assert reading.engine is not None
    return reading.engine


def source_of(kind: Kind, server: RawBackend, asked_at: str) -> EngineSource:
    own = {"request": {"path": asked_at, "body": {"text": "Hi"}}} if kind == "triton" else {}
    return EngineSource.model_validate({"kind": kind, "url": server.url, **own})


@pytest.mark.parametrize(("kind", "path", "page", "asked_at"), AT_WORK)
async def test_one_that_stands_still_is_asked_once_and_its_silence_proves_it_stuck(
    kind: Kind,
    path: str,
    page: Callable[[int], bytes],
    asked_at: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its own is never shorter than the window of its witnesses, up to a minute.
    short = property(lambda _: timedelta(seconds=1))
    monkeypatch.setattr("activities.engine_requests._Asking.deadline", short)
    async with working(path, page, frozen=True) as server:
        seen = await doubted(source_of(kind, server, asked_at))
        assert seen.answer is not None
        assert (seen.answer.came, posts(server)) == (Came.NONE, [asked_at])
        proof = proof_of(seen, Policy(restart_unproven=True))
        assert proof is not None
        assert proof.verdict is Verdict.STUCK
        assert (proof_of(seen, Policy()) is None) == profile_named(seen.profile).by_ends


@pytest.mark.parametrize(("kind", "path", "page", "asked_at"), AT_WORK)
async def test_one_that_shows_progress_is_never_sent_a_request(
    kind: Kind, path: str, page: Callable[[int], bytes], asked_at: str
) -> None:
    async with working(path, page, frozen=False) as server:
        seen = await doubted(source_of(kind, server, asked_at))
        assert seen.answer is None or seen.answer.came in (Came.MOVED, Came.BUSY)
        assert posts(server) == []


async def test_the_deadline_is_no_shorter_than_the_engine_may_stand_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else one that writes rarely would be stuck before a movement could show."""
    monkeypatch.setattr("activities.engine_requests.longest_window", lambda _: timedelta(seconds=1))
    frozen = working("/metrics", lambda n: texts.sglang(running=1, decode=n), frozen=True)
    async with frozen as server:
        source = EngineSource(kind="sglang", url=server.url, deadline=timedelta(milliseconds=100))
        seen = await doubted(source)
    assert seen.answer is not None
    assert seen.answer.came is Came.NONE
    assert seen.answer.took is not None
    assert seen.answer.took >= 1
