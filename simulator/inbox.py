"""A receiver of webhooks, as a chat or paging service would be: it keeps what was delivered."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

_LONGEST_BODY = 1_000_000
_LONGEST_WAIT = 5.0
_KEPT = 1000


@dataclass
class Inbox:
    """``messages`` are the newest thousand JSON bodies, ``received`` is how many came in all."""

    url: str = ""
    received: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)

    def keep(self, body: bytes) -> None:
        message = json.loads(body)
        if not isinstance(message, dict):
            raise TypeError(f"a {type(message).__name__} is no message")
        self.messages.append(message)
        self.received += 1
        del self.messages[:-_KEPT]


@asynccontextmanager
async def inbox() -> AsyncIterator[Inbox]:
    """Receive on a free port of 127.0.0.1 for the length of the block."""
    box = Inbox()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                status = await _receive(box, reader)
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n".encode())
                writer.write(b"Connection: close\r\n\r\n")
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    box.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/alerts"
    async with server:
        yield box


async def _receive(box: Inbox, reader: asyncio.StreamReader) -> str:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = head.split("\r\n")[1:]
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    length = int(headers.get("content-length", "0"))
    if length > _LONGEST_BODY:
        return "413 Content Too Large"
    try:
        box.keep(await reader.readexactly(length))
    except (ValueError, TypeError):
        return "400 Bad Request"
    return "204 No Content"
