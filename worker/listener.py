"""``/health`` and ``/metrics`` over HTTP, from threads: they outlive a blocked event loop."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

import structlog

from fleet.addresses import host_and_port, unix_path
from worker import unix_socket
from worker.errors import SetupError
from worker.vitals import Health

#: More are dropped: who asks is a probe and a scraper or two.
_MOST_AT_ONCE = 16
_SILENCE = 5.0
#: Of a request; an order is a few hundred bytes.
_LARGEST_BODY = 16 * 1024
#: Of a body that is refused, so much is taken in and thrown away: closed on, its sender would lose
#: the answer.
_THROWN_AWAY = 1024 * 1024
#: For a whole exchange, however slowly its bytes come.
_EXCHANGE = 20.0

_log = structlog.get_logger(__name__)

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """One that is for the ``api``."""

    method: str
    path: str
    authorization: str
    body: bytes


@dataclass(frozen=True)
class Pages:
    """What is served. ``metrics`` takes the ``Accept`` header, and gives body and content type.
    ``api`` gives status and JSON for every other request, where there is one.
    """

    health: Callable[[], Health]
    metrics: Callable[[str], tuple[bytes, str]]
    api: Callable[[Request], tuple[int, bytes]] | None = None

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        if path == "/health":
            health = self.health()
            body = json.dumps(health.document(), indent=2).encode()
            return (200 if health.is_well else 503), _JSON, body + b"\n"
        if path == "/metrics":
            content, kind = self.metrics(accept)
            return 200, kind, content
        return 404, _TEXT, b"there is /health and /metrics\n"


@contextmanager
def listening(address: str, pages: Pages, see: str = "STEADY_LISTEN") -> Iterator[int]:
    """Serve the pages for the length of the block, and give the port; 0 of a Unix socket.

    ``see`` names the setting that the address comes from.

    Raises:
        SetupError: the address can't be listened on.
    """
    try:
        server = _Server(address, pages)
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise SetupError(f"can't listen on {address} ({why}): see {see}") from None
    thread = threading.Thread(target=server.serve_forever, name="listener", daemon=True)
    thread.start()
    try:
        yield server.port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, pages: Pages) -> None:
        self.pages = pages
        self.port = 0
        self._slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._path = unix_path(address)
        self._has_path = False
        if self._path is not None:
            self.address_family = socket.AF_UNIX
            super().__init__(self._path, _Handler)  # type: ignore[arg-type]
            return
        host, port = host_and_port(address)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        if self._path is not None:
            unix_socket.bind(self.socket, self._path)
            self._has_path = True
        else:
            super().server_bind()
            self.port = self.socket.getsockname()[1]

    def server_close(self) -> None:
        super().server_close()
        if self._path is not None and self._has_path:
            unix_socket.remove(self._path)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event; what a page can't do is answered with 500."""


class _Handler(BaseHTTPRequestHandler):
    """One exchange a connection. The library bounds the request line and the headers; a body is
    read for the API only, and never more of it than an order can have.
    """

    server_version = "steady"
    sys_version = ""
    timeout = _SILENCE
    _is_unread = False

    def setup(self) -> None:
        super().setup()
        self._end = threading.Timer(_EXCHANGE, self._hang_up)
        self._end.daemon = True
        self._end.start()

    def finish(self) -> None:
        super().finish()
        if self._is_unread:
            self._throw_away()
        self._end.cancel()

    def do_GET(self) -> None:
        self._reply(*self._answer())

    def do_HEAD(self) -> None:
        self.do_GET()

    def _order(self) -> None:
        pages: Pages = self.server.pages  # type: ignore[attr-defined]
        if pages.api is None:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED)
            return
        self._reply(*self._answer())

    do_PUT = do_PATCH = do_DELETE = do_POST = _order  # noqa: N815 - the library's names

    def _reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """A probe every few seconds is no event."""

    def _answer(self) -> tuple[int, str, bytes]:
        pages: Pages = self.server.pages  # type: ignore[attr-defined]
        path = self.path.partition("?")[0]
        try:
            if pages.api is not None and path not in ("/health", "/metrics"):
                return self._ask(pages.api, path)
            return pages.answer(path, self.headers.get("Accept", ""))
        except Exception as problem:  # noqa: BLE001 - whoever asks must hear of it
            _log.exception("a page can't be served", path=self.path[:100])
            return 500, _TEXT, f"{type(problem).__name__}\n".encode()

    def _ask(
        self, api: Callable[[Request], tuple[int, bytes]], path: str
    ) -> tuple[int, str, bytes]:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            self._is_unread = True
            return HTTPStatus.LENGTH_REQUIRED, _JSON, _no("send the body with its length")
        if int(length[:20]) > _LARGEST_BODY:
            self._is_unread = True
            message = f"the body is over {_LARGEST_BODY // 1024} KiB"
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _JSON, _no(message)
        try:
            body = self.rfile.read(int(length))
        except OSError:
            return HTTPStatus.REQUEST_TIMEOUT, _JSON, _no("the body did not come in time")
        asked = Request(self.command, path, self.headers.get("Authorization", ""), body)
        status, said = api(asked)
        return status, _JSON, said

    def _throw_away(self) -> None:
        left = _THROWN_AWAY
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (data := self.connection.recv(65536)):
                left -= len(data)

    def _hang_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _no(message: str) -> bytes:
    return json.dumps({"error": {"code": "bad_request", "message": message}}).encode() + b"\n"
