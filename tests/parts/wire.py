"""A wire between a client and a server on loopback, which a test can cut, freeze or close."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Wire:
    """Carries bytes both ways until it is frozen (nothing arrives any more) or cut (reset).

    A new connection that it does not admit is reset.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.admits: Callable[[], bool] = lambda: True
        self._to = port
        self._frozen = False
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    def freeze(self) -> None:
        self._frozen = True

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.admits():
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, far_writer]
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._tasks.append(asyncio.create_task(self._pump(source, sink)))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self._frozen:
                    sink.write(data)
                    await sink.drain()
        except OSError:
            pass
        if not self._frozen:
            sink.close()

    async def end(self) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def wire_to(port: int, at: int = 0) -> AsyncIterator[Wire]:
    """Listen on the port ``at``, or on a free one."""
    wire = Wire(port)
    server = await asyncio.start_server(wire.carry, "127.0.0.1", at)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await wire.end()
        await server.wait_closed()
