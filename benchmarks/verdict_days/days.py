"""Days with a known truth: what happens to a server, and when. Times are seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from benchmarks.verdict_days.core import Halt, Request, Shape
from benchmarks.verdict_days.server import Build, Event, Server

KINDS = ("vllm", "vllm-v0", "sglang", "llamacpp")
#: Of these there are only a few days, and shorter ones.
OTHERS = ("tgi", "triton", "trtllm", "nim", "lmdeploy")
MINUTE, HOUR = 60.0, 3600.0

OTHERS_FULL = "a batch job on a full server, five other engines"

#: What steady is known not to see: there, no request can name the rank that is meant.
LIMIT = "the same, of SGLang before 0.5.10"
#: Nor what hangs where the page is written when a request ends: a full server looks the same.
SILENT = "hangs of trtllm-serve, in decode, in admission, while idle"


@dataclass(frozen=True)
class Day:
    """``group`` is the scenario that it belongs to. ``load_limit`` is what the operator allows."""

    group: str
    build: Build
    script: Sequence[Event]
    hours: float = 4.0
    load_limit: timedelta = field(default=timedelta(minutes=15))


def ask(at: float, prompt: int, output: int) -> Event:
    return Event(at, lambda server: server.arrive(Request(prompt, output)))


def every(begin: float, end: float, gap: float, prompt: int, output: int) -> list[Event]:
    """A client that comes again and again."""
    count = int((end - begin) / gap)
    return [ask(begin + number * gap, prompt, output) for number in range(count)]


def job(at: float, count: int, prompt: int, output: int) -> Event:
    return Event(at, lambda server: server.keep_busy(count, prompt, output))


def hang(at: float, halt: Halt, rank: int | None = None) -> Event:
    return Event(at, lambda server: server.hang(halt, rank))


def stall(at: float, seconds: float) -> Event:
    def act(server: Server) -> None:
        for core in server.cores:
            core.stall(seconds)

    return Event(at, act)


def slow(begin: float, end: float, lag: float) -> list[Event]:
    """The front end is slow to answer anything; its engine works on."""

    def turn(to: float) -> Event:
        def act(server: Server) -> None:
            server.lag = to

        return Event(begin if to else end, act)

    return [turn(lag), turn(0.0)]


def halted(begin: float, end: float, halt: Halt) -> list[Event]:
    """Somebody puts it to sleep or pauses it, and ends that later."""

    def stop(server: Server) -> None:
        for core in server.cores:
            core.stop(halt)

    def resume(server: Server) -> None:
        for core in server.cores:
            core.resume()

    return [Event(begin, stop), Event(end, resume)]


def _abort(server: Server) -> None:
    for core in server.cores:
        core.abort_all()


def _restart(server: Server) -> None:
    server.restart()


def _errors(server: Server) -> None:
    server.errors += 1


def abort(at: float) -> Event:
    return Event(at, _abort)


def deploy(at: float) -> Event:
    return Event(at, _restart)


_LONG = 131_072
#: Reads 128k tokens in four minutes, in chunks of 2048.
_READER = Shape(per_token=240 / _LONG, blocks=65536)
_TRAFFIC = every(30, 4 * HOUR, 45, 800, 300)


def scenarios() -> list[Day]:
    """Every situation by which checks are fooled, each with its truth."""
    return [*_busy(), *_hangs(), *_on_purpose(), *_rough(), *_others()]


def _busy() -> list[Day]:
    days = [
        Day(
            "batch job of 2 to 4 requests, 8 servers",
            Build(kind="vllm", shape=Shape(slots=2 + at % 3, step=0.05)),
            [job(MINUTE + at, 2 + at % 3, 2000, 24_000)],
            hours=2.5,
        )
        for at in range(8)
    ]
    days += [
        Day(
            "12 requests each on two full servers",
            Build(kind="vllm", shape=Shape(slots=12, step=0.06)),
            [job(MINUTE, 12, 1000, 10_000)],
            hours=2.5,
        )
        for _ in range(2)
    ]
    for kind in KINDS:
        build = Build(kind=kind, shape=_READER)
        lone = every(15 * MINUTE, 4 * HOUR, 25 * MINUTE, _LONG, 100)
        days.append(Day("a lone 128k prompt, read for four minutes", build, lone))
    for span in (15, 100):
        shape = Shape(chunk=_LONG, per_token=span / 16_384)
        prompts = every(15 * MINUTE, 4 * HOUR, 307, 16_384, 50)
        title = f"a first step of {span} s, gauges at zero"
        days += [Day(title, Build(kind=kind, shape=shape), prompts) for kind in KINDS]
    # steady's probes leave at 11 s, and then every five minutes.
    burst = [ask(n * 1200 + 311.04 + i / 100, 4000, 1500) for n in range(8) for i in range(150)]
    title = "a burst right after a probe has looked"
    days.append(Day(title, Build(shape=Shape(slots=8)), burst))
    one_step = Shape(slots=8, chunk=_LONG, per_token=20 / 16_384)
    burst = [ask(n * 1200 + 311.04 + i / 100, 16_384, 200) for n in range(8) for i in range(8)]
    days.append(Day(title, Build(shape=one_step), burst))
    for minutes in (4, 15):
        shape = replace(_READER, per_token=minutes * MINUTE / _LONG, flat_kv=True)
        lone = every(15 * MINUTE, 4 * HOUR, 40 * MINUTE, _LONG, 100)
        title = f"a prompt of {minutes} minutes, a cache use that stays flat"
        days.append(Day(title, Build(shape=shape), lone))
    return days


def _hangs() -> list[Day]:
    days = []
    for kind in KINDS:
        build, at = Build(kind=kind), HOUR + 7
        reader = Build(kind=kind, shape=_READER)
        long = [ask(at - 95, _LONG, 100)]
        days += [
            Day("a hang in decode", build, [job(60, 6, 900, 700), hang(at, Halt.FROZEN)]),
            Day("a hang in prefill", reader, [*long, hang(at, Halt.PREFILL)]),
            Day(
                "a hang in admission, all waiting and none running",
                build,
                [*_TRAFFIC, hang(at, Halt.ADMISSION)],
            ),
            Day(
                "a hang while its pages take 8 s, for five minutes",
                build,
                [job(60, 6, 900, 700), *slow(at - 60, at + 240, 8), hang(at, Halt.FROZEN)],
            ),
            Day("frozen while idle, nobody comes", build, [hang(at, Halt.FROZEN)]),
            Day(
                "frozen while idle, requests come later",
                build,
                [*every(at + 240, 4 * HOUR, 45, 800, 300), hang(at, Halt.FROZEN)],
            ),
        ]
    for kind, rank in (("vllm", 0), ("vllm", 1), ("sglang", 0)):
        two = Build(kind=kind, ranks=2)
        stuck = [job(60, 4, 900, 700), hang(HOUR + 7, Halt.FROZEN, rank)]
        days.append(Day("a hang at a collective of one rank of two", two, stuck))
    idle_one = [hang(50, Halt.FROZEN, 0), job(60, 4, 900, 700)]
    for kind in ("vllm", "sglang"):
        two = Build(kind=kind, ranks=2)
        days.append(Day("one rank frozen while idle, the other at work", two, idle_one))
    days.append(Day(LIMIT, Build(kind="sglang", ranks=2, old=True), idle_one))
    # An hour to miss it in, and some more.
    return [replace(day, hours=2.5) for day in days]


def _on_purpose() -> list[Day]:
    days = [
        Day(
            "asleep for two hours",
            Build(kind="vllm"),
            [
                *every(30, 40 * MINUTE, 45, 800, 300),
                *halted(50 * MINUTE, 170 * MINUTE, Halt.ASLEEP),
            ],
        ),
        Day(
            "paused for an hour with requests in flight",
            Build(kind="vllm"),
            [job(60, 3, 900, 700), *halted(50 * MINUTE, 110 * MINUTE, Halt.PAUSED)],
        ),
        Day(
            "a load of 40 minutes",
            Build(kind="vllm", load=40 * MINUTE, loading_first=True),
            _TRAFFIC,
            load_limit=timedelta(minutes=45),
        ),
        Day(
            "a load of 40 minutes",
            Build(kind="vllm", load=40 * MINUTE),
            [*_TRAFFIC, deploy(HOUR + 3)],
            load_limit=timedelta(minutes=45),
        ),
    ]
    days += [
        Day(
            "restarted between two readings",
            Build(kind=kind, load=18),
            [*_TRAFFIC, *(deploy(n * 20 * MINUTE + 9) for n in range(1, 11))],
        )
        for kind in KINDS
    ]
    return days


def _rough() -> list[Day]:
    aborted = [event for n in range(4) for event in _abort_storm(20 * MINUTE + n * HOUR)]
    stale = [
        Day("stale gauges after aborts", Build(kind=kind, keeps_stale=True), aborted)
        for kind in ("vllm", "sglang")
    ]
    gc = [
        event
        for n in range(24)
        for event in (stall(n * 577 + 60, 9), *slow(n * 577 + 60, n * 577 + 69, 6))
    ]
    capture = [deploy(HOUR), stall(HOUR + 125, 108), *_TRAFFIC]
    errors = [Event(HOUR + n * 4, _errors) for n in range(30)]
    lagging = [job(60, 16, 900, 700), *slow(HOUR, HOUR + 10 * MINUTE, 8)]
    days = []
    for kind in KINDS:
        build = Build(kind=kind)
        days += [
            Day("GC pauses of 9 s", build, [job(60, 6, 900, 700), *gc]),
            Day("108 s of graph capture at the first request", build, capture),
            Day("pages that take 8 s, for ten minutes", build, lagging),
        ]
    return [
        *stale,
        *days,
        Day("30 answers of 500 to a broken client", Build(), [*_TRAFFIC, *errors]),
    ]


def _others() -> list[Day]:
    """What happens to any server, to the engines that fewer people run; of each the bare hours."""
    days = [day for kind in OTHERS for day in _of(kind)]
    return sorted(days, key=lambda day: day.group == SILENT)


def _of(kind: str) -> list[Day]:
    build, at, end = Build(kind=kind), 20 * MINUTE + 7, 1.4 * HOUR
    full = Build(kind=kind, shape=Shape(slots=4, step=0.05))
    reader = Build(kind=kind, shape=_READER)
    one_step = Build(kind=kind, shape=Shape(chunk=_LONG, per_token=100 / 16_384))
    lone = every(15 * MINUTE, end, 25 * MINUTE, _LONG, 100)
    prompts = every(15 * MINUTE, end, 307, 16_384, 50)
    later = every(at + 240, end, 45, 800, 300)
    deploys = [deploy(n * 20 * MINUTE + 9) for n in range(1, 4)]
    days = [
        Day(OTHERS_FULL, full, [job(MINUTE, 4, 2000, 24_000)]),
        Day("a lone 128k prompt, read for four minutes", reader, lone),
        Day("a first step of 100 s, gauges at zero", one_step, prompts),
        Day("restarted between two readings", replace(build, load=18), [*_TRAFFIC, *deploys]),
    ]
    hangs = {
        "a hang in decode": [job(60, 6, 900, 700), hang(at, Halt.FROZEN)],
        "a hang in admission, all waiting and none running": [*_TRAFFIC, hang(at, Halt.ADMISSION)],
        "frozen while idle, nobody comes": [hang(at, Halt.FROZEN)],
        "frozen while idle, requests come later": [*later, hang(at, Halt.FROZEN)],
    }
    days += [
        Day(SILENT if kind == "trtllm" else group, build, script) for group, script in hangs.items()
    ]
    return [replace(day, hours=end / HOUR) for day in days]


def _abort_storm(at: float) -> list[Event]:
    return [*(ask(at + n / 10, 2000, 4000) for n in range(30)), abort(at + 30)]
