"""Real vLLM servers, judged by what `steady check` runs. Each takes up to a minute to start."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from fleet.engines.judge import find
from fleet.engines.sighting import Sighting
from fleet.policy import Policy
from fleet.verdicts import Verdict
from tests.engines.installed import hf, python_of
from tests.engines.real import LONG_PROMPT, Real, running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

_RUNNING = "vllm:num_requests_running"
_ENGINE = "VLLM::EngineCore"
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # What pauses and puts to sleep is only there in this mode.
    "VLLM_SERVER_DEV_MODE": "1",
}


def argv(*more: str) -> list[str]:
    return [
        *(str(python_of("vllm")), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(hf()), "--served-model-name", "tiny", "--dtype", "bfloat16"),
        *("--host", "127.0.0.1", "--port", "PORT", "--max-model-len", "16384", "--enforce-eager"),
        *more,
    ]


def server(*more: str, **how: Any) -> AbstractContextManager[Real]:
    return running("vllm", argv(*more), within=900, variables=OFFLINE, **how)


@pytest.fixture(scope="module")
def one() -> Iterator[Real]:
    """One engine. Its chunks are small, so that two waits span one on a busy machine too."""
    with server("--max-num-batched-tokens", "512") as it:
        yield it


@pytest.fixture
async def real(one: Real) -> AsyncIterator[Real]:
    """The same one, without work before and after."""
    yield one
    await one.let_go()
    await _is_idle(one)


async def _is_idle(real: Real) -> None:
    async with asyncio.timeout(60):
        while (await real.check(wait="1s")).verdict is not Verdict.IDLE:
            await asyncio.sleep(0.5)


async def test_idle_it_is_asked_once_and_answers(real: Real) -> None:
    await real.page("vllm-idle")
    seen = await real.check()
    assert (seen.verdict, seen.requests_sent) == (Verdict.IDLE, 1), seen.line()


async def test_while_it_writes_it_is_busy_and_sent_nothing(real: Real) -> None:
    for _ in range(3):
        real.ask()
    await real.working(_RUNNING)
    await real.page("vllm-busy")
    seen = await real.check()
    assert (seen.verdict, seen.requests_sent) == (Verdict.BUSY, 0), seen.line()


async def test_while_it_reads_a_lone_long_prompt_it_is_busy_and_sent_nothing(real: Real) -> None:
    real.ask(LONG_PROMPT, tokens=1)
    await real.working(_RUNNING)
    await real.page("vllm-prefill-1")
    seen = await real.check(wait="4s")
    await real.page("vllm-prefill-2")
    assert (seen.verdict, seen.requests_sent) == (Verdict.BUSY, 0), seen.line()
    assert seen.moved == {"0": ["kv"]}, "only the KV cache tells of a prompt that is read"


async def test_stopped_under_load_it_is_stuck_and_asked_once(real: Real) -> None:
    real.ask()
    await real.working(_RUNNING)
    real.signal(signal.SIGSTOP, _ENGINE)
    await real.page("vllm-stuck-1")
    seen = await real.check(deadline="10s")
    await real.page("vllm-stuck-2")
    real.signal(signal.SIGCONT, _ENGINE)
    assert (seen.verdict, seen.requests_sent) == (Verdict.STUCK, 1), seen.line()
    again = await real.check()
    assert again.verdict is Verdict.BUSY, again.line()


async def test_stopped_while_idle_it_is_unresponsive(real: Real) -> None:
    real.signal(signal.SIGSTOP, _ENGINE)
    seen = await real.check(deadline="10s")
    await real.page("vllm-unresponsive")
    real.signal(signal.SIGCONT, _ENGINE)
    assert (seen.verdict, seen.requests_sent) == (Verdict.UNRESPONSIVE, 1), seen.line()


async def test_paused_it_is_never_asked(real: Real) -> None:
    real.ask()
    await real.working(_RUNNING)
    assert await real.post("/pause?mode=keep") == 200
    seen = await real.check()
    await real.page("vllm-paused")
    assert await real.post("/resume") == 200
    assert (seen.verdict, seen.requests_sent) == (Verdict.ASLEEP, 0), seen.line()


async def test_asleep_it_is_never_asked(real: Real) -> None:
    assert await real.post("/sleep?level=1") == 200
    await real.page("vllm-asleep")
    seen = await real.check()
    assert await real.post("/wake_up") == 200
    assert (seen.verdict, seen.requests_sent) == (Verdict.ASLEEP, 0), seen.line()


async def test_killed_it_is_missing_and_started_again_it_is_restarted(one: Real) -> None:
    """The last test of this server: it does not outlive it."""
    before = await one.look()
    assert before.engine is not None
    one.signal(signal.SIGKILL, _ENGINE)
    await asyncio.to_thread(one.process.wait, 60)
    gone = await one.check()
    assert gone.verdict is Verdict.MISSING, gone.line()
    with server(port=one.port) as again:
        finding = find(await again.look(), Sighting.of(before.engine), Policy())
        assert finding.verdict is Verdict.RESTARTED, finding
        after = await again.check(wait="1s")
        assert after.verdict is Verdict.IDLE, after.line()


async def test_in_one_long_step_from_idle_it_is_busy() -> None:
    """Its gauges show nothing until the step ends, so it is asked, and its answer takes as long."""
    with server("--max-num-batched-tokens", "16384") as real:
        asking = real.ask(LONG_PROMPT, tokens=1)
        await asyncio.sleep(1)
        seen = await real.check(wait="1s", deadline="120s")
        assert seen.verdict in (Verdict.BUSY, Verdict.IDLE), seen.line()
        assert seen.requests_sent <= 1
        assert await asking == 200


async def test_of_two_ranks_the_one_that_is_stopped_is_found_busy_or_idle() -> None:
    with server("--data-parallel-size", "2") as real:
        for _ in range(6):
            real.ask()
        await asyncio.sleep(3)
        await real.page("vllm-two-ranks-busy")
        busy = await real.check()
        assert (busy.verdict, busy.requests_sent) == (Verdict.BUSY, 0), busy.line()
        real.signal(signal.SIGSTOP, f"{_ENGINE}_DP0")
        seen = await real.check(deadline="10s")
        await real.page("vllm-two-ranks-one-stuck")
        real.signal(signal.SIGCONT, f"{_ENGINE}_DP0")
        await real.let_go()
        assert seen.verdict is Verdict.STUCK, seen.line()
        await _is_idle(real)
        real.signal(signal.SIGSTOP, f"{_ENGINE}_DP1")
        seen = await real.check(deadline="10s")
        real.signal(signal.SIGCONT, f"{_ENGINE}_DP1")
        assert seen.verdict is Verdict.UNRESPONSIVE, seen.line()


async def test_of_two_api_servers_the_engine_is_seen_as_one() -> None:
    with server("--api-server-count", "2") as real:
        idle = await real.check()
        assert (idle.verdict, idle.requests_sent) == (Verdict.IDLE, 1), idle.line()
        for _ in range(3):
            real.ask()
        await real.working(_RUNNING)
        await real.page("vllm-two-api-servers-busy")
        busy = await real.check()
        assert (busy.verdict, busy.requests_sent) == (Verdict.BUSY, 0), busy.line()
        real.signal(signal.SIGSTOP, _ENGINE)
        stuck = await real.check(deadline="10s")
        real.signal(signal.SIGCONT, _ENGINE)
        await real.let_go()
        assert stuck.verdict is Verdict.STUCK, stuck.line()


async def test_without_statistics_it_proves_nothing() -> None:
    with server("--disable-log-stats") as real:
        await real.page("vllm-without-statistics")
        idle = await real.check()
        assert (idle.verdict, idle.requests_sent) == (Verdict.HEALTHY, 1), idle.line()
        real.signal(signal.SIGSTOP, _ENGINE)
        stopped = await real.check(deadline="5s")
        real.signal(signal.SIGCONT, _ENGINE)
        assert stopped.verdict is Verdict.UNPROVEN, stopped.line()
