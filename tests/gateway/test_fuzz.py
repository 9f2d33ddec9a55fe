"""Whatever is sent to the gateway, what reaches a backend is HTTP that h11 reads without fault."""

import asyncio
import random

import h11
import pytest

from tests.parts.gateways import serving
from tests.parts.raw_backend import LAST, Connection, raw_backend

pytestmark = pytest.mark.anyio

ROUNDS = 250
#: How long to wait for an answer to what may be half a request.
GLANCE = 0.05

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
WHOLE = [
    HEAD + b"Content-Length: 5\r\n\r\nhello",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + LAST,
    HEAD + b"Transfer-Encoding: chunked\r\nX: 1\r\n\r\n2;a=b\r\nhe\r\n0\r\nX-Sum: 1\r\n\r\n",
    b"GET /v1/models?a=b HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X\r\nX: y\r\n\r\n",
    b"HEAD / HTTP/1.0\r\n\r\n",
]
SPLICES = [
    *(b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"0", b"5", b"f", b"\xff"),
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Connection: close\r\n",
    b"Host: b\r\n",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
]


def mangled(rng: random.Random) -> bytes:
    data = bytearray(b"".join(rng.choices(WHOLE, k=rng.randint(1, 3))))
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at:at] = rng.choice(SPLICES)
            case 1:
                del data[at : at + rng.randint(1, 4)]
            case 2:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case _:
                other = rng.randrange(len(data) + 1)
                data[at:at] = data[other : other + rng.randint(1, 20)]
    return bytes(data)


async def test_what_passes_is_read_alike_by_another_server() -> None:
    faults: list[str] = []
    passed = 0

    async def strict(connection: Connection) -> None:
        """Reads with h11, and answers each request that is whole."""
        nonlocal passed
        theirs = h11.Connection(h11.SERVER)
        while True:
            event = theirs.next_event()
            if event is h11.NEED_DATA:
                data = await connection.reader.read(65536)
                if not data:
                    return  # the gateway gave a request up in its middle
                theirs.receive_data(data)
            elif isinstance(event, h11.EndOfMessage):
                passed += 1
                done = h11.Response(status_code=200, headers=[("Content-Length", "0")])
                await connection.send(theirs.send(done) or b"")
                await connection.send(theirs.send(h11.EndOfMessage()) or b"")
                theirs.start_next_cycle()
            elif isinstance(event, h11.ConnectionClosed):
                return

    async def watched(connection: Connection) -> None:
        try:
            await strict(connection)
        except h11.ProtocolError as fault:
            faults.append(f"{fault}: {sent!r}")

    rng, sent = random.Random(20261130), b""
    async with raw_backend(watched) as backend, serving(backend.url) as gateway:
        for _ in range(ROUNDS):
            sent = mangled(rng)
            reader, writer = await gateway.raw()
            for part in (sent[: len(sent) // 2], sent[len(sent) // 2 :]):
                writer.write(part)
                await asyncio.sleep(0)
            try:
                async with asyncio.timeout(GLANCE):
                    while await reader.read(65536):
                        pass
            except (TimeoutError, ConnectionError):
                pass
            writer.close()
        assert faults == []
        assert passed > ROUNDS / 4
        assert (await gateway.client.get("/x")).status_code == 200
