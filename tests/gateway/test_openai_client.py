"""The official client, as applications use it: answers, streams, errors, retries, time-outs."""

import json

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from gateway.faults import Fault
from tests.parts.gateways import PATIENCE, Serving, serving, until
from tests.parts.ports import free_port
from tests.parts.raw_backend import LAST, STREAM, Connection, raw_backend
from tests.parts.vllm import sim_vllm

pytestmark = pytest.mark.anyio

ASKED: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "say something"}]


def client(gateway: Serving, *, retries: int = 0, timeout: float = PATIENCE) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"http://127.0.0.1:{gateway.port}/v1",
        api_key="k",
        max_retries=retries,
        timeout=timeout,
    )


def event(text: str) -> bytes:
    delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    one = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    return b"data: %b\n\n" % json.dumps({**one, "choices": [delta]}).encode()


async def test_it_gets_an_answer_and_the_list_of_models() -> None:
    async with sim_vllm() as engine, serving(engine.url) as gateway, client(gateway) as asking:
        answer = await asking.chat.completions.create(model="tiny", messages=ASKED, max_tokens=3)
        assert answer.choices[0].finish_reason == "length"
        assert [model.id async for model in asking.models.list()] == ["tiny"]


async def test_it_gets_a_stream_as_it_comes_and_its_candidate_too() -> None:
    async def streams(connection: Connection) -> None:
        request = await connection.request()
        assert request.value("authorization") == b"Bearer k"
        await connection.send(STREAM)
        for number in range(20):
            await connection.chunk(event(f"{number} "))
        await connection.chunk(b"data: [DONE]\n\n")
        await connection.send(LAST)

    async def candidate(connection: Connection) -> None:
        request = await connection.request()
        assert request.value("authorization") is None
        await connection.send(STREAM + LAST)

    async with raw_backend(streams) as backend, raw_backend(candidate) as other:
        candidates = {"next": {"url": other.url, "sample": 100}}
        async with (
            serving(backend.url, candidates=candidates) as gateway,
            client(gateway) as asking,
        ):
            stream = await asking.chat.completions.create(model="tiny", messages=ASKED, stream=True)
            said = [part.choices[0].delta.content async for part in stream]
            assert said == [f"{number} " for number in range(20)]
            await until(lambda: gateway.core.tally.results["chat", "next", "completed"] == 1)
        assert json.loads(other.requests[0].body)["messages"] == ASKED


async def test_it_reads_the_gateways_own_errors_as_openais() -> None:
    async with serving(f"http://127.0.0.1:{free_port()}") as gateway, client(gateway) as asking:
        with pytest.raises(openai.InternalServerError) as unreachable:
            await asking.chat.completions.create(model="tiny", messages=ASKED)
        assert unreachable.value.status_code == 503
        assert unreachable.value.code == "backend_unreachable"
        assert unreachable.value.type == "server_error"
        assert unreachable.value.response.headers["retry-after"] == "5"
    async with (
        serving("http://127.0.0.1:9", endpoint={"path": "/chat"}, max_body="1KiB") as gateway,
        client(gateway) as asking,
    ):
        with pytest.raises(openai.NotFoundError) as missing:
            await asking.chat.completions.create(model="tiny", messages=ASKED)
        assert (missing.value.code, missing.value.type) == (
            "no_such_route",
            "invalid_request_error",
        )
        long: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "x" * 2000}]
        with pytest.raises(openai.APIStatusError) as large:
            await asking.chat.completions.create(model="tiny", messages=long)
        assert (large.value.status_code, large.value.code) == (413, "body_too_large")


async def test_it_asks_again_when_the_gateway_says_that_it_may() -> None:
    async def dies_once(connection: Connection) -> None:
        request = await connection.request()
        if len(connection.backend.requests) > 1:
            body = b'{"object": "list", "data": [{"index": 0, "embedding": [0.5]}]}'
            assert request.line == b"POST /v1/embeddings HTTP/1.1"
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            await connection.send(head % len(body) + body)

    async with (
        raw_backend(dies_once) as backend,
        serving(backend.url) as gateway,
        client(gateway, retries=2) as asking,
    ):
        answer = await asking.embeddings.create(model="tiny", input="a", encoding_format="float")
        assert answer.data[0].embedding == [0.5]
        assert len(backend.requests) == 2
        assert gateway.faults(Fault.BACKEND_DIED) == 1


async def test_its_time_out_and_its_close_cancel_what_the_backend_does() -> None:
    async def begins(connection: Connection) -> None:
        request = await connection.request()
        if b'"stream":true' in request.body.replace(b" ", b""):
            await connection.send(STREAM)
            await connection.chunk(event("first"))
        await connection.gone()

    async with (
        raw_backend(begins) as backend,
        serving(backend.url) as gateway,
        client(gateway, timeout=0.5) as asking,
    ):
        with pytest.raises(openai.APITimeoutError):
            await asking.chat.completions.create(model="tiny", messages=ASKED)
        await until(lambda: backend.requests and backend.open == 0)
        stream = await asking.chat.completions.create(
            model="tiny", messages=ASKED, stream=True, timeout=PATIENCE
        )
        assert (await anext(stream)).choices[0].delta.content == "first"
        await stream.close()
        await until(lambda: backend.open == 0)
        assert gateway.faults(Fault.CLIENT_GONE) == 2


async def test_it_is_told_of_a_stream_that_breaks_off() -> None:
    async def breaks(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        await connection.chunk(event("first"))

    async with (
        raw_backend(breaks) as backend,
        serving(backend.url) as gateway,
        client(gateway) as asking,
    ):
        stream = await asking.chat.completions.create(model="tiny", messages=ASKED, stream=True)
        assert (await anext(stream)).choices[0].delta.content == "first"
        with pytest.raises(openai.APIConnectionError):
            await anext(stream)
