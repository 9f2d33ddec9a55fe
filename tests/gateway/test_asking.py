"""Usage is asked for where a client did not, and the client's answer is what it would have been."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.asking import LONGEST, Hider
from gateway.routing import PRODUCTION
from gateway.tally import Generation, Who
from tests.parts.gateways import PATIENCE, Serving, serving, until
from tests.parts.ports import free_port
from tests.parts.raw_backend import LAST, OK, STREAM, Connection, ok, raw_backend

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
ASKS = {"ask_usage": True}
STREAMED = b'{"model":"m","stream":true}'
ASKED = b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}'
DONE = b"data: [DONE]\n\n"


def event(**said: Any) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**head, **said}, separators=(",", ":")).encode() + b"\n\n"


USAGE = event(choices=[], usage={"prompt_tokens": 7, "total_tokens": 16, "completion_tokens": 9})
SAID = [
    event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]),
    *(event(choices=[{"index": 0, "delta": {"content": f"a{n} b c"}}]) for n in range(3)),
    event(choices=[{"index": 0, "delta": {"content": '"usage":{"choices":[]} \n\n'}}]),
    event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
]


def engine(cut: int | None = None, *, ends: bytes = LAST, newline: bytes = b"\n") -> Any:
    """As vLLM: an event with the usage, before the last, where it was asked for. Its bytes come in
    pieces of ``cut``, or event by event.
    """

    async def script(connection: Connection) -> None:
        while True:
            request = await connection.request()
            options = json.loads(request.body).get("stream_options") or {}
            events = [*SAID, *([USAGE] if options.get("include_usage") else []), DONE]
            events = [each.replace(b"\n\n", newline * 2) for each in events]
            await connection.send(STREAM)
            whole = b"".join(events)
            pieces: Iterable[bytes] = events
            if cut is not None:
                pieces = (whole[at : at + cut] for at in range(0, len(whole), cut))
            for piece in pieces:
                await connection.chunk(piece)
                if cut is not None:
                    await asyncio.sleep(0)
            await connection.send(ends)
            if ends != LAST:
                return

    return script


def generation(gateway: Serving, server: str = "gpu-1") -> Generation:
    [found] = gateway.core.tally.series[Who("chat", server, PRODUCTION)].generations.values()
    return found


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("cut", [None, 1, 7, 100, 100_000])
async def test_a_client_that_did_not_ask_sees_the_same_bytes(
    cut: int | None, newline: bytes
) -> None:
    async with raw_backend(engine(cut, newline=newline)) as backend:
        async with serving(backend.url) as gateway:
            plain = await gateway.client.post(CHAT, content=STREAMED)
            assert generation(gateway).told.total == 0
        async with serving(backend.url, endpoint=ASKS) as gateway:
            hidden = await gateway.client.post(CHAT, content=STREAMED)
            assert generation(gateway).told.total == 9
            assert generation(gateway).input.total == 7
            assert generation(gateway).counted.total == 0
        assert [request.body for request in backend.requests] == [STREAMED, ASKED]
    assert hidden.content == plain.content
    assert hidden.headers == plain.headers
    assert b"prompt_tokens" not in hidden.content


async def test_a_client_that_asked_sees_its_usage() -> None:
    asks = json.dumps({"stream": True, "stream_options": {"include_usage": True}}).encode()
    async with raw_backend(engine()) as backend:
        async with serving(backend.url, endpoint=ASKS) as gateway:
            answer = await gateway.client.post(CHAT, content=asks)
            assert generation(gateway).told.total == 9
        assert backend.requests[0].body == asks
    assert answer.content == b"".join([*SAID, USAGE, DONE])


async def test_it_is_off_unless_switched_on() -> None:
    async with raw_backend(engine()) as backend, serving(backend.url) as gateway:
        await gateway.client.post(CHAT, content=STREAMED)
        assert backend.requests[0].body == STREAMED
        assert backend.requests[0].value("accept-encoding") is not None


async def test_an_event_is_passed_on_before_the_next_one_is_there() -> None:
    go_on = asyncio.Event()

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        for each in (*SAID, USAGE, DONE):
            await connection.chunk(each)
            await asyncio.wait_for(go_on.wait(), PATIENCE)
            go_on.clear()
        await connection.send(LAST)

    got = b""
    async with (
        raw_backend(script) as backend,
        serving(backend.url, endpoint=ASKS) as gateway,
        gateway.client.stream("POST", CHAT, content=STREAMED) as answer,
        asyncio.timeout(PATIENCE),
    ):
        chunks = answer.aiter_raw()
        for each in SAID:
            got += await anext(chunks)
            assert got.endswith(each)
            go_on.set()
        await until(lambda: not go_on.is_set())
        go_on.set()
        assert await anext(chunks) == DONE
        go_on.set()
    assert got == b"".join(SAID)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_body_that_comes_in_pieces_is_asked_too(streams: bool, chunked: bool) -> None:
    said = {"messages": ["x" * 200_000], "stream": streams, "model": "m"}
    body = json.dumps(said).encode()

    async def parts() -> AsyncIterator[bytes]:
        for begin, end in pairwise([*range(0, len(body), 9_999), len(body)]):
            yield body[begin:end]
            await asyncio.sleep(0.001)

    headers = {} if chunked else {"Content-Length": str(len(body))}
    async with raw_backend(ok) as backend, serving(backend.url, endpoint=ASKS) as gateway:
        assert (await gateway.client.post(CHAT, content=parts(), headers=headers)).text == "ok"
        request = backend.requests[0]
        wanted = {"stream_options": {"include_usage": True}} if streams else {}
        assert json.loads(request.body) == {**said, **wanted}
        length = str(len(request.body)).encode()
        assert request.value("content-length") == (None if chunked else length)
        assert request.value("transfer-encoding") == (b"chunked" if chunked else None)


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (CHAT, b'{"model":"m"}', {}),
        (CHAT, b'{"model":"m","stream":false}', {}),
        (CHAT, b'["stream"]', {}),
        (CHAT, b'{"stream":true}', {"Content-Encoding": "gzip"}),
        (CHAT, b'{"stream":true}', {"Content-Type": "multipart/form-data; boundary=x"}),
        ("/v1/responses", b'{"stream":true}', {}),
        ("/v1/messages", b'{"stream":true}', {}),
        ("/backends/gpu-1/v1/chat/completions", b'{"stream":true}', {}),
    ],
)
async def test_all_else_reaches_production_as_it_was(
    path: str, body: bytes, headers: dict[str, str]
) -> None:
    async with raw_backend(ok) as backend:
        for endpoint in ({}, ASKS):
            async with serving(backend.url, endpoint=endpoint) as gateway:
                client = gateway.client
                answer = await client.post(path, content=body, headers={"Host": "a", **headers})
                assert answer.text == "ok"
        before, after = backend.requests
    assert before.raw == after.raw


async def test_nothing_compressed_is_asked_for_with_it() -> None:
    async with raw_backend(engine()) as backend:
        async with serving(backend.url, endpoint=ASKS) as gateway:
            headers = {"Accept-Encoding": "gzip", "X-Own": "1"}
            await gateway.client.post(CHAT, content=STREAMED, headers=headers)
        assert backend.requests[0].value("accept-encoding") is None
        assert backend.requests[0].value("x-own") == b"1"
        assert backend.requests[0].value("content-length") == str(len(ASKED)).encode()


async def test_a_request_that_moves_asks_the_other_backend_as_well() -> None:
    async def dies(connection: Connection) -> None:
        await connection.request()

    body = json.dumps({"messages": ["x" * 100_000], "stream": True}).encode()
    dead = f"http://127.0.0.1:{free_port()}"
    for first in (None, dies):
        async with raw_backend(first or dies) as broken, raw_backend(engine()) as backend:
            url = dead if first is None else broken.url
            async with serving(url, backend.url, endpoint=ASKS) as gateway:
                for _ in range(4):
                    answer = await gateway.client.post(CHAT, content=body)
                    assert answer.content == b"".join([*SAID, DONE])
                assert gateway.core.tally.moved["chat", "gpu-1"] > 0
            assert {request.body for request in backend.requests} == {
                body[:-1] + b',"stream_options":{"include_usage":true}}'
            }


async def test_a_stream_that_breaks_off_is_seen_as_far_as_it_came() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        await connection.chunk(SAID[0] + SAID[1][:50])

    async with raw_backend(script) as backend, serving(backend.url, endpoint=ASKS) as gateway:
        length = len(STREAMED)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        said = await gateway.said(head % length + STREAMED)
    assert SAID[0] in said
    assert SAID[1][:50] in said
    assert not said.endswith(LAST)


async def test_a_stream_of_a_known_length_is_shortened() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        body = b"".join([*SAID, USAGE, DONE])
        kind = b"Content-Type: text/event-stream\r\n"
        head = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (kind, len(body))
        await connection.send(head + body)

    async with raw_backend(script) as backend, serving(backend.url, endpoint=ASKS) as gateway:
        answer = await gateway.client.post(CHAT, content=STREAMED)
    assert answer.content == b"".join([*SAID, DONE])


async def test_an_error_is_passed_on_as_it_is() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        body = b'{"choices":[],"usage":{"a":1}}'
        await connection.send(b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with raw_backend(script) as backend, serving(backend.url, endpoint=ASKS) as gateway:
        answer = await gateway.client.post(CHAT, content=STREAMED)
    assert (answer.status_code, answer.content) == (400, b'{"choices":[],"usage":{"a":1}}')


_ANY = st.sampled_from(
    [
        *SAID,
        USAGE,
        DONE,
        b": ping\n\n",
        b"event: x\r\ndata: {}\r\n\r\n",
        USAGE.replace(b"\n", b"\r\n"),
        b'data: {"choices":[],"usage":null}\n\n',
        b'data: {"choices": [ ], "usage": {"prompt_tokens": 1}}\n\n',
        b'data: {"usage":{"prompt_tokens":1},"choices":[{"text":"a"}]}\n\n',
        b'data: {"choices":[],"prompt_filter_results":[]}\n\n',
        b'data: {"choices":[],"usage":{"a\n\n',
        b'data: "' + b"x" * LONGEST + b'"\n\n',
    ]
)
_HIDDEN = {
    USAGE,
    USAGE.replace(b"\n", b"\r\n"),
    b'data: {"choices": [ ], "usage": {"prompt_tokens": 1}}\n\n',
}


@given(events=st.lists(_ANY, max_size=8), cuts=st.lists(st.integers(0, 70_000), max_size=12))
@example(events=[SAID[0], USAGE, DONE], cuts=list(range(600)))
@settings(max_examples=150, deadline=None)
def test_just_the_event_with_the_usage_is_left_out_wherever_the_bytes_are_cut(
    events: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join(events)
    hider, out, came = Hider(), b"", 0
    for begin, end in pairwise(sorted({0, *(cut for cut in cuts if cut < len(whole)), len(whole)})):
        out += hider.feed(whole[begin:end])
        came = end
        ended, at = b"", 0
        for each in events:
            at += len(each)
            if at > came:
                break
            ended += b"" if each in _HIDDEN else each
        assert out.startswith(ended), "each event as soon as it has ended"
    out += hider.end()
    assert out == b"".join(each for each in events if each not in _HIDDEN)


def test_what_is_held_is_bounded_and_what_is_no_event_passes() -> None:
    hider, out = Hider(), b""
    for _ in range(64):
        out += hider.feed(b"x" * 10_000)
        assert len(hider._held) <= LONGEST
    assert len(out) >= 640_000 - 2
    assert out + hider.feed(b"\n\n" + USAGE + DONE) + hider.end() == b"x" * 640_000 + b"\n\n" + DONE
    lone = Hider()
    got = b"".join(lone.feed(part) for part in (b"data: a\r\r", b"data: b\r\r", b"data: c"))
    assert got.startswith(b"data: a\r\rdata: b")


def test_what_was_broken_off_in_the_usage_is_not_shown() -> None:
    hider = Hider()
    assert hider.feed(SAID[0] + USAGE[:-10]) + hider.end() == SAID[0]


async def test_a_slow_client_holds_back_a_stream_that_was_asked() -> None:
    sent, many = 0, event(choices=[{"index": 0, "delta": {"content": "x" * 30_000}}])

    async def firehose(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(STREAM)
        for _ in range(1_000):
            await connection.chunk(many)
            sent += len(many)
        await connection.chunk(USAGE + DONE)
        await connection.send(LAST)

    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    async with raw_backend(firehose) as backend, serving(backend.url, endpoint=ASKS) as gateway:
        asked = head + b"Content-Length: %d\r\n\r\n" % len(STREAMED) + STREAMED
        reader, writer = await gateway.raw(asked)
        await reader.readuntil(b"\r\n\r\n")
        held = -1
        async with asyncio.timeout(PATIENCE):
            while sent != held:
                held = sent
                await asyncio.sleep(0.5)
        assert 0 < held < 25_000_000
        read = 0
        while part := await asyncio.wait_for(reader.read(1 << 20), PATIENCE):
            read += len(part)
            assert b"prompt_tokens" not in part
        assert read > 1_000 * len(many)
        writer.close()


async def test_each_part_of_a_body_goes_to_the_backend_as_it_comes() -> None:
    arrived = b""
    body = b'{"messages":["a","b"],"stream":true}'

    async def reads(connection: Connection) -> None:
        nonlocal arrived
        head = await connection.reader.readuntil(b"\r\n\r\n")
        assert b"Expect: 100-continue" in head
        await connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(arrived) < length:
            arrived += await connection.reader.read(length)
        await connection.send(OK)

    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
    async with raw_backend(reads) as backend, serving(backend.url, endpoint=ASKS) as gateway:
        reader, writer = await gateway.raw(head + b"Content-Length: %d\r\n\r\n" % len(body))
        await asyncio.wait_for(reader.readuntil(b"100 Continue\r\n\r\n"), PATIENCE)
        for at in (13, 17, 21):  # behind a value, where nothing is held back
            writer.write(body[len(arrived) : at])
            await until(lambda at=at: arrived == body[:at])  # type: ignore[misc]
        writer.write(body[21:])
        await asyncio.wait_for(reader.readuntil(b"ok"), PATIENCE)
        writer.close()
    assert json.loads(arrived) == {**json.loads(body), "stream_options": {"include_usage": True}}
