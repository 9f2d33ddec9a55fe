"""With a real nginx as backend, as candidate, and in front."""

import asyncio
import os
from pathlib import Path

import httpx
import pytest

from tests.parts.gateways import PATIENCE, serving, until
from tests.parts.nginx import nginx
from tests.parts.raw_backend import LAST, STREAM, Connection, echo, raw_backend

pytestmark = [pytest.mark.anyio, pytest.mark.needs("nginx-light")]

CHAT = "/v1/chat/completions"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
#: They are of one connection, or of one moment.
OWN = {"connection", "date", "keep-alive"}

ASKED: dict[str, tuple[str, dict[str, str]]] = {
    "whole": ("GET", {}),
    "head": ("HEAD", {}),
    "part": ("GET", {"Range": "bytes=100-199"}),
    "parts": ("GET", {"Range": "bytes=0-9,20-29"}),
    "out of range": ("GET", {"Range": "bytes=99999999-"}),
    "compressed": ("GET", {"Accept-Encoding": "gzip"}),
    "not modified": ("GET", {"If-Modified-Since": "Fri, 31 Dec 2100 00:00:00 GMT"}),
    "not allowed": ("DELETE", {}),
}


async def shown(client: httpx.AsyncClient, url: str, case: str) -> tuple[object, ...]:
    method, headers = ASKED[case]
    headers = {"Accept-Encoding": "identity", **headers}
    async with client.stream(method, url, headers=headers) as answer:
        body = b"".join([part async for part in answer.aiter_raw()])
        kept = sorted(item for item in answer.headers.multi_items() if item[0] not in OWN)
    if case == "parts":  # nginx draws a boundary for each
        boundary = answer.headers["content-type"].rpartition("=")[2].encode()
        body = body.replace(boundary, b"")
        kept = [item for item in kept if item[0] != "content-type"]
    return answer.status_code, answer.reason_phrase, kept, body


@pytest.mark.parametrize("case", ASKED)
async def test_what_nginx_answers_comes_through_as_it_is(case: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_bytes(b"words " * 10_000)
    rest = f"root {tmp_path}; gzip on; gzip_types text/plain;"
    async with nginx(tmp_path / "nginx", rest) as backend, serving(backend) as gateway:
        direct = await shown(gateway.client, f"{backend}/file.txt", case)
        for _ in range(2):
            assert await shown(gateway.client, "/file.txt", case) == direct


async def test_no_request_is_lost_where_nginx_ends_its_connections(tmp_path: Path) -> None:
    rest = 'keepalive_requests 3; location / { return 200 "ok"; }'
    async with nginx(tmp_path, rest) as backend, serving(backend) as gateway:
        for _ in range(20):
            assert (await gateway.client.get("/x")).text == "ok"
        assert not gateway.core.tally.faults


async def test_nginx_says_100_continue_and_413_and_both_reach_the_client(tmp_path: Path) -> None:
    async with raw_backend(echo) as behind:
        rest = f"client_max_body_size 1m; location / {{ proxy_pass {behind.url}; }}"
        async with nginx(tmp_path, rest) as backend, serving(backend) as gateway:
            reader, writer = await gateway.raw(
                POST + b"Content-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
            )
            async with asyncio.timeout(PATIENCE):
                assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                writer.write(b"body")
                assert (await reader.read()).endswith(b"\r\n\r\nbody")
            writer.close()
            reader, writer = await gateway.raw(POST + b"Content-Length: 30000000\r\n\r\n")
            writer.write(b"x" * 10_000_000)
            async with asyncio.timeout(PATIENCE):
                assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
            writer.close()


async def test_a_stream_through_nginx_on_both_sides_comes_chunk_by_chunk(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def stream(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        for number in range(5):
            await connection.chunk(b"data: %d\n\n" % number)
            await go_on.wait()
            go_on.clear()
        await connection.send(LAST)

    def passing(url: str) -> str:
        return f"location / {{ proxy_pass {url}; proxy_http_version 1.1; proxy_buffering off; }}"

    async with (
        raw_backend(stream) as behind,
        nginx(tmp_path / "behind", passing(behind.url)) as backend,
        serving(backend) as gateway,
        nginx(tmp_path / "front", passing(f"http://127.0.0.1:{gateway.port}")) as front,
    ):
        got = []
        async with gateway.client.stream("POST", front + CHAT, json={}) as answer:
            async for part in answer.aiter_raw():
                got.append(part)
                go_on.set()  # the next is sent only once this one has arrived
        assert got == [b"data: %d\n\n" % number for number in range(5)]


async def test_an_upload_from_nginx_reaches_backend_and_candidate_unchanged(tmp_path: Path) -> None:
    body = os.urandom(3_000_000)
    async with raw_backend(echo) as production, raw_backend(echo) as behind:
        large = "client_max_body_size 10m;"
        rest = f"{large} location / {{ proxy_pass {behind.url}; proxy_http_version 1.1; }}"
        async with nginx(tmp_path / "candidate", rest) as candidate:
            candidates = {"next": {"url": candidate, "sample": 100, "buffer": "16MiB"}}
            async with serving(production.url, candidates=candidates) as gateway:
                to = f"http://127.0.0.1:{gateway.port}"
                rest = f"{large} location / {{ proxy_pass {to}; }}"
                async with nginx(tmp_path / "front", rest) as front:
                    answer = await gateway.client.post(front + CHAT, content=body)
                    assert answer.content == body
                await until(lambda: gateway.core.tally.results["chat", "next", "completed"] == 1)
        assert behind.requests[0].body == body
