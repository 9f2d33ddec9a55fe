"""The same bytes are read by the gateway and by h11: where both take a request, they take the same.

Where only one of them takes it, that is one of the differences that are listed here.
"""

import random
import re
from collections.abc import Callable
from typing import NamedTuple

import h11
import pytest

from gateway.bodies import Chunked, Counted
from gateway.faults import Refused
from gateway.heads import END, request_head
from tests.gateway.test_framing import CHUNKED, POST, REFUSED
from tests.gateway.test_fuzz import mangled
from tests.parts.raw_backend import LAST

STREAMS = 4000


class Taken(NamedTuple):
    """The first request of a stream, and what lies behind it."""

    method: bytes
    target: bytes
    fields: frozenset[tuple[bytes, bytes]]
    body: bytes
    rest: bytes


#: What a reader makes of a stream: a request, why there is none, or none as yet.
Read = Taken | str | None

#: Fields that the gateway does not pass on, or writes anew.
NOT_COMPARED = {b"host", b"expect", b"content-length", b"transfer-encoding", b"connection"}


def ours(data: bytes) -> Read:
    while data.startswith(b"\r\n"):
        data = data[2:]
    head, end, rest = data.partition(END)
    if not end:
        return "bare LF" if b"\n" in data.replace(b"\r\n", b"") else None
    try:
        taken = request_head(head + end)
        reader = Chunked() if taken.chunked else Counted(taken.length or 0)
        body, rest = (b"", rest) if reader.done else reader.feed(rest)
    except Refused as refused:
        return refused.message
    fields = frozenset((low, value) for low, _, value in taken.fields if low not in NOT_COMPARED)
    return Taken(taken.method, taken.target, fields, body, rest) if reader.done else None


def theirs(data: bytes) -> Read:
    reader, body = h11.Connection(h11.SERVER, max_incomplete_event_size=100_000), b""
    try:
        reader.receive_data(data)
        request = reader.next_event()
        if request is h11.NEED_DATA:
            return None
        assert isinstance(request, h11.Request)
        while isinstance(event := reader.next_event(), h11.Data):
            body += event.data
    except h11.RemoteProtocolError as problem:
        return str(problem)
    if event is h11.NEED_DATA:
        return None
    fields = {(low, value) for low, value in request.headers if low not in NOT_COMPARED}
    left_out = _hop_by_hop(request)
    kept = frozenset(field for field in fields if field[0] not in left_out)
    return Taken(request.method, request.target, kept, body, reader.trailing_data[0])


def _hop_by_hop(request: h11.Request) -> set[bytes]:
    named = [value for low, value in request.headers if low == b"connection"]
    return {each.strip(b" \t").lower() for value in named for each in value.split(b",")}


#: What the gateway refuses and h11 takes, or waits for: an example, and what the gateway says.
STRICTER: dict[str, tuple[bytes, str]] = {
    "methods that are not served": (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", "no such method"),
    "CONNECT": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT is not served"),
    "versions that are none of ours": (
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "use HTTP/1.1|invalid http version",
    ),
    "targets that are no path": (
        b"GET a/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "unexpected (start )?char in url|invalid characters in url|the target is no path",
    ),
    "a line that ends with LF alone": (
        POST + b"X: a\nContent-Length: 0\r\n\r\n",
        "bare LF|missing expected cr|ends without CR and LF|expected crlf|header field char",
    ),
    "a field in several lines": (
        POST + b"X: a\r\n b\r\n\r\n",
        "unexpected whitespace after header value|invalid header value char",
    ),
    "control characters in a value": (POST + b"X: \x01\r\n\r\n", "invalid header value char"),
    "equal lengths": (
        POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "duplicate content-length|invalid character in content-length",
    ),
    "length and chunked": (
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST,
        "can't be present with",
    ),
    "chunked in HTTP/1.0": (
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST,
        "Transfer-Encoding in a request of HTTP/1.0",
    ),
    "expectations that are none": (POST + b"Expect: tea\r\n\r\n", "Expect is not"),
    "Connection that names what a request needs": (
        POST + b"Connection: host\r\n\r\n",
        "Connection names a field that belongs to the request",
    ),
    "blanks behind a size": (CHUNKED + b"1 \r\nx\r\n" + LAST, "size is no hexadecimal number"),
    "an extension without end": (CHUNKED + b"1;" + b"x" * 300, "chunk's size is too long"),
    "trailers without end": (CHUNKED + b"0\r\nX: " + b"x" * 9000, "trailers are too long"),
    "trailers that are no fields": (CHUNKED + b"0\r\nX: \x01\r\n\r\n", "trailers are broken"),
}

#: What the gateway takes and h11 refuses: an example, and what h11 says.
MILDER: dict[str, tuple[bytes, str]] = {
    # RFC 9112, 2.2: a server should ignore an empty line before a request.
    "an empty line first": (b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "no request line received"),
    # RFC 9112, 7.1.1: blanks that old senders write before an extension.
    "blanks before an extension": (
        CHUNKED + b"1 ;a=b\r\nx\r\n" + LAST,
        "illegal chunk header",
    ),
}


@pytest.mark.parametrize("difference", STRICTER)
def test_a_request_that_only_h11_takes_is_refused_for_the_reason_that_is_listed(
    difference: str,
) -> None:
    example, reason = STRICTER[difference]
    assert not isinstance(theirs(example), str)
    said = ours(example)
    assert isinstance(said, str)
    assert re.search(reason, said)


@pytest.mark.parametrize("difference", MILDER)
def test_a_request_that_only_the_gateway_takes_is_listed(difference: str) -> None:
    example, reason = MILDER[difference]
    assert isinstance(ours(example), Taken)
    said = theirs(example)
    assert isinstance(said, str)
    assert re.search(reason, said)


def listed(said: Read, differences: dict[str, tuple[bytes, str]]) -> bool:
    return isinstance(said, str) and any(re.search(why, said) for _, why in differences.values())


def _streams() -> dict[str, Callable[[], list[bytes]]]:
    rng = random.Random(20261130)
    return {
        "refused": lambda: [data for _, data in REFUSED.values()],
        "mangled": lambda: [mangled(rng) for _ in range(STREAMS)],
    }


@pytest.mark.parametrize("kind", ["refused", "mangled"])
def test_both_read_the_same_or_differ_as_is_listed(kind: str) -> None:
    taken = 0
    for data in _streams()[kind]():
        here, there = ours(data), theirs(data)
        if isinstance(here, str) and isinstance(there, str):
            continue
        if isinstance(here, str):
            assert listed(here, STRICTER), (here, there, data)
        elif isinstance(there, str):
            assert listed(there, MILDER), (here, there, data)
        else:
            assert here == there, data
            taken += here is not None
    assert kind == "refused" or taken > STREAMS / 4
