"""Simulated servers as real processes, and the machine that they are on."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from simulator.host import SimHost

_READY_WITHIN = 20


@asynccontextmanager
async def simulated(program: str, url: str, options: Mapping[str, Any]) -> AsyncIterator[None]:
    """Run a program of ``simulator`` with these options, and wait until it answers at ``url``."""
    argv = [sys.executable, "-P", program]
    for name, value in options.items():
        if value is True:
            argv.append(f"--{name}")
        elif value is not False:
            argv += [f"--{name}", str(value)]
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.DEVNULL)
    try:
        await ready(url)
        yield
    finally:
        process.kill()
        await process.wait()


async def ready(url: str) -> None:
    async with asyncio.timeout(_READY_WITHIN), httpx.AsyncClient() as client:
        while True:
            try:
                await client.get(f"{url}/health")
            except httpx.TransportError:
                await asyncio.sleep(0.05)
            else:
                return


def in_fleet(host: SimHost) -> dict[str, Any]:
    """The machine, as a fleet file names it."""
    return {
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "key": str(host.key),
        "known_hosts": str(host.known_hosts),
    }
