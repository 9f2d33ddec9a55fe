"""Candidates that do everything wrong; as a program, all of them on ports of their own."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tests.parts.raw_backend import OK, STREAM, Connection, Script, raw_backend

_EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "on and on"}}]}\n\n'
_EVENTS = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT) * 500


async def never_reads(connection: Connection) -> None:
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(60)


async def reads_slowly(connection: Connection) -> None:
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    sock = connection.writer.get_extra_info("socket")
    while True:
        await asyncio.sleep(1)
        os.read(sock.fileno(), 1)


async def resets(connection: Connection) -> None:
    await connection.reader.read(1000)
    connection.writer.transport.abort()


async def answers_early(connection: Connection) -> None:
    await connection.reader.readuntil(b"\r\n\r\n")
    await connection.send(OK)
    await connection.gone()


async def fails(connection: Connection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")


async def never_answers(connection: Connection) -> None:
    await connection.request()
    await connection.gone()


async def answers_without_end(connection: Connection) -> None:
    await connection.request()
    await connection.send(STREAM)
    while True:
        await connection.send(_EVENTS)


async def speaks_no_http(connection: Connection) -> None:
    await connection.request()
    await connection.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


async def redirects(connection: Connection) -> None:
    await connection.request()
    await connection.send(
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    await connection.gone()


ALL: dict[str, Script] = {
    "never_reads": never_reads,
    "reads_slowly": reads_slowly,
    "resets": resets,
    "answers_early": answers_early,
    "fails": fails,
    "never_answers": never_answers,
    "answers_without_end": answers_without_end,
    "speaks_no_http": speaks_no_http,
    "redirects": redirects,
}


@asynccontextmanager
async def beside() -> AsyncIterator[dict[str, str]]:
    """All of them in a process of its own, which takes none of the test's time; their URLs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.parts.bad_candidates",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        urls: dict[str, str] = json.loads(await process.stdout.readline())
        yield urls
    finally:
        process.kill()
        await process.wait()


async def _serve() -> None:
    async with AsyncExitStack() as stack:
        urls = {
            name: (await stack.enter_async_context(raw_backend(script))).url
            for name, script in ALL.items()
        }
        print(json.dumps(urls), flush=True)  # noqa: T201 - for whoever started it
        await asyncio.to_thread(sys.stdin.read)  # until that one is gone


if __name__ == "__main__":
    asyncio.run(_serve())
