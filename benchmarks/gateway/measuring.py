"""What is measured, in which order: those that are compared alternate, so that what else the
machine does meets them alike.
"""

import re
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway.peers import PATH
from benchmarks.gateway.posts import Load, Posts
from benchmarks.gateway.programs import Program, memory_kib, peak_mib
from benchmarks.gateway.streams import Source, Streams, run_streams

DIRECT, NGINX, STEADY = "no proxy", "nginx", "steady"
NGINX_MIRROR, STEADY_MIRROR = "nginx, one mirror", "steady, one mirror"
STEADY_THREE, STEADY_DEAD = "steady, three mirrors, two dead", "steady, two dead mirrors"
STARLETTE, LITELLM = "Starlette and httpx", "LiteLLM"

#: Paths before the API's own, by what is measured.
_PREFIXES = {
    NGINX_MIRROR: "/mirrored",
    STEADY_MIRROR: "/mirrored",
    STEADY_THREE: "/three",
    STEADY_DEAD: "/dead",
}

MANY = (16, 128)


@dataclass(frozen=True)
class Plan:
    """Seconds of each run, and rounds with one connection (``alone``) and with many."""

    seconds: float
    alone: int
    many: int
    alone_what: frozenset[str]
    streams: tuple[int, ...]
    streams_what: frozenset[str]
    stream_seconds: float


_EVERYTHING = frozenset(
    {
        *(DIRECT, NGINX, STEADY, NGINX_MIRROR, STEADY_MIRROR, STEADY_THREE, STEADY_DEAD),
        *(STARLETTE, LITELLM),
    }
)
FULL = Plan(
    seconds=4,
    alone=5,
    many=3,
    alone_what=_EVERYTHING,
    streams=(64, 256, 1000),
    streams_what=_EVERYTHING - {NGINX_MIRROR, STEADY_DEAD},
    stream_seconds=4,
)
QUICK = Plan(
    seconds=1,
    alone=2,
    many=1,
    alone_what=frozenset({DIRECT, NGINX, STEADY, STEADY_DEAD, STARLETTE, LITELLM}),
    streams=(64, 1000),
    streams_what=frozenset({NGINX, STEADY}),
    stream_seconds=1.5,
)


class Measuring:
    def __init__(self, folder: Path, plan: Plan) -> None:
        self.posts: list[Posts] = []
        self.streams: list[Streams] = []
        self.mirrored: dict[str, float] = {}
        self.peak_mib = 0.0
        self._plan = plan
        self._load = Load(folder, plan.seconds)

    def run(self, programs: dict[str, Program], streaming: Program, admin: int) -> None:
        """``programs`` by who they are; ``streaming`` is the upstream of streams."""
        self._streams(programs | {DIRECT: streaming})
        for _ in range(self._plan.alone):
            self._posts(programs, self._plan.alone_what, 1)
        for connections in MANY:
            for _ in range(self._plan.many):
                self._posts(programs, _EVERYTHING - {DIRECT, STEADY_DEAD}, connections)
        self.peak_mib = peak_mib(programs[STEADY].pid)
        self.mirrored = _of_mirrors(admin)

    def _streams(self, programs: dict[str, Program]) -> None:
        plan = self._plan
        idle = {each.pid: memory_kib(each.pid) for each in programs.values()}
        for streams in plan.streams:
            for what, program, prefix in _of(programs, plan.streams_what):
                path = PATH if what in (DIRECT, LITELLM) else f"/streams{prefix}{PATH}"
                model = "streams" if what == LITELLM else "m"
                source = Source(what, program, path, model)
                done = run_streams(source, streams, plan.stream_seconds, idle[program.pid])
                self.streams.append(done)
                print(done, file=sys.stderr)

    def _posts(self, programs: dict[str, Program], which: frozenset[str], connections: int) -> None:
        for what, program, prefix in _of(programs, which):
            self.posts.append(self._load.run(what, program, prefix + PATH, connections))
            print(self.posts[-1], file=sys.stderr)


def _of(programs: dict[str, Program], which: frozenset[str]) -> Iterator[tuple[str, Program, str]]:
    """What is measured, with its program and the beginning of its path."""
    for who, program in programs.items():
        for what in (who, *(each for each in _PREFIXES if each.startswith(who))):
            if what in which:
                yield what, program, _PREFIXES.get(what, "")


def _of_mirrors(admin: int) -> dict[str, float]:
    """What became of the mirrored requests, from the gateway's own metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as page:
        shown = page.read().decode()
    line = r'mirror_results_total\{candidate="(.*?)",endpoint=".*?",result="(.*?)"\} ([0-9.e+]+)'
    return {f"{who}: {what}": float(n) for who, what, n in re.findall(line, shown) if float(n)}
