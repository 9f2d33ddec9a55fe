"""What goes through the gateway: bytes both ways, as they come, under one framing."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.faults import Fault
from tests.parts.gateways import PATIENCE, serving, until
from tests.parts.raw_backend import LAST, OK, STREAM, Connection, echo, ok, raw_backend

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: api.example\r\n"


async def test_a_request_arrives_with_the_backends_host_and_without_hop_by_hop_fields() -> None:
    async with raw_backend(ok) as backend, serving(backend.url) as gateway:
        said = await gateway.said(
            POST
            + b"X-Own: 1\r\nTE: trailers\r\nKeep-Alive: timeout=5\r\nX-Hop: 2\r\nCookie: c=1\r\n"
            b"Authorization: Bearer k\r\nProxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\n"
            b"Connection: close, X-Hop, Upgrade\r\nContent-Length: 4\r\n\r\nbody"
        )
        request = backend.requests[0]
        assert request.raw == (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Own: 1\r\n"
            b"Cookie: c=1\r\nAuthorization: Bearer k\r\nContent-Length: 4\r\n\r\nbody"
            % backend.port
        )
        assert said == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


async def test_connections_are_kept_on_both_sides() -> None:
    async with raw_backend(ok) as backend, serving(backend.url) as gateway:
        for number in range(20):
            answer = await gateway.client.post(CHAT, json={"number": number})
            assert (answer.status_code, answer.text) == (200, "ok")
        assert backend.connections == 1
        assert len(gateway.core.clients) == 1


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
async def test_a_body_of_any_size_comes_through_unchanged_both_ways(size: int) -> None:
    body = os.urandom(size)
    async with raw_backend(echo) as backend, serving(backend.url) as gateway:
        assert (await gateway.client.post(CHAT, content=body)).content == body

        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, size, 100_000):
                yield body[at : at + 100_000]

        assert (await gateway.client.post(CHAT, content=parts())).content == body
        assert backend.requests[0].value("content-length") == b"%d" % size
        assert backend.requests[1].value("transfer-encoding") == b"chunked"
        assert backend.requests[1].value("content-length") is None


async def test_compressed_bodies_are_not_touched() -> None:
    packed = gzip.compress(b"answer" * 100)

    async def answer(connection: Connection) -> None:
        await connection.request()
        await connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
            % (len(packed), packed)
        )

    async with raw_backend(answer) as backend, serving(backend.url) as gateway:
        said = await gateway.said(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert said.endswith(b"\r\n\r\n" + packed)
        assert b"Content-Encoding: gzip" in said


async def test_each_chunk_of_a_stream_is_passed_on_as_it_comes() -> None:
    go_on = asyncio.Event()

    async def stream(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        for number in range(5):
            await connection.chunk(b"data: %d\n\n" % number)
            await go_on.wait()
            go_on.clear()
        await connection.send(LAST)
        await connection.gone()

    async with raw_backend(stream) as backend, serving(backend.url) as gateway:
        async with gateway.client.stream("POST", CHAT, json={}) as answer:
            got = []
            async for part in answer.aiter_raw():
                got.append(part)
                go_on.set()  # the next is sent only once this one has arrived
        assert got == [b"data: %d\n\n" % number for number in range(5)]
        assert answer.headers["transfer-encoding"] == "chunked"


async def test_a_head_request_and_answers_without_a_body() -> None:
    async def script(connection: Connection) -> None:
        while True:
            request = await connection.request()
            status = {b"/204": b"204 No Content", b"/304": b"304 Not Modified"}.get(
                request.line.split()[1], b"200 OK\r\nContent-Length: 500"
            )
            await connection.send(b"HTTP/1.1 %b\r\nX-A: 1\r\n\r\n" % status)

    async with raw_backend(script) as backend, serving(backend.url) as gateway:
        head = await gateway.client.head("/x")
        assert (head.status_code, head.headers["content-length"], head.content) == (200, "500", b"")
        for status in (204, 304):
            answer = await gateway.client.get(f"/{status}")
            assert (answer.status_code, answer.content) == (status, b"")
            assert "transfer-encoding" not in answer.headers
        assert backend.connections == 1


async def test_trailers_are_passed_on_both_ways_and_can_say_nothing_of_framing() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM + b"2\r\nok\r\n0\r\nX-Sum: 7\r\nContent-Length: 3\r\n\r\n")

    async with raw_backend(script) as backend, serving(backend.url) as gateway:
        said = await gateway.said(
            POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;ext=1\r\nabc\r\n0\r\nX-Check: 1\r\nTransfer-Encoding: x\r\nHost: evil\r\n\r\n"
        )
        assert backend.requests[0].raw.endswith(b"3\r\nabc\r\n0\r\nX-Check: 1\r\n\r\n")
        assert said.endswith(b"2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n")


async def test_an_answer_that_ends_with_its_connection_is_chunked_for_the_client() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.0 200 OK\r\n\r\nold")

    async with raw_backend(script) as backend, serving(backend.url) as gateway:
        for _ in range(2):
            answer = await gateway.client.get("/x")
            assert (answer.text, answer.headers["transfer-encoding"]) == ("old", "chunked")
        old = await gateway.said(b"GET /x HTTP/1.0\r\n\r\n")
        assert old == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nold"
        assert backend.connections == 3


async def test_a_client_of_http_1_0_can_keep_its_connection() -> None:
    async with raw_backend(ok) as backend, serving(backend.url) as gateway:
        reader, writer = await gateway.raw()
        for _ in range(2):
            writer.write(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Connection: keep-alive" in head
            assert await reader.readexactly(2) == b"ok"
        writer.close()


async def test_expect_100_continue_is_the_backends_to_answer() -> None:
    async def script(connection: Connection) -> None:
        head = await connection.reader.readuntil(b"\r\n\r\n")
        assert b"Expect: 100-continue" in head
        await connection.send(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        body = await connection.reader.readexactly(4)
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)

    async with raw_backend(script) as backend, serving(backend.url) as gateway:
        reader, writer = await gateway.raw(
            POST + b"Content-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await reader.read()).endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize("continued", [False, True])
async def test_a_client_that_waits_for_100_continue_or_stops_behind_it_is_told_in_time(
    continued: bool,
) -> None:
    async def waits(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        if continued:
            await connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await connection.gone()

    async with raw_backend(waits) as backend, raw_backend(ok) as other:
        async with serving(
            backend.url,
            candidates={"next": {"url": other.url, "sample": 100}},
            body_timeout="300ms",
        ) as gateway:
            said = await gateway.said(POST + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
            said = said.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n" if continued else b"")
            assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert (b"the backend sends no 100 Continue" in said) is not continued
            await until(lambda: backend.open == 0)
        assert other.connections == 0


async def test_a_client_that_waits_for_100_continue_only_briefly_is_served() -> None:
    async with raw_backend(echo) as backend, serving(backend.url) as gateway:
        reader, writer = await gateway.raw(
            POST + b"Content-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        await until(lambda: backend.open)
        await asyncio.sleep(0.1)
        writer.write(b"body")
        assert (await reader.read()).endswith(b"\r\n\r\nbody")
        writer.close()


async def test_each_part_of_an_upload_is_passed_on_as_it_comes() -> None:
    arrived: list[bytes] = []

    async def reads(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        for _ in range(5):
            arrived.append(await connection.reader.readexactly(4))
        await connection.send(OK)

    async with raw_backend(reads) as backend, serving(backend.url) as gateway:
        reader, writer = await gateway.raw(POST + b"Content-Length: 20\r\n\r\n")
        for number in range(5):
            writer.write(b"part")  # the next is sent only once this one has arrived
            async with asyncio.timeout(PATIENCE):
                while len(arrived) == number:
                    await asyncio.sleep(0.005)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_an_answer_that_begins_early_may_go_on_beside_the_upload() -> None:
    async def talks(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(STREAM)
        for _ in range(3):
            await connection.chunk(await connection.reader.readexactly(4))
        await connection.send(LAST)

    async with raw_backend(talks) as backend, serving(backend.url) as gateway:
        reader, writer = await gateway.raw(POST + b"Content-Length: 12\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"\r\n\r\n")
            for number in range(3):
                writer.write(b"say%d" % number)
                assert await reader.readuntil(b"say%d\r\n" % number) == b"4\r\nsay%d\r\n" % number
            assert await reader.read() == LAST
        writer.close()


async def test_an_early_answer_reaches_a_client_that_still_sends() -> None:
    async def refuse(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
        await connection.gone()

    async with raw_backend(refuse) as backend, serving(backend.url) as gateway:
        reader, writer = await gateway.raw(POST + b"Content-Length: 50000000\r\n\r\n")
        writer.write(b"x" * 5_000_000)
        async with asyncio.timeout(PATIENCE):
            answer = await reader.readuntil(b"no")
        assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"Connection: close\r\n" in answer
        writer.close()


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with raw_backend(echo) as backend, serving(backend.url) as gateway:
        ahead = (
            b"".join(POST + b"Content-Length: 1\r\n\r\n%d" % number for number in range(9))
            + POST
            + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n9\r\n0\r\n\r\n"
        )
        said = await gateway.said(ahead)
        bodies = [part[:1] for part in said.split(b"\r\n\r\n")[1:]]
        assert bodies == [b"%d" % number for number in range(10)]
        assert backend.connections == 1


async def test_a_slow_client_holds_the_backend_back_and_a_slow_backend_the_client() -> None:
    sent = 0

    async def firehose(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(STREAM)
        for _ in range(400):
            await connection.chunk(b"x" * 100_000)
            sent += 100_000
        await connection.send(LAST)

    async with raw_backend(firehose) as backend, serving(backend.url) as gateway:
        reader, writer = await gateway.raw(
            b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        held = sent
        await asyncio.sleep(0.3)
        assert sent == held < 30_000_000
        read = 0
        while part := await reader.read(1 << 20):
            read += len(part)
        assert read > 40_000_000
        writer.close()

    go_on = asyncio.Event()

    async def waits(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await go_on.wait()
        await connection.reader.readexactly(40_000_000)
        await connection.send(OK)

    async with raw_backend(waits) as backend, serving(backend.url) as gateway:
        _, writer = await gateway.raw(POST + b"Content-Length: 40000000\r\n\r\n")
        writer.write(b"x" * 40_000_000)
        await asyncio.sleep(0.3)
        held = writer.transport.get_write_buffer_size()
        await asyncio.sleep(0.3)
        assert writer.transport.get_write_buffer_size() == held > 10_000_000
        go_on.set()
        await writer.drain()
        writer.close()


async def test_every_backend_and_candidate_has_a_url_of_its_own() -> None:
    async with raw_backend(ok) as first, raw_backend(ok) as second, raw_backend(ok) as third:
        candidates = {"next": {"url": f"{third.url}/base/"}}
        async with serving(first.url, second.url, candidates=candidates) as gateway:
            assert (await gateway.client.get("/backends/gpu-2/metrics?x=1")).text == "ok"
            assert (await gateway.client.get("/candidates/next/v1/models")).text == "ok"
            assert (await gateway.client.get("/backends/gpu-2")).text == "ok"
            for path in ("/backends/gpu-3/x", "/candidates/gpu-1/x", "/backends/", "/backends/x"):
                assert (await gateway.client.get(path)).status_code == 404
            gateway.core.router.drain("gpu-2", gateway.core.sweeper.now + 100)
            assert (await gateway.client.get("/backends/gpu-2/health")).text == "ok"
        assert first.requests == []
        lines = [request.line for request in second.requests]
        assert lines == [
            b"GET /metrics?x=1 HTTP/1.1",
            b"GET / HTTP/1.1",
            b"GET /health HTTP/1.1",
        ]
        assert third.requests[0].line == b"GET /base/v1/models HTTP/1.1"


async def test_a_public_path_is_cut_off_and_what_is_beside_it_is_not_served() -> None:
    async with raw_backend(ok) as backend:
        async with serving(backend.url, endpoint={"path": "/chat"}) as gateway:
            for path in ("/chat/v1/models?a=b", "/chat", "/chat?x"):
                assert (await gateway.client.get(path)).text == "ok"
            for path in ("/chats/v1/models", "/", "/v1/models"):
                missing = await gateway.client.get(path)
                assert missing.status_code == 404
                assert missing.json()["error"]["code"] == "no_such_route"
        targets = [request.line.split()[1] for request in backend.requests]
        assert targets == [b"/v1/models?a=b", b"/", b"/?x"]


async def test_the_absolute_form_is_served_as_its_path() -> None:
    async with raw_backend(ok) as backend, serving(backend.url) as gateway:
        await gateway.said(b"GET http://a/b?c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert backend.requests[0].line == b"GET /b?c HTTP/1.1"


async def test_figures_stand_in_the_metrics() -> None:
    async with raw_backend(ok) as backend, serving(backend.url) as gateway:
        await gateway.client.post(CHAT, json={})
        await gateway.client.get("/backends/gpu-1/metrics")
        await gateway.client.get("/candidates/none/")
        shown = gateway.metrics()
    production = '{endpoint="chat",role="production",server="gpu-1"'
    assert f'steady_gateway_requests_total{production},status="2xx"}} 1.0' in shown
    assert f"steady_gateway_time_to_first_chunk_seconds_count{production}}} 1.0" in shown
    assert f"steady_gateway_request_duration_seconds_count{production}}} 1.0" in shown
    assert 'endpoint="chat",role="direct",server="gpu-1",status="2xx"} 1.0' in shown
    assert 'steady_gateway_in_flight{server="gpu-1"} 0.0' in shown
    nobody = 'endpoint="",kind="no_such_route",role="",server=""'
    assert f"steady_gateway_errors_total{{{nobody}}} 1.0" in shown


async def test_an_upgrade_is_refused_clearly() -> None:
    async with raw_backend(ok) as backend, serving(backend.url) as gateway:
        said = await gateway.said(
            b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert said.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
        assert b"an upgrade to websocket is not served here" in said
        assert gateway.faults(Fault.UPGRADE_REFUSED, "") == 1
        assert backend.requests == []


async def test_a_thousand_requests_over_a_hundred_connections_are_all_answered() -> None:
    async with (
        raw_backend(echo) as backend,
        raw_backend(echo) as other,
        serving(backend.url, other.url) as gateway,
    ):
        url = f"http://127.0.0.1:{gateway.port}{CHAT}"

        async def client(number: int) -> None:
            async with httpx.AsyncClient(timeout=PATIENCE, verify=False) as one:
                for turn in range(10):
                    body = b"%d/%d" % (number, turn)
                    assert (await one.post(url, content=body)).content == body

        await asyncio.gather(*(client(number) for number in range(100)))
        assert len(backend.requests) + len(other.requests) == 1000
        assert min(len(backend.requests), len(other.requests)) > 200
        assert all(each.in_flight == 0 for each in gateway.core.router.backends.values())
        await until(lambda: not gateway.core.clients)


async def test_a_refusal_reaches_a_client_that_still_sends() -> None:
    async with serving("http://127.0.0.1:9", endpoint={"path": "/chat"}) as gateway:
        reader, writer = await gateway.raw(POST + b"Content-Length: 50000000\r\n\r\n")
        writer.write(b"x" * 20_000_000)
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
        writer.close()
        await until(lambda: not gateway.core.clients)


async def test_a_thousand_streams_at_once_each_get_their_own() -> None:
    count, all_there = 1000, asyncio.Event()
    waiting = 0

    async def stream(connection: Connection) -> None:
        nonlocal waiting
        request = await connection.request()
        await connection.send(STREAM)
        await connection.chunk(b"first %b\n" % request.body)
        waiting += 1
        if waiting == count:
            all_there.set()
        await all_there.wait()
        for _ in range(3):
            await connection.chunk(b"more %b\n" % request.body)
        await connection.send(LAST)

    async with raw_backend(stream) as backend, serving(backend.url) as gateway:

        async def one(number: int) -> None:
            body = b"%d" % number
            said = await gateway.said(
                POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            assert said.count(b"first %b\n" % body) == 1
            assert said.count(b"more %b\n" % body) == 3
            assert said.endswith(LAST)

        await asyncio.gather(*map(one, range(count)))
        assert gateway.core.router.backends["gpu-1"].in_flight == 0
        assert not gateway.core.tally.faults
