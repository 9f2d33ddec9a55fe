"""A simulated vLLM server as a real process on a free port, and what a test says to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from fleet.engine_sources import EngineSource
from simulator import vllm
from tests.parts.ports import free_port
from tests.parts.simulated import simulated


class Vllm:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def source(self, **more: Any) -> EngineSource:
        return EngineSource.model_validate({"kind": "vllm", "url": self.url, **more})

    async def say(self, word: str, rank: int | None = None) -> dict[str, Any]:
        async with httpx.AsyncClient() as client:
            query = {"rank": rank} if rank is not None else {}
            answer = await client.post(f"{self.url}/sim/{word}", params=query)
            said: dict[str, Any] = answer.json()
            return said

    async def asked(self) -> int:
        """How many requests for tokens it was ever sent."""
        async with httpx.AsyncClient() as client:
            return int((await client.get(f"{self.url}/sim")).json()["asked"])

    async def complete(self, prompt: str = "hi", max_tokens: int = 1) -> int:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens}
        async with httpx.AsyncClient(timeout=60) as client:
            return (await client.post(f"{self.url}/v1/completions", json=body)).status_code


@asynccontextmanager
async def sim_vllm(**options: Any) -> AsyncIterator[Vllm]:
    """Run one for the length of the block; ``options`` are those of ``simulator.vllm``."""
    port = free_port()
    given: dict[str, Any] = {"name": "v-1", "port": port, "boot": 0, "step": 0.02, **options}
    server = Vllm(port)
    async with simulated(vllm.__file__, server.url, given):
        yield server
