"""What a gateway process needs at most, as the kernel counts it."""

import asyncio
import os
import re
from pathlib import Path

import httpx
import pytest

from tests.gateway.test_command import STEADY, WITH_TOKEN, write
from tests.parts.gateways import PATIENCE
from tests.parts.processes import command
from tests.parts.raw_backend import OK, Connection, raw_backend

pytestmark = pytest.mark.anyio

MIB = 2**20
BUDGET, CONSTANT = 8 * MIB, 24 * MIB
SIZE = 1024 * MIB


def peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024


async def takes_all(connection: Connection) -> None:
    while True:
        head = await connection.reader.readuntil(b"\r\n\r\n")
        left = int(re.findall(rb"Content-Length: (\d+)", head)[0])
        while left:
            left -= len(await connection.reader.read(min(left, MIB)))
        await connection.send(OK)


async def never_reads(connection: Connection) -> None:
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(10 * PATIENCE)


async def test_a_long_upload_with_three_slow_candidates_needs_the_budget_and_a_constant(
    tmp_path: Path,
) -> None:
    async with raw_backend(takes_all) as backend, raw_backend(never_reads) as slow:
        url, admin = write(tmp_path, backend.port)
        file = tmp_path / "fleet.toml"
        bounds = 'mirror_budget = "8MiB"\nmax_body = "1GiB"\n[endpoints.chat]'
        text = file.read_text().replace("[endpoints.chat]", bounds)
        for number in range(3):
            text += f"[endpoints.chat.candidates.slow-{number}]\n"
            text += f'url = "{slow.url}"\nsample = 100\nbuffer = "1GiB"\n'
        file.write_text(text)
        with command(STEADY, tmp_path, "gateway", variables=WITH_TOKEN) as running:
            await asyncio.to_thread(running.until, "serving")
            async with httpx.AsyncClient() as client:
                await client.post(f"{url}/other", content=b"x")
                before = peak(running.process.pid)
                _, port = url.rsplit(":", 1)
                reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
                head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}"
                writer.write(f"{head}\r\n\r\n".encode())
                part = os.urandom(MIB)
                for _ in range(SIZE // MIB):
                    writer.write(part)
                    await writer.drain()
                async with asyncio.timeout(PATIENCE):
                    assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
                writer.close()
                shown = (await client.get(f"{admin}/metrics")).text
            assert peak(running.process.pid) - before < BUDGET + CONSTANT
    assert shown.count('result="budget_exceeded"} 1.0') == 3
    assert "steady_gateway_mirror_bytes 0.0" in shown
