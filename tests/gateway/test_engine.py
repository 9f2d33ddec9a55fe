"""Before a simulated vLLM server, a process of its own: its counters say what it works on."""

import asyncio
import re

import httpx
import pytest

from tests.parts.gateways import PATIENCE, Serving, serving, until
from tests.parts.vllm import sim_vllm

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"


def asking(tokens: int) -> dict[str, object]:
    messages = [{"role": "user", "content": "say something"}]
    return {"model": "tiny", "messages": messages, "max_tokens": tokens}


async def running(gateway: Serving, server: str = "/backends/gpu-1") -> float:
    """What the engine's own page says, through the server's own URL."""
    page = (await gateway.client.get(f"{server}/metrics")).text
    return float(re.findall(r"vllm:num_requests_running\{.*?\} ([0-9.]+)", page)[0])


async def comes_to(gateway: Serving, count: float, server: str = "/backends/gpu-1") -> None:
    async with asyncio.timeout(PATIENCE):
        while await running(gateway, server) != count:
            await asyncio.sleep(0.05)


async def test_a_client_that_goes_leaves_no_engine_at_work_for_it() -> None:
    async with sim_vllm() as engine, sim_vllm() as other:
        candidates = {"next": {"url": other.url, "sample": 100}}
        async with serving(engine.url, candidates=candidates) as gateway:
            answer = await gateway.client.post(CHAT, json=asking(3))
            assert answer.json()["choices"][0]["finish_reason"] == "length"
            await until(lambda: not gateway.gateway.mirrors.running)
            assert gateway.core.tally.results["chat", "next", "completed"] == 1
            long = asyncio.create_task(gateway.client.post(CHAT, json=asking(100_000)))
            await comes_to(gateway, 1)
            await comes_to(gateway, 1, "/candidates/next")
            long.cancel()
            with pytest.raises((asyncio.CancelledError, httpx.HTTPError)):
                await long
            await comes_to(gateway, 0)
            await comes_to(gateway, 0, "/candidates/next")
            assert gateway.core.tally.results["chat", "next", "client_aborted"] == 1
