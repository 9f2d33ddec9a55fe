"""What is sent to servers that load models on demand, and how long an answer may take."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from activities.engine_pages import EnginePages
from activities.engine_requests import EngineRequests
from fleet.contracts.engine import AskRequest
from fleet.engine_sources import EngineSource
from fleet.engines.reading import Answer, Came, EngineReading
from tests.parts import engine_pages as texts
from tests.parts.raw_backend import Connection, RawBackend, raw_backend

pytestmark = pytest.mark.anyio

LIMIT = timedelta(seconds=5)


def serving(pages: dict[str, Any]) -> AbstractAsyncContextManager[RawBackend]:
    """A server of these pages, whatever follows a ``?``; a request for an answer gets one."""

    async def script(connection: Connection) -> None:
        request = await connection.request()
        method, target, _ = request.line.decode().split()
        found = pages.get(target) or pages.get(target.partition("?")[0])
        if method == "POST":
            found = {"choices": []}
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        status = "404 None" if found is None else "200 OK"
        head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        await connection.send(head.encode() + body)

    return raw_backend(script)


async def seen(source: EngineSource) -> EngineReading:
    engine = (await EnginePages().look("s", source, LIMIT)).engine
    assert engine is not None
    return engine


async def answered(source: EngineSource, **request: Any) -> Answer:
    reading = await EngineRequests(EnginePages()).ask(
        "s", source, AskRequest(server="s", **request)
    )
    assert reading.engine is not None
    assert reading.engine.answer is not None
    return reading.engine.answer


async def test_llamacpps_router_is_told_with_all_that_names_a_model_to_load_none() -> None:
    """The model may be put away between the list and what follows."""
    models = {"data": [{"id": "tiny", "status": {"value": "loaded"}}]}
    page = "/metrics?model=tiny&autoload=false"
    async with serving({"/v1/models": models, page: texts.llamacpp()}) as server:
        source = EngineSource(kind="llamacpp", url=server.url, model="tiny")
        assert (await seen(source)).engines
        lines = [request.line.decode() for request in server.requests]
        assert [line for line in lines if "model=" in line] == [f"GET {page} HTTP/1.1"]
    async with serving({"/v1/models": models}) as server:
        source = EngineSource(kind="llamacpp", url=server.url)
        assert (await answered(source)).came is Came.GIVEN
        (sent,) = [each.line for each in server.requests if each.body]
        assert sent == b"POST /v1/completions?autoload=false HTTP/1.1"


async def test_ollama_is_asked_with_the_context_that_its_model_was_loaded_with() -> None:
    """With another one it would load the model anew."""
    loaded = {"models": [{"name": "tiny:latest", "context_length": 3072}]}
    async with serving({"/api/ps": loaded}) as server:
        assert (await answered(EngineSource(kind="ollama", url=server.url))).came is Came.GIVEN
        (sent,) = [json.loads(each.body) for each in server.requests if each.body]
    assert (sent["model"], sent["options"]) == ("tiny:latest", {"num_predict": 1, "num_ctx": 3072})


async def test_where_one_movement_may_be_the_requests_own_the_answer_gets_as_long_again() -> None:
    steps, asked = 7, asyncio.Event()

    async def script(connection: Connection) -> None:
        nonlocal steps
        request = await connection.request()
        if request.line.startswith(b"POST"):
            asked.set()
            await asyncio.sleep(4)
        if b" /metrics " in request.line and asked.is_set():
            steps = 8
        body = texts.lmdeploy(running=1, steps=steps)
        body = body if b" /metrics " in request.line else b'{"data": [{"id": "m"}]}'
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        await connection.send(head + body)

    async with raw_backend(script) as server:
        source = EngineSource(kind="lmdeploy", url=server.url, deadline=timedelta(seconds=3))
        said = await answered(source, since=await seen(source), suspected=True)
    assert said.came is Came.GIVEN
