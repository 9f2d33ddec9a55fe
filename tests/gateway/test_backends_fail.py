"""Backends that refuse, die or hang, and clients that go away."""

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest

from gateway.faults import Fault
from tests.parts.gateways import PATIENCE, Serving, serving, until
from tests.parts.ports import free_port
from tests.parts.raw_backend import LAST, OK, STREAM, Connection, echo, ok, raw_backend

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"


def dead() -> str:
    return f"http://127.0.0.1:{free_port()}"


async def dies(connection: Connection) -> None:
    await connection.request()


async def never(connection: Connection) -> None:
    await connection.request()
    await connection.gone()


async def test_a_request_that_is_refused_moves_to_another_backend_with_its_body() -> None:
    async with raw_backend(echo) as backend, serving(dead(), backend.url) as gateway:
        for number in range(6):
            body = b"%d" % number * 1000
            assert (await gateway.client.post(CHAT, content=body)).content == body
        assert gateway.core.tally.moved["chat", "gpu-1"] >= 1
        in_flight = [each.in_flight for each in gateway.core.router.backends.values()]
        assert in_flight == [0, 0]


async def test_a_backend_that_was_not_reached_is_asked_last_for_a_while() -> None:
    async with raw_backend(ok) as backend, serving(dead(), backend.url) as gateway:
        for _ in range(20):
            await gateway.client.post(CHAT, json={})
        assert gateway.core.tally.moved["chat", "gpu-1"] < 5


async def test_a_request_moves_where_its_backend_dies_before_it_answers() -> None:
    async with (
        raw_backend(dies) as dying,
        raw_backend(echo) as backend,
        serving(dying.url, backend.url) as gateway,
    ):
        for _ in range(4):
            assert (await gateway.client.post(CHAT, content=b"body")).content == b"body"
        assert gateway.core.tally.moved["chat", "gpu-1"] == len(dying.requests) >= 1


async def test_it_moves_once_and_then_it_is_502_in_openais_form() -> None:
    async with (
        raw_backend(dies) as one,
        raw_backend(dies) as two,
        raw_backend(dies) as three,
        serving(one.url, two.url, three.url) as gateway,
    ):
        answer = await gateway.client.post(CHAT, json={})
        assert answer.status_code == 502
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["content-type"] == "application/json"
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["code"]) == ("server_error", "backend_died")
        assert len(one.requests) + len(two.requests) + len(three.requests) == 2
        assert gateway.faults(Fault.BACKEND_DIED) == 1


