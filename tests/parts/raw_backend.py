"""A server on a raw socket that does to each connection what a test's script says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Script = Callable[["Connection"], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


@dataclass(frozen=True)
class Request:
    """``raw`` is the whole request as it came, byte for byte."""

    raw: bytes
    body: bytes

    @property
    def head(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[0]

    @property
    def line(self) -> bytes:
        return self.head.partition(b"\r\n")[0]

    def value(self, name: str) -> bytes | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name.lower().encode():
                return value.strip()
        return None


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    backend: "RawBackend"

    async def request(self) -> Request:
        """Read one request, whatever its framing.

        Raises:
            IncompleteReadError: the gateway closed the connection.
        """
        head = await self.reader.readuntil(b"\r\n\r\n")
        request = Request(head, b"")
        if request.value("transfer-encoding"):
            raw, body = await self._chunked()
        else:
            raw = body = await self.reader.readexactly(int(request.value("content-length") or 0))
        request = Request(head + raw, body)
        self.backend.requests.append(request)
        return request

    async def _chunked(self) -> tuple[bytes, bytes]:
        raw, body = bytearray(), bytearray()
        while True:
            line = await self.reader.readuntil(b"\r\n")
            raw += line
            size = int(line, 16)
            if size == 0:
                break
            part = await self.reader.readexactly(size + 2)
            raw += part
            body += part[:-2]
        while not raw.endswith(b"\r\n\r\n"):
            raw += await self.reader.readuntil(b"\r\n")
        return bytes(raw), bytes(body)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def gone(self) -> None:
        """Wait until the gateway has closed the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


@dataclass
class RawBackend:
    """``connections`` counts all that were ever accepted, ``open`` those that are now."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def raw_backend(script: Script) -> AsyncIterator[RawBackend]:
    """Serve until the block ends; a script's connection is closed at its end."""
    backend = RawBackend()
    running: set[asyncio.Task[None]] = set()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        backend.connections += 1
        backend.open += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await script(Connection(reader, writer, backend))
        finally:
            backend.open -= 1
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0, limit=1 << 20)
    backend.port = server.sockets[0].getsockname()[1]
    try:
        yield backend
    finally:
        server.close()
        for task in tuple(running):
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=10)


async def ok(connection: Connection) -> None:
    """Answer every request with 200."""
    while True:
        await connection.request()
        await connection.send(OK)


async def echo(connection: Connection) -> None:
    """Answer every request with its own body."""
    while True:
        request = await connection.request()
        await connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(request.body), request.body)
        )
