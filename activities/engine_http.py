"""HTTP to engines: one exchange a connection, and a bound on everything that comes back.

A client of its own, on asyncio's streams and the parser that the gateway uses: `steady check` has
to start in a moment, a sweep reads a thousand pages, and neither wants redirects, proxies or pools.
Time is bounded by whoever calls: what is cancelled has closed its connection.
"""

import asyncio
import os
import re
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit

import httptools

from activities.answers import BadAnswer

#: Bytes of a status line and headers; no engine comes near it.
_LARGEST_HEAD = 64 * 1024
_CHUNK = 64 * 1024
_SECOND_ADDRESS_AFTER = 0.25

_INFORMATIONAL = range(100, 200)
_URL_SAFE = "/%:@!$&'()*+,;=~-._?"
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class Unreachable(Exception):
    """No connection came about: refused, no route, no such host or socket."""


class Broken(Exception):
    """A connection came about, and no whole answer in HTTP."""


@dataclass(frozen=True)
class Place:
    """Where a server is reached beside its URL: a Unix socket, and whom its certificate is from."""

    socket: str | None = None
    ca: str | None = None


@dataclass(frozen=True)
class Got:
    """``headers`` go by lower-case names. ``cut``: more of the body came than was asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool


@dataclass
class _Answer:
    """What the parser has found so far; its methods are the parser's callbacks."""

    largest: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    has_head: bool = False
    is_done: bool = False
    status: int = 0

    def __post_init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        self.has_head = self.status not in _INFORMATIONAL
        if not self.has_head:
            self.headers.clear()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_done = self.has_head

    @property
    def is_cut(self) -> bool:
        return len(self.body) > self.largest

    @property
    def ends_with_the_connection(self) -> bool:
        is_chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        return self.has_head and not is_chunked and "content-length" not in self.headers


async def exchange(
    place: Place, url: str, headers: Mapping[str, str], *, largest: int, body: bytes | None = None
) -> Got:
    """GET a page, or POST a ``body`` of JSON, and read at most ``largest`` bytes of what comes.

    Raises:
        Unreachable: there is no connection.
        Broken: the answer is not whole, or no HTTP.
        BadAnswer: TLS failed, or the URL, the socket or the CA's file are no good.
    """
    parts = urlsplit(url)
    request = _request(parts, headers, body)
    reader, writer = await _connected(place, parts)
    try:
        writer.write(request)
        return await _received(reader, largest)
    except ssl.SSLError as problem:
        raise BadAnswer(_distrust(problem)) from None
    except OSError as problem:
        raise Broken(_words(problem, "the connection broke")) from None
    finally:
        # Nothing more is wanted of it, and a polite end could be waited for for ever.
        writer.transport.abort()


def decoded(got: Got, largest: int) -> bytes:
    """The body, unpacked where it was packed though nobody asked for that, as proxies do.

    Raises:
        BadAnswer: it can't be unpacked, or is larger than ``largest`` then.
        Broken: what was packed is not there to its end.
    """
    coding = got.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity"):
        return got.body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise BadAnswer(f"the answer is packed as {coding[:20]!r}, though nobody asked for that")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        body = unpacker.decompress(got.body, largest + 1)
    except zlib.error:
        raise BadAnswer(f"the answer says that it is {coding}, and is not") from None
    if len(body) > largest:
        raise BadAnswer(f"the answer unpacks to over {largest // 1024**2} MiB")
    if got.body and not unpacker.eof:
        raise Broken("its packed answer breaks off in the middle")
    return body


def _request(parts: SplitResult, headers: Mapping[str, str], body: bytes | None) -> bytes:
    target = quote(parts.path or "/", safe=_URL_SAFE)
    target += f"?{quote(parts.query, safe=_URL_SAFE)}" if parts.query else ""
    try:
        host = parts.netloc.rpartition("@")[2].encode("idna").decode()
    except UnicodeError:
        raise BadAnswer("the URL's host is no name") from None
    method = "GET" if body is None else "POST"
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "User-Agent: steady"]
    lines += ["Accept: */*", "Accept-Encoding: identity", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body or b"")


async def _connected(
    place: Place, parts: SplitResult
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = _trust(place.ca) if parts.scheme == "https" else None
    named = parts.hostname if context is not None else None
    try:
        if place.socket is not None:
            return await asyncio.open_unix_connection(
                place.socket, ssl=context, server_hostname=named
            )
        return await asyncio.open_connection(
            parts.hostname,
            parts.port or (443 if context is not None else 80),
            ssl=context,
            server_hostname=named,
            happy_eyeballs_delay=_SECOND_ADDRESS_AFTER,
        )
    except ssl.SSLError as problem:
        raise BadAnswer(_distrust(problem)) from None
    except PermissionError:
        what = "its socket" if place.socket is not None else "a connection to it"
        raise BadAnswer(f"the worker may not use {what}: permission denied") from None
    except OSError as problem:
        raise Unreachable(_words(problem, "no connection")) from None
    except UnicodeError:
        raise BadAnswer("the URL's host is no name") from None


async def _received(reader: asyncio.StreamReader, largest: int) -> Got:
    answer, head = _Answer(largest), 0
    while not answer.is_done and not answer.is_cut:
        data = await reader.read(_CHUNK)
        if not data:
            if answer.ends_with_the_connection:
                break
            raise Broken(
                "the connection broke in the middle of its answer"
                if answer.has_head
                else "it closed the connection without an answer in HTTP"
            )
        head += len(data) if not answer.has_head else 0
        try:
            answer.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not answer.is_done:
                raise Broken("it gave no answer in HTTP") from None
        if head > _LARGEST_HEAD and not answer.has_head:
            raise Broken(f"the head of its answer is over {_LARGEST_HEAD // 1024} KiB")
    body = bytes(answer.body[:largest])
    return Got(answer.status, answer.headers, body, answer.is_cut)


def _trust(ca: str | None) -> ssl.SSLContext:
    """
    Raises:
        BadAnswer: the CA's file can't be read, or holds no certificate.
    """
    if ca is None:
        return _trusting(None, 0)
    path = Path(ca).expanduser()
    try:
        return _trusting(str(path), path.stat().st_mtime_ns)
    except ssl.SSLError:
        raise BadAnswer(f"source.ca: {path} holds no certificate in PEM form") from None
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        raise BadAnswer(f"source.ca: {path} can't be read: {why.lower()}") from None


@lru_cache(maxsize=32)
def _trusting(ca: str | None, changed: int) -> ssl.SSLContext:  # noqa: ARG001 - a new file is read
    return ssl.create_default_context(cafile=ca)


def _distrust(problem: ssl.SSLError) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        # What follows the comma names hosts, and those are nobody's business.
        said = problem.verify_message.partition(",")[0]
        return f"its certificate is not trusted ({said}): is source.ca its issuer's?"
    return f"TLS failed ({problem.reason or 'no reason given'})"


def _words(problem: OSError, otherwise: str) -> str:
    """What went wrong, in words that don't repeat the exception's own: it may name the host."""
    number = problem.errno
    if number is None and (found := _ERRNO.search(str(problem))):
        # Several addresses were tried; each failed in its own words.
        number = int(found[1])
    if number is not None and number > 0:
        return os.strerror(number).lower()
    return problem.strerror.lower() if problem.strerror else otherwise
