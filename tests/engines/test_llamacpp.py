"""A real llama.cpp server, judged by what `steady check` runs."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from fleet.verdicts import Verdict
from tests.engines.installed import gguf, python_of
from tests.engines.real import LONG_PROMPT, Real, running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

_WORKS = "llamacpp:requests_processing"


def server(*more: str, metrics: bool = True, **how: Any) -> AbstractContextManager[Real]:
    package = next(python_of("llamacpp").parents[1].glob("lib/*/site-packages/skulk_*/bin"))
    argv = [
        *(str(package / "llama-server"), "-m", str(gguf()), "--alias", "tiny", "--no-warmup"),
        *("--host", "127.0.0.1", "--port", "PORT", "-c", "32768", "-np", "2", "-t", "2"),
        *(["--metrics"] if metrics else []),
        *more,
    ]
    variables = {"LD_LIBRARY_PATH": str(package)}
    return running("llamacpp", argv, within=60, variables=variables, **how)


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


@pytest.mark.parametrize("loaded", [True, False])
async def test_stopped_as_a_whole_it_proves_nothing(real: Real, loaded: bool) -> None:
    """Its only process serves its pages too: what says nothing at all may be a slow network."""
    if loaded:
        real.ask()
        await real.working(_WORKS)
    real.signal(signal.SIGSTOP)
    seen = await real.check(timeout="1s")
    assert (seen.verdict, seen.requests_sent) == (Verdict.UNPROVEN, 0), seen.line()
    real.signal(signal.SIGCONT)
    await real.let_go()
    assert (await real.check()).verdict in (Verdict.IDLE, Verdict.BUSY)


async def test_killed_it_is_missing(real: Real) -> None:
    real.signal(signal.SIGKILL)
    real.process.wait(10)
    assert (await real.check()).verdict is Verdict.MISSING


async def test_without_its_page_of_metrics_an_answer_is_needed() -> None:
    with server(metrics=False) as real:
        seen = await real.check()
        assert (seen.verdict, seen.requests_sent) == (Verdict.HEALTHY, 1), seen.line()
        for _ in range(2):
            real.ask(LONG_PROMPT)
        await asyncio.sleep(1)
        busy = await real.check(deadline="1s")
        assert (busy.verdict, busy.requests_sent) == (Verdict.UNPROVEN, 1), busy.line()
