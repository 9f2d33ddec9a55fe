"""One timer for all time-outs: each that is watched has its turn, and a fault ends only one."""

import asyncio
from typing import Any

import pytest

from gateway.sweeper import Sweeper
from tests.parts.gateways import until

pytestmark = pytest.mark.anyio


class Watched:
    def __init__(self, *, broken: bool = False) -> None:
        self.times: list[float] = []
        self.broken = broken

    def sweep(self, now: float) -> None:
        self.times.append(now)
        if self.broken:
            raise ZeroDivisionError


async def test_each_of_many_has_its_turn_until_it_is_forgotten() -> None:
    sweeper = Sweeper(asyncio.get_running_loop())
    many = [Watched() for _ in range(450)]
    for each in many:
        sweeper.watch(each)
    sweeper.start()
    await until(lambda: all(len(each.times) >= 2 for each in many))
    # Some at a time, so that what passes through is not held up by a round.
    assert len({each.times[0] for each in many}) == 5
    sweeper.forget(many[0])
    seen = len(many[0].times)
    more = len(many[1].times) + 2
    await until(lambda: len(many[1].times) >= more)
    assert len(many[0].times) == seen
    sweeper.stop()


async def test_one_that_fails_is_told_once_and_the_others_go_on() -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    sweeper, broken, other = Sweeper(loop), Watched(broken=True), Watched()
    sweeper.watch(broken)
    sweeper.watch(other)
    sweeper.start()
    await until(lambda: len(other.times) >= 3)
    sweeper.stop()
    loop.set_exception_handler(None)
    assert len(broken.times) == 1
    assert [type(each["exception"]) for each in told] == [ZeroDivisionError]
