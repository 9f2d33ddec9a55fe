"""A candidate is asked for its own model and its usage; production's request is as it was."""

import asyncio
import gzip
import json
import os
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from gateway.editing import MOST_PARTS
from gateway.routing import MIRROR
from gateway.tally import Who
from tests.parts.gateways import PATIENCE, administered, ended, serving, until
from tests.parts.raw_backend import LAST, STREAM, Connection, ok, raw_backend

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"


def candidate(url: str, **more: Any) -> dict[str, Any]:
    return {"url": url, "sample": 100, "model": "next-70b", **more}


async def test_a_candidate_is_asked_for_its_own_model() -> None:
    bodies = [
        b'{"messages": [{"role": "user", "model": "x"}], "model": "old-8b", "n": 1}',
        b'{"model":"old-8b"}',
        b'{"model":"old-8b","model":"older"}',
        b'{"input": ["a"]}',
        b"{}",
    ]
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(production.url, candidates={"next": candidate(other.url)}) as gateway:
            for number, body in enumerate(bodies, 1):
                await gateway.client.post(CHAT, content=body)
                assert await ended(gateway, number) == {"completed": number}
        assert [request.body for request in production.requests] == bodies
        assert [request.body for request in other.requests] == [
            b'{"messages": [{"role": "user", "model": "x"}], "model": "next-70b", "n": 1}',
            b'{"model":"next-70b"}',
            b'{"model":"next-70b"}',
            b'{"input": ["a"],"model":"next-70b"}',
            b'{"model":"next-70b"}',
        ]
        for request in other.requests:
            assert request.value("content-length") == str(len(request.body)).encode()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("model_first", [False, True])
