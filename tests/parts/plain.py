"""A simulated server of another kind than vLLM as a real process, and what a test says to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from fleet.engine_sources import EngineSource
from simulator import plain
from tests.parts.ports import free_port
from tests.parts.simulated import simulated


class PlainServer:
    def __init__(self, port: int, kind: str = "openai") -> None:
        self.url, self._kind = f"http://127.0.0.1:{port}", kind

    def source(self, **more: Any) -> EngineSource:
        kind = "llamacpp" if self._kind == "router" else self._kind
        given = {"kind": kind, "url": self.url, "deadline": "700ms", **more}
        return EngineSource.model_validate(given)

    async def say(self, word: str = "") -> dict[str, Any]:
        async with httpx.AsyncClient() as client:
            said: dict[str, Any] = (await client.post(f"{self.url}/sim/{word}")).json()
            return said


@asynccontextmanager
async def sim_plain(kind: str, **options: Any) -> AsyncIterator[PlainServer]:
    """Run one for the length of the block; ``options`` are those of ``simulator.plain``."""
    port = free_port()
    given: dict[str, Any] = {"name": "p-1", "port": port, "kind": kind, "boot": 0, **options}
    server = PlainServer(port, kind)
    async with simulated(plain.__file__, server.url, given):
        yield server
