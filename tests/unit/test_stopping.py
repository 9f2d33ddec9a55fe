"""Told to stop, while something else is under way."""

import asyncio
import os
import signal

import pytest

from worker.stopping import cancelled_by, stop_event, unless

pytestmark = pytest.mark.anyio


async def test_a_start_that_never_ends_is_left_when_it_is_told_to_stop() -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, told.set)
    with cancelled_by(told):
        await asyncio.sleep(3600)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_by_somebody_else_goes_on() -> None:
    async def start() -> None:
        with cancelled_by(asyncio.Event()):
            await asyncio.sleep(3600)

    starting = asyncio.create_task(start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_once_it_has_started_it_is_not_left_any_more() -> None:
    told = asyncio.Event()
    with cancelled_by(told) as starting:
        starting.cancel()
        told.set()
        await asyncio.sleep(0.01)
        went_on = True
    assert went_on


async def test_work_is_done_unless_it_is_told_to_stop() -> None:
    assert await unless(asyncio.Event(), asyncio.sleep(0, "done")) == "done"


async def test_work_that_takes_longer_is_given_up() -> None:
    told = asyncio.Event()
    told.set()
    assert await unless(told, asyncio.sleep(3600, "done")) is None


async def test_trouble_with_the_work_is_the_callers() -> None:
    async def fail() -> str:
        raise LookupError

    with pytest.raises(LookupError):
        await unless(asyncio.Event(), fail())


@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGINT])
async def test_both_signals_tell_it(order: signal.Signals) -> None:
    with stop_event() as told:
        os.kill(os.getpid(), order)
        await asyncio.wait_for(told.wait(), 10)