@pytest.mark.parametrize("size", [10, 2_000, 500_000])
async def test_a_body_that_comes_in_pieces_is_one_document_for_the_candidate(
    size: int, model_first: bool, chunked: bool
) -> None:
    said: dict[str, Any] = {"messages": [{"role": "user", "content": 'é"\\' * (size // 4)}]}
    model = {"model": "old-8b"}
    asked = {**model, **said} if model_first else {**said, **model}
    body = json.dumps({**asked, "stream": True}, ensure_ascii=False).encode()
    places = [*range(0, len(body), max(7, len(body) // 20)), len(body)]

    async def parts() -> AsyncIterator[bytes]:
        for begin, end in pairwise(places):
            yield body[begin:end]
            await asyncio.sleep(0.002)

    headers = {} if chunked else {"Content-Length": str(len(body))}
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(production.url, candidates={"next": candidate(other.url)}) as gateway:
            assert (await gateway.client.post(CHAT, content=parts(), headers=headers)).text == "ok"
            assert await ended(gateway, 1) == {"completed": 1}
            assert gateway.gateway.mirrors.budget.peak >= len(body) // 20
        assert production.requests[0].body == body
        got = other.requests[0]
        assert json.loads(got.body) == {
            **json.loads(body),
            "model": "next-70b",
            "stream_options": {"include_usage": True},
        }
        framing = {name: got.value(name) for name in ("content-length", "transfer-encoding")}
        length = str(len(got.body)).encode()
        assert framing == (
            {"content-length": None, "transfer-encoding": b"chunked"}
            if chunked
            else {"content-length": length, "transfer-encoding": None}
        )


async def test_what_an_edit_holds_is_charged_until_it_is_sent() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(production.url, candidates={"next": candidate(other.url)}) as gateway:
            budget = gateway.gateway.mirrors.budget
            _, writer = await gateway.raw(POST + b"Content-Length: 18\r\n\r\n")
            writer.write(b'{"mode')
            await until(lambda: budget.retained == len(b'"mode'))
            writer.write(b'l"')
            await until(lambda: budget.retained == 0)
            writer.write(b':"old-8b"}')
            assert await ended(gateway, 1) == {"completed": 1}
            writer.close()
        assert json.loads(other.requests[0].body) == {"model": "next-70b"}


async def test_an_edit_that_finds_no_room_ends_the_mirrored_request_alone() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(production.url, candidates={"next": candidate(other.url)}) as gateway:
            budget = gateway.gateway.mirrors.budget
            budget.limit = 10  # for the piece of six bytes, and not for those that are held of it
            reader, writer = await gateway.raw(POST + b"Content-Length: 18\r\n\r\n")
            writer.write(b'{"mode')
            assert await ended(gateway, 1) == {"budget_exceeded": 1}
            writer.write(b'l":"old-8b"')
            writer.write(b"}")
            assert (await asyncio.wait_for(reader.read(), PATIENCE)).endswith(b"ok")
            writer.close()
        assert production.requests[0].body == b'{"model":"old-8b"}'


async def test_a_body_of_too_many_parts_ends_the_mirrored_request_alone() -> None:
    body = b'{"input":[' + b"[]," * MOST_PARTS + b'1],"model":"old-8b"}'
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(production.url, candidates={"next": candidate(other.url)}) as gateway:
            assert (await gateway.client.post(CHAT, content=body)).text == "ok"
            assert await ended(gateway, 1) == {"budget_exceeded": 1}
        assert production.requests[0].body == body
        assert not other.requests


async def test_what_cant_be_edited_is_counted_and_goes_to_the_others() -> None:
    body = b'{"model":"old-8b","stream":true}'
    kinds = {
        "compressed": {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        "not_json": {"Content-Type": "multipart/form-data; boundary=x"},
    }
    async with (
        raw_backend(ok) as production,
        raw_backend(ok) as named,
        raw_backend(ok) as same,
    ):
        candidates = {
            "named": candidate(named.url),
            "named-too": candidate(named.url),
            "same": candidate(same.url, model=None),
        }
        async with serving(production.url, candidates=candidates) as gateway:
            for number, (reason, headers) in enumerate(kinds.items(), 1):
                sent = gzip.compress(body) if reason == "compressed" else body
                await gateway.client.post(CHAT, content=sent, headers=headers)
                assert await ended(gateway, number) == {"completed": number}
                assert gateway.core.tally.unmirrored["chat", reason] == 1
                line = f'steady_gateway_unmirrored_total{{endpoint="chat",reason="{reason}"}} 1.0'
                assert line in gateway.metrics()
                assert same.requests[-1].body == sent
            plain = {"Content-Type": "application/problem+json; charset=utf-8"}
            await gateway.client.post(CHAT, content=body, headers=plain)
            assert await ended(gateway, 5) == {"completed": 5}
        assert len(named.requests) == 2


async def test_what_is_no_json_object_goes_to_the_candidate_as_it_is() -> None:
    bodies = [b"[1]", b"\x1f\x8b{", b" x", b'{"model":', b'"model"', os.urandom(300_000)]
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(production.url, candidates={"next": candidate(other.url)}) as gateway:
            for number, body in enumerate(bodies, 1):
                await gateway.client.post(CHAT, content=body)
                assert await ended(gateway, number) == {"completed": number}
        assert [request.body for request in other.requests] == bodies


async def resets(connection: Connection) -> None:
    await connection.reader.read(1000)
    connection.writer.transport.abort()


async def never_reads(connection: Connection) -> None:
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(PATIENCE)


async def reads_and_is_silent(connection: Connection) -> None:
    await connection.gone()


async def test_nothing_stays_charged_whatever_a_candidate_does() -> None:
    said = [{"role": "user", "content": "x" * 300_000}, {"stream": [{"model": 1}] * 50}]
    body = json.dumps({"messages": said, "model": "old-8b", "stream": True}).encode()

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 9_973):
            yield body[at : at + 9_973]
            await asyncio.sleep(0)

    scripts = [resets, never_reads, reads_and_is_silent, ok]
    async with raw_backend(ok) as production, _all(scripts) as urls:
        candidates = {
            f"c{at}": candidate(url, timeout="700ms", buffer="256KiB")
            for at, url in enumerate(urls)
        }
        async with serving(production.url, candidates=candidates) as gateway:
            for _ in range(3):
                answers = await asyncio.gather(
                    *(gateway.client.post(CHAT, content=parts()) for _ in range(4))
                )
                assert [answer.text for answer in answers] == ["ok"] * 4
            found = await ended(gateway, 48)
            assert found.total() == 48
            assert found["completed"] == 12
        assert {request.body for request in production.requests} == {body}


class _all:  # noqa: N801 - read as a function
    """Several raw backends at once; gives their URLs."""

    def __init__(self, scripts: list[Any]) -> None:
        self._made = [raw_backend(script) for script in scripts]

    async def __aenter__(self) -> list[str]:
        return [(await each.__aenter__()).url for each in self._made]

    async def __aexit__(self, *_: object) -> None:
        for each in self._made:
            await each.__aexit__(None, None, None)


async def tells_if_asked(connection: Connection) -> None:
    """As an engine does: the usage is in an event of its own, where it is asked for."""
    while True:
        request = await connection.request()
        asked = (json.loads(request.body).get("stream_options") or {}).get("include_usage")
        await connection.send(STREAM)
        for _ in range(3):
            await connection.chunk(b'data: {"choices":[{"delta":{"content":"a b c"}}]}\n\n')
        if asked:
            usage = b'{"prompt_tokens":7,"completion_tokens":9,"total_tokens":16}'
            await connection.chunk(b'data: {"choices":[],"usage":%b}\n\n' % usage)
        await connection.chunk(b"data: [DONE]\n\n")
        await connection.send(LAST)


@pytest.mark.parametrize("asks", [True, False])
async def test_a_candidate_is_asked_for_the_usage_of_its_streams(asks: bool) -> None:
    body = b'{"model":"m","stream":true}'
    async with raw_backend(tells_if_asked) as production, raw_backend(tells_if_asked) as other:
        spec = candidate(other.url, model=None, ask_usage=asks)
        async with serving(production.url, candidates={"next": spec}) as gateway:
            answer = await gateway.client.post(CHAT, content=body)
            assert b"usage" not in answer.content
            await ended(gateway, 1)
        assert production.requests[0].body == body
        wanted = b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}'
        assert other.requests[0].body == (wanted if asks else body)
        series = gateway.core.tally.series[Who("chat", "next", MIRROR)]
        [generation] = series.generations.values()
    assert (generation.told.total, generation.counted.total) == ((9, 0) if asks else (0, 3))


async def test_only_completions_are_asked_for_usage() -> None:
    """The other streams tell it anyway, and know no such field."""
    body = b'{"model":"m","stream":true}'
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        spec = candidate(other.url, model=None)
        async with serving(production.url, candidates={"next": spec}) as gateway:
            for number, path in enumerate(("responses", "messages", "completions"), 1):
                await gateway.client.post(f"/v1/{path}", content=body)
                await ended(gateway, number)
        asked = [b"stream_options" in request.body for request in other.requests]
        assert asked == [False, False, True]


async def test_a_candidate_that_is_added_by_an_order_has_its_model() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(production.url) as gateway, administered(gateway) as admin:
            spec = {"url": other.url, "sample": 100, "model": "next-70b"}
            put = await admin.put("/endpoints/chat/candidates/next", json=spec)
            assert put.status_code == 200
            await gateway.client.post(CHAT, content=b'{"model":"old-8b"}')
            assert await ended(gateway, 1) == {"completed": 1}
            wrong = await admin.put("/endpoints/chat/candidates/next", json={**spec, "model": ""})
            assert wrong.status_code == 400
        assert other.requests[0].body == b'{"model":"next-70b"}'
