"""A real llama.cpp server, judged by what `steady check` runs."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.engines.judge import find
from fleet.engines.observe import observe
from fleet.engines.sighting import Sighting
from fleet.findings import Finding
from fleet.judge import Memory
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict
from tests.engines.installed import gguf, python_of
from tests.engines.real import LONG_PROMPT, Real, running
from tests.engines.threads import busiest, cpu_times, stopped

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

_WORKS = "llamacpp:requests_processing"


def package() -> Path:
    return next(python_of("llamacpp").parents[1].glob("lib/*/site-packages/skulk_*/bin"))


def argv(*more: str, metrics: bool = True) -> list[str]:
    return [
        *(str(package() / "llama-server"), "-m", str(gguf()), "--alias", "tiny"),
        *("--host", "127.0.0.1", "--port", "PORT", "-c", "32768", "-np", "2", "-t", "2"),
        *(["--metrics"] if metrics else []),
        *more,
    ]


def variables() -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(package())}


def server(*more: str, metrics: bool = True, **how: Any) -> AbstractContextManager[Real]:
    command = argv(*more, metrics=metrics)
    return running("llamacpp", command, within=120, variables=variables(), **how)


async def computes(real: Real) -> int:
    """The thread that decodes, or helps: the one that a request keeps busiest.

    The prompt is long enough for its page to show how fast it reads.
    """
    before = cpu_times(real.process.pid)
    assert await real.ask(LONG_PROMPT[:2000], tokens=100) == 200
    return busiest(real.process.pid, before)


def observed(reading: Reading, before: Memory | None) -> tuple[Memory, Finding]:
    """As a sweep judges it that comes every half a second and lets a load take one."""
    policy = Policy.model_validate({"load_limit": "1s", "cooldown": "1s"})
    return observe(reading, before, policy, timedelta(seconds=0.5))


@pytest.fixture
def real() -> Iterator[Real]:
    with server() as it:
        yield it


async def test_idle_it_is_asked_once_and_answers(real: Real) -> None:
    await real.page("llamacpp-idle")
    seen = await real.check()
    assert (seen.verdict, seen.requests_sent) == (Verdict.IDLE, 1), seen.line()


async def test_while_it_writes_it_is_busy_and_sent_nothing(real: Real) -> None:
    real.ask()
    await real.working(_WORKS)
    await real.page("llamacpp-busy")
    seen = await real.check()
    assert (seen.verdict, seen.requests_sent) == (Verdict.BUSY, 0), seen.line()


async def test_while_it_reads_a_lone_long_prompt_it_is_busy_and_sent_nothing(real: Real) -> None:
    real.ask(LONG_PROMPT, tokens=1)
    await real.working(_WORKS)
    seen = await real.check(wait="2s")
    assert (seen.verdict, seen.requests_sent) == (Verdict.BUSY, 0), seen.line()


async def test_with_more_requests_than_slots_it_is_busy_and_sent_nothing(real: Real) -> None:
    for _ in range(5):
        real.ask()
    await real.working("llamacpp:requests_deferred")
    await real.page("llamacpp-deferred")
    seen = await real.check()
    assert (seen.verdict, seen.requests_sent) == (Verdict.BUSY, 0), seen.line()


async def test_in_one_long_step_from_idle_it_is_busy() -> None:
    """The whole prompt is one batch. That there is work in flight shows at once all the same."""
    with server("--batch-size", "4096", "--ubatch-size", "4096") as real:
        asking = real.ask(LONG_PROMPT[:3000], tokens=1)
        await real.working(_WORKS)
        seen = await real.check(wait="2s", deadline="120s")
        assert seen.verdict in (Verdict.BUSY, Verdict.IDLE), seen.line()
        # On a machine so busy that the step takes longer than a minute, it is asked.
        assert seen.requests_sent <= int(seen.seconds > 60), seen.line()
        assert await asking == 200
        after = await real.look()
        assert after.engine is not None
        assert after.engine.engines[0].steps in (1, 2)


async def test_where_decoding_stops_under_load_it_is_stuck_and_asked_once(real: Real) -> None:
    """Its pages come from other threads, and go on."""
    thread = await computes(real)
    real.ask()
    await real.working(_WORKS)
    with stopped(thread):
        await real.page("llamacpp-stuck-1")
        seen = await real.check(deadline="10s")
        await real.page("llamacpp-stuck-2")
    assert (seen.verdict, seen.requests_sent) == (Verdict.STUCK, 1), seen.line()
    assert seen.seconds > 60, "so long may one batch take"
    again = await real.check()
    assert again.verdict is Verdict.BUSY, again.line()


async def test_where_decoding_stops_while_idle_it_is_unresponsive(real: Real) -> None:
    thread = await computes(real)
    with stopped(thread):
        seen = await real.check(deadline="10s")
        await real.page("llamacpp-unresponsive")
    assert (seen.verdict, seen.requests_sent) == (Verdict.UNRESPONSIVE, 1), seen.line()


@pytest.mark.parametrize("loaded", [True, False])
async def test_stopped_as_a_whole_it_proves_nothing(real: Real, loaded: bool) -> None:
    """What says nothing at all may be a slow network."""
    if loaded:
        real.ask()
        await real.working(_WORKS)
    real.signal(signal.SIGSTOP)
    seen = await real.check(timeout="1s")
    assert (seen.verdict, seen.requests_sent) == (Verdict.UNPROVEN, 0), seen.line()
    real.signal(signal.SIGCONT)
    await real.let_go()
    assert (await real.check()).verdict in (Verdict.IDLE, Verdict.BUSY)


async def test_while_it_loads_its_model_it_is_loading_and_sent_nothing() -> None:
    """The thread that loads stands still, so that the load lasts. Then it goes on."""
    with server(until=503) as real:
        with stopped(real.process.pid):
            seen = await real.check()
            assert (seen.verdict, seen.requests_sent) == (Verdict.LOADING, 0), seen.line()
            assert "Loading model" in seen.why
            first = observed(await real.look(), None)
            assert first[1].verdict is Verdict.LOADING
            await asyncio.sleep(1.5)
            second = observed(await real.look(), first[0])
            assert second[1].verdict is Verdict.OVERDUE
        async with asyncio.timeout(60):
            while (await real.check()).verdict is Verdict.LOADING:
                await asyncio.sleep(0.2)
        seen = await real.check()
        assert (seen.verdict, seen.requests_sent) == (Verdict.IDLE, 1), seen.line()


async def test_put_away_it_is_asleep_and_never_asked() -> None:
    with server("--sleep-idle-seconds", "1") as real:
        async with asyncio.timeout(60):
            while not await real.json("/props", "is_sleeping"):
                await asyncio.sleep(0.2)
        seen = await real.check()
        assert (seen.verdict, seen.requests_sent) == (Verdict.ASLEEP, 0), seen.line()
        assert await real.json("/props", "is_sleeping"), "a look does not wake it"


async def test_killed_it_is_missing_and_started_again_it_is_restarted(real: Real) -> None:
    before = await real.look()
    real.signal(signal.SIGKILL)
    real.process.wait(10)
    assert (await real.check()).verdict is Verdict.MISSING
    with server(port=real.port) as again:
        after = await again.look()
        assert before.engine is not None
        finding = find(after, Sighting.of(before.engine), Policy())
        assert finding.verdict is Verdict.RESTARTED, finding
        assert (await again.check()).verdict is Verdict.IDLE


async def test_without_its_page_of_metrics_an_answer_is_needed() -> None:
    with server(metrics=False) as real:
        seen = await real.check()
        assert (seen.verdict, seen.requests_sent) == (Verdict.HEALTHY, 1), seen.line()
        for _ in range(2):
            real.ask(LONG_PROMPT)
        await asyncio.sleep(1)
        busy = await real.check(deadline="1s")
        assert (busy.verdict, busy.requests_sent) == (Verdict.UNPROVEN, 1), busy.line()
