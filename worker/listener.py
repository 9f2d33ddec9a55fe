"""``/health`` and ``/metrics`` over HTTP, from threads: they outlive a blocked event loop."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

import structlog

from fleet.addresses import host_and_port
from worker.errors import SetupError
from worker.vitals import Health

#: More are dropped: who asks is a probe and a scraper or two.
_MOST_AT_ONCE = 16
_SILENCE = 5.0
#: For a whole exchange, however slowly its bytes come.
_EXCHANGE = 20.0

_log = structlog.get_logger(__name__)

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Pages:
    """What is served. ``metrics`` takes the ``Accept`` header, and gives body and content type."""

    health: Callable[[], Health]
    metrics: Callable[[str], tuple[bytes, str]]

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
    """Serve the pages for the length of the block, and give the port.

    ``see`` names the setting that the address comes from.

    Raises:
        SetupError: the address can't be listened on.
    """
    try:
        server = _Server(host_and_port(address), pages)
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise SetupError(f"can't listen on {address} ({why}): see {see}") from None
    thread = threading.Thread(target=server.serve_forever, name="listener", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], pages: Pages) -> None:
        self.pages = pages
        self._slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

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
    never read.
    """

    server_version = "steady"
    sys_version = ""
    timeout = _SILENCE

    def setup(self) -> None:
        super().setup()
        self._end = threading.Timer(_EXCHANGE, self._hang_up)
        self._end.daemon = True
        self._end.start()

    def finish(self) -> None:
        self._end.cancel()
        super().finish()

    def do_GET(self) -> None:
        status, kind, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """A probe every few seconds is no event."""

    def _answer(self) -> tuple[int, str, bytes]:
        pages: Pages = self.server.pages  # type: ignore[attr-defined]
        try:
            return pages.answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
        except Exception as problem:  # noqa: BLE001 - whoever asks must hear of it
            _log.exception("a page can't be served", path=self.path[:100])
            return 500, _TEXT, f"{type(problem).__name__}\n".encode()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
