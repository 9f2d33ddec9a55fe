"""Each engine over real HTTP: the one page that is read, at the path where its kind has it."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from activities.engine_pages import EnginePages
from fleet.engine_sources import EngineSource, Kind
from fleet.engines.reading import EngineReading, Page
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
        assert asked(server) == [path]


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
