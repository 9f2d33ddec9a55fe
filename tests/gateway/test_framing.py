"""Exactly one framing: what two servers could read differently is never passed on."""

import asyncio
from contextlib import suppress
from itertools import pairwise

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.bodies import Chunked, Counted, chunk
from gateway.faults import Fault, Refused
from gateway.heads import answer_head, request_head
from tests.parts.gateways import serving
from tests.parts.raw_backend import LAST, Connection, ok, raw_backend

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

#: Each is followed by a request that must not be taken for one.
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

REFUSED = {
    "two lengths": (400, POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody"),
    "two equal lengths": (400, POST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody"),
    "a list of lengths": (400, POST + b"Content-Length: 4, 4\r\n\r\nbody"),
    "a signed length": (400, POST + b"Content-Length: +4\r\n\r\nbody"),
    "a negative length": (400, POST + b"Content-Length: -4\r\n\r\nbody"),
    "a hexadecimal length": (400, POST + b"Content-Length: 0x4\r\n\r\nbody"),
    "an empty length": (400, POST + b"Content-Length:\r\n\r\nbody"),
    "an endless length": (400, POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nbody"),
    "length and chunked": (
        400,
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST,
    ),
    "chunked and length": (
        400,
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + LAST,
    ),
    "chunked twice": (400, POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + LAST),
    "chunked in two fields": (
        400,
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST,
    ),
    "another coding": (400, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + LAST),
    "an unknown coding": (400, POST + b"Transfer-Encoding: xchunked\r\n\r\n" + LAST),
    "identity": (400, POST + b"Transfer-Encoding: identity\r\n\r\n" + LAST),
    "a coding with a tab": (400, POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + LAST),
    "chunked in HTTP/1.0": (
        400,
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST,
    ),
    "obs-fold": (400, POST + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n"),
    "obs-fold of the coding": (400, POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + LAST),
    "obs-fold of the first field": (400, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    "a space before the colon": (400, POST + b"Content-Length : 4\r\n\r\nbody"),
    "a field without a colon": (400, POST + b"Content-Length\r\n\r\n"),
    "a bare LF after a field": (400, POST + b"X: a\nContent-Length: 4\r\n\r\nbody"),
    "a bare LF at the end": (400, POST + b"X: a\r\n\nbody"),
    "bare LFs only": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "a bare CR": (400, POST + b"X: a\rContent-Length: 4\r\n\r\nbody"),
    "a NUL": (400, POST + b"X: a\0b\r\n\r\n"),
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "two spaces before the target": (400, b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "two spaces behind the target": (400, b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a tab before the target": (501, b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a CR before the method": (400, b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a space behind the version": (400, b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    "a space before the method": (501, b" GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a space in the target": (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a target that is no path": (400, b"GET a/b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "the target *": (400, b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
    "HTTP/0.9": (501, b"GET /\r\n\r\n"),
    "HTTP/1.2": (400, b"GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    "HTTP/2.0": (501, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    "the preface of HTTP/2": (501, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "CONNECT": (501, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "no method": (501, b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "TLS": (501, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    "an expectation that is none": (400, POST + b"Expect: tea\r\nContent-Length: 0\r\n\r\n"),
    "a connection that names the host": (400, POST + b"Connection: host\r\n\r\n"),
    "a size that is no number": (400, CHUNKED + b"x\r\nbody\r\n" + LAST),
    "an empty size": (400, CHUNKED + b"\r\nbody\r\n" + LAST),
    "a signed size": (400, CHUNKED + b"+4\r\nbody\r\n" + LAST),
    "a size with 0x": (400, CHUNKED + b"0x4\r\nbody\r\n" + LAST),
    "a size with a space before it": (400, CHUNKED + b" 4\r\nbody\r\n" + LAST),
    "a size with a space behind it": (400, CHUNKED + b"4 \r\nbody\r\n" + LAST),
    "a size with an underscore": (400, CHUNKED + b"1_0\r\n" + b"x" * 16 + b"\r\n" + LAST),
    "an endless size": (400, CHUNKED + b"f" * 17 + b"\r\nbody\r\n" + LAST),
    "an endless extension": (400, CHUNKED + b"4;" + b"x" * 300),
    "a size that ends with LF": (400, CHUNKED + b"4\nbody\r\n" + LAST),
    "a size that ends with CR": (400, CHUNKED + b"4\rbody\r\n0\r\n\r\n"),
    "a chunk that ends with LF": (400, CHUNKED + b"4\r\nbody\n" + LAST),
    "a chunk that is too long": (400, CHUNKED + b"4\r\nbodybody\r\n" + LAST),
    "a trailer that ends with LF": (400, CHUNKED + b"0\r\nX: a\n\r\n"),
    "a trailer that is no field": (400, CHUNKED + b"0\r\nX a\r\n\r\n"),
    "endless trailers": (431, CHUNKED + b"0\r\n" + b"X: aaaaaaaaaaaa\r\n" * 1000),
    "a head that is too large": (431, POST + b"X: " + b"a" * 70_000 + b"\r\n\r\n"),
    "a head without end": (431, POST + b"X: " + b"a" * 70_000),
    "a body that is too large": (413, POST + b"Content-Length: 67108865\r\n\r\n"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", REFUSED)
async def test_it_is_refused_and_what_follows_it_is_no_request(case: str) -> None:
    status, data = REFUSED[case]
    async with raw_backend(ok) as backend, serving(backend.url) as gateway:
        said = await gateway.said(data + SMUGGLED)
        assert said.startswith(b"HTTP/1.1 %d " % status)
        assert said.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close\r\n" in said
        assert b'"error": {"message": ' in said
        assert backend.requests == []


@pytest.mark.anyio
async def test_a_chunked_body_over_the_limit_is_refused_in_its_middle() -> None:
    async with raw_backend(ok) as backend, serving(backend.url, max_body="64KiB") as gateway:
        said = await gateway.said(CHUNKED + b"8000\r\n%b\r\n" % (b"x" * 0x8000) * 3)
        assert said.startswith(b"HTTP/1.1 413 Content Too Large\r\n")
        assert gateway.faults(Fault.BODY_TOO_LARGE) == 1
        assert backend.requests == []


BROKEN_ANSWERS = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok",
    "length and chunked": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST
    ),
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    "interim answers without end": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 17,
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", BROKEN_ANSWERS)
async def test_an_answer_that_is_broken_is_502_and_not_asked_for_again(case: str) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(BROKEN_ANSWERS[case])
        await connection.gone()

    async with raw_backend(script) as backend, serving(backend.url, backend.url) as gateway:
        answer = await gateway.client.post("/v1/chat/completions", json={})
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "backend_broken"
        assert len(backend.requests) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    "rest", [b"5\r\nhel", b"zz\r\n", b"5\r\nhelloo\r\n"], ids=["cut", "size", "longer"]
)
async def test_an_answer_that_breaks_in_its_middle_does_not_end_as_if_it_were_whole(
    rest: bytes,
) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        await asyncio.sleep(0.05)
        await connection.send(rest)

    async with raw_backend(script) as backend, serving(backend.url) as gateway:
        said = await gateway.said(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"2\r\nok\r\n" in said
        assert not said.endswith(LAST)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(each % (len(data) + 1) for each in cuts)})
    return [data[begin:end] for begin, end in pairwise(at)]


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(0, 500), max_size=30),
    st.booleans(),
)
def test_a_chunked_body_is_read_alike_however_it_is_cut(
    parts: list[bytes], cuts: list[int], trailers: bool
) -> None:
    written = b"".join(map(chunk, parts)) + (b"0\r\nX-A: 1\r\n\r\n" if trailers else LAST)
    reader, body, rest = Chunked(), b"", b""
    for piece in cut(written + b"GET /", cuts):
        if reader.done:
            rest += piece
        else:
            got, rest = reader.feed(piece)
            body += got
    assert (body, rest, reader.done) == (b"".join(parts), b"GET /", True)
    assert reader.trailers == (b"X-A: 1\r\n" if trailers else b"")


_NEAR_CHUNKED = st.lists(
    st.sampled_from(
        [b"0", b"1", b"4", b"a", b"F", b"\r\n", b"\r", b"\n", b";", b"x", b"body", b" ", b"-", b":"]
    ),
    max_size=14,
).map(b"".join)


@given(_NEAR_CHUNKED)
@settings(max_examples=300)
def test_what_h11_refuses_of_a_chunked_body_is_never_taken(data: bytes) -> None:
    """Where ours takes a body as whole, h11 reads the same body from the same bytes."""
    ours = _ours(data)
    if ours is None:
        return
    body, rest = ours
    theirs = h11.Connection(h11.SERVER)
    theirs.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    assert isinstance(theirs.next_event(), h11.Request)
    read = b""
    while isinstance(event := theirs.next_event(), h11.Data):
        read += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert read == body
    assert theirs.trailing_data[0] == rest


def _ours(data: bytes) -> tuple[bytes, bytes] | None:
    reader = Chunked()
    with suppress(Refused):
        body, rest = reader.feed(data)
        return (body, rest) if reader.done else None
    return None


_FIELDS = st.lists(
    st.sampled_from(
        [
            b"Host: a",
            b"Content-Length: 3",
            b"Content-Length: 03",
            b"content-length:3 ",
            b"Transfer-Encoding: chunked",
            b"transfer-encoding:Chunked\t",
            b"Transfer-Encoding: gzip",
            b"Connection: close",
            b" folded",
            b"X: \xff",
            b"X : a",
            b"X",
            b": a",
            b"X: \x01",
        ]
    ),
    max_size=5,
)


@given(_FIELDS, st.sampled_from([b"\r\n", b"\n"]), st.sampled_from([b"1.0", b"1.1"]))
@settings(max_examples=300)
def test_a_head_that_is_taken_has_the_framing_that_h11_sees(
    fields: list[bytes], line_end: bytes, version: bytes
) -> None:
    raw = line_end.join([b"POST / HTTP/" + version, *fields]) + line_end * 2
    try:
        head = request_head(raw)
    except Refused:
        return
    theirs = h11.Connection(h11.SERVER)
    theirs.receive_data(raw)
    request = theirs.next_event()
    assert isinstance(request, h11.Request)
    seen = dict(request.headers)
    length = seen.get(b"content-length")
    assert head.chunked == (b"transfer-encoding" in seen)
    assert head.length == (None if head.chunked else int(length or 0))


def test_heads_that_repeat_are_remembered_only_while_they_are_small() -> None:
    small = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    large = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 5000 + b"\r\n\r\n"
    assert request_head(small) is request_head(small)
    assert request_head(large) is not request_head(large)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
    assert answer_head(answer) is answer_head(answer)


def test_a_counted_body_ends_at_its_length() -> None:
    reader = Counted(5)
    assert reader.feed(b"abc") == (b"abc", b"")
    assert not reader.done
    assert reader.feed(b"defg") == (b"de", b"fg")
    assert reader.done
    assert Counted(0).done


@pytest.mark.anyio
async def test_bytes_in_any_pieces_are_the_same_request() -> None:
    async with raw_backend(ok) as backend, serving(backend.url) as gateway:
        data = CHUNKED.replace(b"Host", b"Connection: close\r\nHost") + b"3\r\nabc\r\n" + LAST
        reader, writer = await gateway.raw()
        for at in range(len(data)):
            writer.write(data[at : at + 1])
            await asyncio.sleep(0.001)
        assert (await reader.read()).endswith(b"\r\n\r\nok")
        assert backend.requests[0].body == b"abc"
        writer.close()
