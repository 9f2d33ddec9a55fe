"""A real HTTP server on loopback that answers as a test tells it, and keeps what it was sent."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


@dataclass(frozen=True)
class Answer:
    """``endless`` sends its body again and again; ``silent`` holds the connection unanswered."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    endless: bool = False
    silent: bool = False


@dataclass
class Receiver:
    port: int
    answer: Callable[[Received], Answer] = lambda _: Answer()
    received: list[Received] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """Serve until the block ends; handlers that hold a connection are released then."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    server.daemon_threads = True
    shown = Receiver(port=server.server_address[1])
    server.told = shown  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield shown
    finally:
        shown.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def log_message(self, *_: Any) -> None:
        """Tests read what was received, not a log."""

    def _serve(self) -> None:
        told: Receiver = self.server.told  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Received(self.command, self.path, dict(self.headers.items()), body)
        told.received.append(request)
        answer = told.answer(request)
        if answer.silent:
            told.released.wait(60)
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if not answer.endless:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self._send(answer, told.released)

    def _send(self, answer: Answer, released: threading.Event) -> None:
        try:
            self.wfile.write(answer.body)
            while answer.endless and not released.is_set():
                self.wfile.write(answer.body)
        except OSError:
            return
