"""Production is as quick as without mirrors, whatever its candidates do.

Gateway and candidates are processes of their own: only so do delays show what a client feels.
"""

import asyncio
import hashlib
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pytest

from tests.gateway.test_command import STEADY, WITH_TOKEN, write
from tests.parts.bad_candidates import beside
from tests.parts.gateways import PATIENCE, serving, until
from tests.parts.ports import free_port
from tests.parts.processes import command
from tests.parts.raw_backend import LAST, OK, STREAM, Connection, ok, raw_backend

pytestmark = pytest.mark.anyio

#: What is shorter is the noise of a machine.
NOISE = 0.005
STREAMS, EVENTS = 8, 100


async def streams(connection: Connection) -> None:
    """Takes the whole body, then tells its digest and the time, again and again."""
    while True:
        request = await connection.request()
        digest = hashlib.sha256(request.body).hexdigest()
        await connection.send(STREAM)
        for _ in range(EVENTS):
            await connection.chunk(f"data: {digest} {time.monotonic():.6f}\n\n".encode())
            await asyncio.sleep(0.01)
        await connection.send(LAST)


@asynccontextmanager
async def started(folder: Path, backend: int, candidates: Mapping[str, str]) -> AsyncIterator[str]:
    folder.mkdir()
    url, _ = write(folder, backend)
    text = (folder / "fleet.toml").read_text()
    for name, address in candidates.items():
        text += f'[endpoints.chat.candidates.{name}]\nurl = "{address}"\nsample = 100\n'
    (folder / "fleet.toml").write_text(text)
    with command(STEADY, folder, "gateway", variables=WITH_TOKEN) as running:
        await asyncio.to_thread(running.until, "serving")
        yield url


async def delays(url: str) -> list[float]:
    """How late each event of some streams was; their bytes are as production sent them."""
    late: list[float] = []

    async def one() -> None:
        body = os.urandom(200_000)
        digest = hashlib.sha256(body).hexdigest()
        async with (
            httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
            client.stream("POST", f"{url}/v1/chat/completions", content=body) as answer,
        ):
            assert answer.headers["content-type"] == "text/event-stream"
            lines = [line async for line in _timed(answer, late) if line]
        assert [line.split()[:2] for line in lines] == [["data:", digest]] * EVENTS

    await asyncio.gather(*(one() for _ in range(STREAMS)))
    return late


async def _timed(answer: httpx.Response, late: list[float]) -> AsyncIterator[str]:
    async for line in answer.aiter_lines():
        if line:
            late.append(time.monotonic() - float(line.split()[2]))
        yield line


async def test_ten_bad_candidates_at_once_delay_no_event_of_production(tmp_path: Path) -> None:
    async with raw_backend(streams) as production, beside() as bad:
        names = {name.replace("_", "-"): url for name, url in bad.items()}
        names["refuses"] = f"http://127.0.0.1:{free_port()}"
        assert len(names) == 10
        async with started(tmp_path / "without", production.port, {}) as url:
            await delays(url)
            without = median(await delays(url))
        async with started(tmp_path / "with", production.port, names) as url:
            first, second = median(await delays(url)), median(await delays(url))
        assert min(first, second) < 10 * max(without, NOISE)


async def test_a_candidate_whose_name_nobody_answers_for_keeps_no_backend_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, asked, answered = socket.getaddrinfo, Counter[str](), threading.Event()

    def slow(host: str, *rest: Any, **named: Any) -> Any:
        asked[host] += 1
        if host == "candidate.example":
            answered.wait(PATIENCE)
            raise socket.gaierror(socket.EAI_AGAIN, "nobody answers")
        return real(host, *rest, **named)

    async def once(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))

    monkeypatch.setattr("gateway.names.socket.getaddrinfo", slow)
    nobody = {"url": "http://candidate.example", "sample": 100}
    async with raw_backend(once) as production:
        url = f"http://localhost:{production.port}"
        async with serving(url, candidates={"nobody": nobody}, connect_timeout="1s") as gateway:
            try:
                for _ in range(8):
                    answer = await gateway.client.post("/v1/chat/completions", json={})
                    assert answer.status_code == 200
                assert asked["localhost"] == 8
                await until(lambda: not gateway.gateway.mirrors.running)
                assert gateway.core.tally.results["chat", "nobody", "candidate_not_ready"] == 8
                assert asked["candidate.example"] == 1
            finally:
                answered.set()


async def test_each_address_of_a_name_is_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def two(*_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", (host, 0)) for host in ("127.0.0.2", "127.0.0.1")]

    async with raw_backend(ok) as production:
        monkeypatch.setattr("gateway.names.socket.getaddrinfo", two)
        async with serving(f"http://two.example:{production.port}") as gateway:
            assert (await gateway.client.get("/v1/models")).text == "ok"
        assert production.requests[0].value("host") == b"two.example:%d" % production.port
