"""Ordinary days: traffic at random by the hour, jobs at night, mishaps now and then. Seeded."""

import random

from benchmarks.verdict_days.core import Halt, Shape
from benchmarks.verdict_days.days import (
    HOUR,
    KINDS,
    MINUTE,
    Day,
    abort,
    ask,
    deploy,
    hang,
    job,
    slow,
    stall,
)
from benchmarks.verdict_days.server import Build, Event

#: Mean seconds between two requests, by hour.
_NIGHT, _DAY = 900.0, 75.0
#: One ordinary day in so many sees a hang.
_HANGS_IN = 3
_IN_RANKS = frozenset({"vllm", "sglang"})


def ordinary(number: int) -> Day:
    """One server for 24 hours; the same number is the same day."""
    chance = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    shape = Shape(
        slots=chance.choice((2, 4, 16, 64)),
        step=chance.uniform(0.02, 0.06),
        per_token=chance.choice((0.0001, 0.0005, 0.002)),
        chunk=chance.choice((512, 2048, 8192, 65_536)),
        flat_kv=chance.random() < 0.2,
    )
    build = Build(
        kind=kind,
        shape=shape,
        ranks=2 if kind in _IN_RANKS and chance.random() < 0.3 else 1,
        load=chance.uniform(60, 600),
        keeps_stale=chance.random() < 0.2,
    )
    script = [*_requests(chance), *_job(chance), *_mishaps(chance)]
    if number % _HANGS_IN == 0:
        # An hour before the end at the latest, so that there is time to miss it.
        halt = chance.choice((Halt.FROZEN, Halt.FROZEN, Halt.ADMISSION))
        rank = chance.randrange(build.ranks) if halt is Halt.FROZEN else None
        script.append(hang(chance.uniform(0.2, 22.5) * HOUR, halt, rank))
    return Day("ordinary days", build, script, hours=24)


def _requests(chance: random.Random) -> list[Event]:
    script, at = [], 0.0
    while at < 24 * HOUR:
        is_day = 8 <= at / HOUR < 20
        at += chance.expovariate(1 / (_DAY if is_day else _NIGHT))
        prompt = min(60_000, int(chance.lognormvariate(6.5, 1.2)) + 1)
        script.append(ask(at, prompt, min(8000, int(chance.lognormvariate(5.5, 1)) + 1)))
    return script


def _job(chance: random.Random) -> list[Event]:
    """A batch job some evening, that fills a small server for an hour or three."""
    if chance.random() < 0.5:
        return []
    at = chance.uniform(19, 21) * HOUR
    end = at + chance.uniform(1, 3) * HOUR
    count = chance.randint(2, 4)
    return [
        job(at, count, chance.randint(500, 8000), chance.randint(2000, 20_000)),
        Event(end, lambda server: server.end_jobs()),
    ]


def _mishaps(chance: random.Random) -> list[Event]:
    script = [abort(chance.uniform(0, 24) * HOUR) for _ in range(chance.randint(0, 4))]
    script += [
        stall(chance.uniform(0, 24) * HOUR, chance.uniform(2, 30))
        for _ in range(chance.randint(0, 6))
    ]
    if chance.random() < 0.3:
        at = chance.uniform(1, 22) * HOUR
        script += slow(at, at + chance.uniform(1, 10) * MINUTE, chance.uniform(1, 9))
    if chance.random() < 0.3:
        script.append(deploy(chance.uniform(1, 22) * HOUR))
    return script
