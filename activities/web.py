"""HTTP as steady speaks it: no redirects, no URL in a log line or in an error."""

import logging
import os
import ssl
from collections.abc import Iterable, Iterator
from errno import errorcode
from hashlib import blake2b
from urllib.parse import urlsplit

import httpx

from fleet.addresses import unix_path


def _no_urls(record: logging.LogRecord) -> bool:
    """The library logs every request's URL at INFO, and a webhook's URL is a secret."""
    return record.levelno >= logging.WARNING


def new_client(*, trust_env: bool, urls: Iterable[str] = ()) -> httpx.AsyncClient:
    """A client whose time-outs are a last resort: the caller bounds each exchange as a whole.

    Connections aren't kept: one that the other side closed between two sweeps would read as a
    server that is gone. ``trust_env`` lets the environment name a proxy. Those of ``urls`` that
    name Unix sockets are reached there, by their ``http_url``.
    """
    logging.getLogger("httpx").addFilter(_no_urls)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    sockets = {url: path for url in urls if (path := unix_path(url)) is not None}
    return httpx.AsyncClient(
        follow_redirects=False,
        trust_env=trust_env,
        timeout=httpx.Timeout(60),
        limits=limits,
        verify=ssl.create_default_context(),
        mounts={
            http_url(url): httpx.AsyncHTTPTransport(uds=path, limits=limits)
            for url, path in sockets.items()
        },
    )


def http_url(url: str) -> str:
    """The URL to ask: for ``unix:///PATH`` one with a host that stands for the path."""
    path = unix_path(url)
    return url if path is None else f"http://{blake2b(path.encode(), digest_size=8).hexdigest()}"


def place(url: str) -> str:
    """Where a URL leads, for people: host and port, or the path of a Unix socket."""
    return unix_path(url) or urlsplit(url).netloc


def is_distrust(problem: httpx.HTTPError) -> bool:
    """Whether TLS failed: something answered, and it is not trusted."""
    return any(isinstance(each, ssl.SSLError) for each in _causes(problem))


def why(problem: httpx.HTTPError | httpx.InvalidURL) -> str:
    """What went wrong, in words that never repeat the exception's own: it may hold the URL."""
    for each in _causes(problem):
        if isinstance(each, ssl.SSLCertVerificationError):
            # What follows the comma names hosts, and a secret URL's host may be a part of it.
            return f"its certificate is not trusted ({each.verify_message.partition(',')[0]})"
        if isinstance(each, ssl.SSLError):
            return f"TLS failed ({each.reason or 'no reason given'})"
        if isinstance(each, OSError) and each.strerror:
            known = each.errno is not None and each.errno in errorcode
            return (os.strerror(each.errno or 0) if known else each.strerror).lower()
    return _PLAIN.get(type(problem), f"HTTP failed ({type(problem).__name__})")


_PLAIN: dict[type[Exception], str] = {
    httpx.ConnectError: "no connection",
    httpx.ReadError: "the connection broke",
    httpx.WriteError: "the connection broke",
    httpx.RemoteProtocolError: "it closed the connection without an answer in HTTP",
    httpx.UnsupportedProtocol: "the URL is no http:// or https:// URL",
    httpx.LocalProtocolError: "the request can't be sent as HTTP",
    httpx.InvalidURL: "the URL can't be read",
}


def _causes(problem: BaseException) -> Iterator[BaseException]:
    """The exception and what it came from, innermost last; groups are what a failed race leaves."""
    waiting: list[BaseException | None] = [problem]
    for _ in range(20):
        each = waiting.pop(0) if waiting else None
        if each is None:
            continue
        yield each
        waiting += [each.__cause__, each.__context__]
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