async def test_where_no_backend_is_reached_it_is_503() -> None:
    async with serving(dead(), dead()) as gateway:
        answer = await gateway.client.post(CHAT, json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["error"]["code"] == "backend_unreachable"
        head = await gateway.client.head(CHAT)
        assert (head.status_code, head.content) == (503, b"")


async def test_a_body_that_is_too_long_to_be_kept_does_not_move() -> None:
    async def dies_late(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.reader.readexactly(2_000_000)

    async with (
        raw_backend(dies_late) as one,
        raw_backend(dies_late) as two,
        serving(one.url, two.url, replay="1MiB") as gateway,
    ):
        reader, writer = await gateway.raw(POST + b"Content-Length: 2000001\r\n\r\n")
        writer.write(b"x" * 2_000_000)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readline()) == b"HTTP/1.1 502 Bad Gateway\r\n"
        assert one.connections + two.connections == 1
        writer.close()


async def test_an_idle_connection_that_the_backend_closed_costs_no_request() -> None:
    async def once(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.reader.read(1)  # the next request comes, and finds it closed

    async with raw_backend(once) as backend, serving(backend.url) as gateway:
        for _ in range(5):
            assert (await gateway.client.post(CHAT, json={})).status_code == 200
        assert gateway.core.tally.moved["chat", "gpu-1"] == 0


async def test_an_answer_that_breaks_off_is_broken_for_the_client_too() -> None:
    async def breaks(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with raw_backend(breaks) as backend, serving(backend.url, backend.url) as gateway:
        with pytest.raises(httpx.RemoteProtocolError):
            await gateway.client.post(CHAT, json={})
        assert len(backend.requests) == 1
        assert gateway.faults(Fault.BACKEND_DIED) == 1


async def test_the_least_busy_backend_is_chosen() -> None:
    async with (
        raw_backend(never) as one,
        raw_backend(never) as two,
        serving(one.url, two.url) as gateway,
    ):
        connections = [await gateway.raw(POST + b"Content-Length: 0\r\n\r\n") for _ in range(8)]
        await until(lambda: len(one.requests) + len(two.requests) == 8)
        assert (len(one.requests), len(two.requests)) == (4, 4)
        for _, writer in connections:
            writer.close()


async def test_a_drained_backend_gets_nothing_until_its_lease_ends() -> None:
    async with raw_backend(ok) as one, raw_backend(ok) as two, serving(one.url, two.url) as gateway:
        router, now = gateway.core.router, gateway.core.sweeper.now
        router.drain("gpu-1", now + 100)
        for _ in range(5):
            await gateway.client.post(CHAT, json={})
        assert (len(one.requests), len(two.requests)) == (0, 5)
        assert 'steady_gateway_drained{server="gpu-1"} 1.0' in gateway.metrics()
        router.drain("gpu-2", now + 100)
        answer = await gateway.client.post(CHAT, json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["error"]["code"] == "no_backend"
        assert gateway.faults(Fault.NO_BACKEND) == 1
        router.undrain("gpu-2")
        router.drain("gpu-1", now + 0.2)
        route = router.find(b"/x")
        assert route is not None
        first, second = router.backends["gpu-1"], router.backends["gpu-2"]
        assert route.choose(gateway.core.sweeper.now, [second]) is None
        await until(lambda: route.choose(gateway.core.sweeper.now, [second]) is first)
        with pytest.raises(KeyError):
            router.drain("gpu-9", now)


async def test_a_last_resort_gets_what_no_other_backend_is_left_for() -> None:
    async with raw_backend(ok) as one, raw_backend(ok) as two, serving(one.url, two.url) as gateway:
        router, now = gateway.core.router, gateway.core.sweeper.now
        router.drain("gpu-1", now + 100, now)
        for _ in range(5):
            await gateway.client.post(CHAT, json={})
        assert (len(one.requests), len(two.requests)) == (0, 5)
        assert 'steady_gateway_drained{server="gpu-1"} 1.0' in gateway.metrics()
        router.drain("gpu-2", now + 100)
        assert (await gateway.client.post(CHAT, json={})).status_code == 200
        assert (len(one.requests), len(two.requests)) == (1, 5)


async def test_a_last_resort_is_where_a_request_moves_that_the_only_other_backend_refused() -> None:
    async with raw_backend(ok) as one, serving(one.url, dead()) as gateway:
        router, now = gateway.core.router, gateway.core.sweeper.now
        router.drain("gpu-1", now + 100, now)
        assert (await gateway.client.post(CHAT, json={})).status_code == 200
        assert len(one.requests) == 1


async def open_stream(gateway: Serving) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await gateway.raw(POST + b"Content-Length: 2\r\n\r\n{}")
    return reader, writer


async def test_a_client_that_goes_before_the_first_token_cancels_the_backends_request() -> None:
    async with raw_backend(never) as backend, serving(backend.url) as gateway:
        _, writer = await open_stream(gateway)
        await until(lambda: backend.requests)
        writer.close()
        async with asyncio.timeout(10):  # it is to be within a second
            await until(lambda: backend.open == 0)
        assert gateway.faults(Fault.CLIENT_GONE) == 1


async def test_a_client_that_goes_in_the_stream_cancels_the_backends_request() -> None:
    async def stream(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        await connection.chunk(b"data: 1\n\n")
        await connection.gone()

    async with raw_backend(stream) as backend, serving(backend.url) as gateway:
        reader, writer = await open_stream(gateway)
        await reader.readuntil(b"data: 1\n\n")
        writer.close()
        await until(lambda: backend.open == 0)
        assert gateway.core.router.backends["gpu-1"].in_flight == 0


async def test_a_client_that_goes_in_a_plain_answer_cancels_the_backends_request() -> None:
    async def half(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await connection.gone()

    async with raw_backend(half) as backend, serving(backend.url) as gateway:
        reader, writer = await open_stream(gateway)
        await reader.readuntil(b"half")
        writer.close()
        await until(lambda: backend.open == 0)
        assert gateway.faults(Fault.CLIENT_GONE) == 1
        assert gateway.core.router.backends["gpu-1"].in_flight == 0


async def test_a_client_that_goes_while_its_upload_is_held_back_is_noticed() -> None:
    async def waits(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await gave_up.wait()
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await connection.gone()

    gave_up = asyncio.Event()
    async with raw_backend(waits) as backend, serving(backend.url) as gateway:
        _, writer = await gateway.raw(POST + b"Content-Length: 60000000\r\n\r\n")
        await until(lambda: gateway.core.clients)
        (client,) = gateway.core.clients
        while client._is_reading:
            writer.write(b"x" * 65_536)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()
        await until(lambda: gateway.faults(Fault.CLIENT_GONE) == 1)
        gave_up.set()
        await until(lambda: backend.open == 0)


async def test_where_the_engine_bears_no_abort_the_answer_runs_dry() -> None:
    go_on, ended = asyncio.Event(), asyncio.Event()

    async def stream(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        await connection.chunk(b"data: 1\n\n")
        await go_on.wait()
        for _ in range(200):
            await connection.chunk(b"x" * 100_000)
        await connection.send(LAST)
        ended.set()
        await connection.request()
        await connection.send(OK)

    endpoint = {"client_gone": "run_dry"}
    async with raw_backend(stream) as backend, serving(backend.url, endpoint=endpoint) as gateway:
        reader, writer = await open_stream(gateway)
        await reader.readuntil(b"data: 1\n\n")
        writer.close()
        await until(lambda: gateway.core.dry)
        assert gateway.core.router.backends["gpu-1"].in_flight == 1
        go_on.set()
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
        await until(lambda: not gateway.core.dry)
        assert (await gateway.client.post(CHAT, json={})).status_code == 200
        assert backend.connections == 1


async def test_a_backend_that_never_answers_is_504() -> None:
    async with (
        raw_backend(never) as backend,
        serving(backend.url, answer_timeout="300ms") as gateway,
    ):
        answer = await gateway.client.post(CHAT, json={})
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "backend_timeout"
        await until(lambda: backend.open == 0)


async def test_a_stream_that_stands_still_is_broken_off() -> None:
    async def stops(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        await connection.chunk(b"1")
        await connection.gone()

    async with (
        raw_backend(stops) as backend,
        serving(backend.url, chunk_timeout="300ms") as gateway,
    ):
        said = await gateway.said(POST + b"Content-Length: 0\r\n\r\n")
        assert said.endswith(b"1\r\n1\r\n")
        assert gateway.faults(Fault.BACKEND_TIMEOUT) == 1


async def test_a_connection_that_is_not_made_in_time_is_503() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        async with serving(url, connect_timeout="200ms") as gateway:
            answer = await gateway.client.post(CHAT, json={})
        for each in waiting:
            each.close()
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "backend_unreachable"


SLOW = {
    "no byte": (b"", b""),
    "half a head": (b"GET / HT", b"HTTP/1.1 408 Request Timeout"),
    "half a body": (POST + b"Content-Length: 9\r\n\r\nhalf", b"HTTP/1.1 408 Request Timeout"),
}


@pytest.mark.parametrize("case", SLOW)
async def test_a_client_that_is_too_slow_is_told_so(case: str) -> None:
    data, expected = SLOW[case]
    times: dict[str, Any] = {
        "head_timeout": "300ms",
        "body_timeout": "300ms",
        "keep_alive": "300ms",
    }
    async with raw_backend(ok) as backend, serving(backend.url, **times) as gateway:
        said = await gateway.said(data)
        assert said.partition(b"\r\n")[0] == expected
        await until(lambda: backend.open == 0)


async def test_a_client_that_does_not_read_its_answer_is_let_go() -> None:
    async def firehose(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        for _ in range(1000):
            await connection.chunk(b"x" * 100_000)

    async with (
        raw_backend(firehose) as backend,
        serving(backend.url, stall_timeout="300ms") as gateway,
    ):
        _, writer = await open_stream(gateway)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: gateway.faults(Fault.CLIENT_STALLED) == 1)
        await until(lambda: backend.open == 0)
        writer.close()


async def test_more_clients_than_the_limit_are_turned_away() -> None:
    async with raw_backend(never) as backend, serving(backend.url, max_clients=2) as gateway:
        connections = [await open_stream(gateway) for _ in range(2)]
        await until(lambda: len(backend.requests) == 2)
        said = await gateway.said(b"")
        assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        error = json.loads(said.partition(b"\r\n\r\n")[2])["error"]
        assert error["code"] == "too_many_clients"
        for _, writer in connections:
            writer.close()


async def test_idle_connections_to_a_backend_are_closed_before_it_closes_them() -> None:
    async with (
        raw_backend(ok) as backend,
        serving(backend.url, backend_keep_alive="200ms") as gateway,
    ):
        await gateway.client.post(CHAT, json={})
        await until(lambda: backend.open == 0)


async def test_told_to_stop_it_finishes_what_is_in_flight_and_takes_no_more() -> None:
    go_on = asyncio.Event()

    async def waits(connection: Connection) -> None:
        await connection.request()
        await go_on.wait()
        await connection.send(OK)
        await connection.gone()

    async with (
        raw_backend(waits) as backend,
        serving(backend.url, graceful_shutdown="20s") as gateway,
    ):
        _, idle = await gateway.raw()
        answering = asyncio.create_task(gateway.client.post(CHAT, json={}))
        await until(lambda: backend.requests)
        stopping = asyncio.create_task(gateway.gateway.stop())
        await asyncio.sleep(0.05)
        with pytest.raises(ConnectionError):
            await gateway.raw()
        go_on.set()
        answer = await answering
        assert (answer.text, answer.headers["connection"]) == ("ok", "close")
        async with asyncio.timeout(PATIENCE):
            await stopping
        idle.close()


async def test_what_does_not_end_within_the_limit_is_cut_off() -> None:
    async with (
        raw_backend(never) as backend,
        serving(backend.url, graceful_shutdown="200ms") as gateway,
    ):
        reader, _ = await open_stream(gateway)
        await until(lambda: backend.requests)
        async with asyncio.timeout(PATIENCE):
            await gateway.gateway.stop()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        await until(lambda: backend.open == 0)
