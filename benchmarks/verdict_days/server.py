"""A server on virtual time: its process, its front end, its engines, and what happens to it.

What happens is a script with a known truth. A server that hangs for an hour is restarted by a
person, and counts as missed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.verdict_days.core import HANGS, Core, Halt, Request, Shape
from benchmarks.verdict_days.exports import EMPTY_SAMPLE
from benchmarks.verdict_days.kinds import EXPORTS, SAYS_ITS_START, TAKES_NAMES, UNHEALTHY_AFTER

#: Seconds after which a person finds a server that nobody else found.
FOUND_BY_HAND = 3600.0
_QUICK = 0.02
#: Seconds in which an idle process uses a tenth of a second of CPU time.
_CPU_EVERY = 120


@dataclass(frozen=True)
class Event:
    """At ``at`` seconds, ``act`` happens to the server."""

    at: float
    act: Callable[["Server"], None]


@dataclass(frozen=True)
class Build:
    """How a server is made. ``load`` is the seconds that its process needs before it serves. An
    ``old`` version passes over that a request names its rank.
    """

    kind: str = "vllm"
    shape: Shape = field(default_factory=Shape)
    ranks: int = 1
    load: float = 120.0
    keeps_stale: bool = False
    loading_first: bool = False
    old: bool = False


@dataclass
class Truth:
    """What was done to it, against what was true. Times are seconds."""

    false_restarts: int = 0
    true_restarts: int = 0
    missed: int = 0
    hangs: int = 0
    requests: int = 0
    to_busy: int = 0
    despite_progress: int = 0
    lost: int = 0
    detected: list[float] = field(default_factory=list)
    proved: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Refused(Exception):
    """Nobody listens."""


class Slow(Exception):
    """No answer within the time that the client gave it."""


class Unwell(Exception):
    """It answers that it is not well."""


class Server:
    def __init__(self, build: Build, script: Sequence[Event]) -> None:
        self.build, self.truth = build, Truth()
        self.now = 0.0
        self.hung_since: float | None = None
        self.lag, self.errors, self.posts = 0.0, 0, 0
        self.clients: list[tuple[int, int, int]] = []
        self._script = sorted(script, key=lambda event: event.at)
        self._next = 0
        self._turn = 0
        self._shown: tuple[object, str] = (None, "")
        self._export, self._gauges_of = EXPORTS[build.kind]
        self._serves_at = build.load if build.loading_first else 0.0
        self._process()

    @property
    def serves(self) -> bool:
        return self.now >= self._serves_at

    @property
    def is_paused(self) -> bool:
        return any(core.halt is Halt.PAUSED for core in self.cores)

    @property
    def in_flight(self) -> int:
        return sum(core.in_flight for core in self.cores)

    def advance(self, to: float) -> None:
        """Let everything happen that happens by ``to``."""
        while True:
            script = self._script
            at = script[self._next].at if self._next < len(script) else to + 1
            found = self.hung_since + FOUND_BY_HAND if self.hung_since is not None else to + 1
            opens = self._serves_at if self.now < self._serves_at else to + 1
            if min(at, found, opens) > to:
                break
            self._let_pass(min(at, found, opens))
            if opens <= min(at, found):
                self._open()
            elif at <= found:
                self._next += 1
                script[self._next - 1].act(self)
            else:
                self.truth.missed += 1
                self._start_anew()
        self._let_pass(to)

    def page(self, limit: float) -> str:
        """The metrics page; the very same text while nothing changes. Raises Refused or Slow."""
        self._answer_within(limit)
        for core, gauges in zip(self.cores, self.gauges, strict=True):
            gauges.looked_at(core)
        state = [
            (*core.state(), gauges.running, gauges.waiting, gauges.kv)
            for core, gauges in zip(self.cores, self.gauges, strict=True)
        ]
        key = (state, self.posts, self.errors, self.began_at, *self._ticks())
        if key != self._shown[0]:
            self._shown = key, self._render()
        return self._shown[1]

    def _ticks(self) -> tuple[int, int]:
        """What moves by itself: the CPU time of an idle process, and V0's empty samples."""
        empty = int(self.now // EMPTY_SAMPLE) if self.build.kind == "vllm-v0" else 0
        return int(self.now // _CPU_EVERY), empty

    def _render(self) -> str:
        cpu, _ = self._ticks()
        several = len(self.cores) > 1
        parts = [
            self._export(core, gauges, str(number) if several else "0", self.now)
            for number, (core, gauges) in enumerate(zip(self.cores, self.gauges, strict=True))
        ]
        parts.append(
            f"process_cpu_seconds_total {20 + cpu / 10:.2f}\n"
            f'http_requests_total{{status="2xx"}} {self.posts}.0\n'
            f'http_requests_total{{status="5xx"}} {self.errors}.0\n'
        )
        if several and not self.build.old:
            parts.append(TAKES_NAMES.get(self.build.kind, ""))
        if self.build.kind in SAYS_ITS_START and not several:
            parts.append(f"process_start_time_seconds {1.79e9 + self.began_at!r}\n")
        return "".join(parts)

    def health(self, limit: float) -> None:
        """Returns where ``/health`` says 200. Raises Refused, Slow or Unwell."""
        self._answer_within(limit)
        patience = UNHEALTHY_AFTER.get(self.build.kind, math.inf)
        if any(core.stood > patience for core in self.cores):
            raise Unwell

    def post(self, prompt: int, output: int, rank: int | None = None) -> Request:
        """A check's request. Raises Refused."""
        if not self.serves:
            raise Refused
        is_any = rank is None or self.build.old
        core = self.cores[self._turn_of() if is_any or rank is None else rank]
        truth = self.truth
        truth.requests += 1
        truth.to_busy += core.in_flight > 0 and core.halt not in HANGS
        self.posts += 1
        return core.submit(Request(prompt, output))

    def hang_up(self, request: Request) -> None:
        for core in self.cores:
            if request in core.running or request in core.waiting:
                core.abort(request)

    def order_restart(self) -> None:
        """A check restarts it: truth is counted, work ends, the model is loaded anew."""
        if self.hung_since is not None:
            self.truth.true_restarts += 1
            self.truth.detected.append(self.now - self.hung_since)
        else:
            self.truth.false_restarts += 1
            self.truth.wrong.append(f"{self.now:.0f} s: restarted while {self.state}")
        self._start_anew()

    @property
    def state(self) -> str:
        if not self.serves:
            return "loading"
        halts = {str(core.halt) for core in self.cores if core.halt is not None}
        return ", ".join(sorted(halts)) or ("working" if self.in_flight else "idle")

    # What happens to it.

    def arrive(self, request: Request) -> None:
        """A client's request; one that finds nobody is lost."""
        if not self.serves:
            self.truth.lost += 1
            return
        self.posts += 1
        self.cores[self._turn_of()].submit(request)

    def keep_busy(self, count: int, prompt: int, output: int) -> None:
        """A batch job: so many clients a rank, each of which sends again when it is answered."""
        self.clients.append((count, prompt, output))
        if self.serves:
            self._fill(count, prompt, output)

    def end_jobs(self) -> None:
        """The batch job's clients go away when they are answered."""
        self.clients.clear()
        for core in self.cores:
            for request in [*core.running, *core.waiting]:
                request.again = False

    def hang(self, halt: Halt, rank: int | None = None) -> None:
        """Hang, unless it is down or halted already."""
        if not self.serves or self.hung_since is not None or self.cores[0].halt is not None:
            return
        for core in self.cores if rank is None else [self.cores[rank]]:
            core.stop(halt)
        self.hung_since = self.now
        self.truth.hangs += 1

    def restart(self) -> None:
        """Somebody else restarts it, and has a reason."""
        self._start_anew()

    def _start_anew(self) -> None:
        self.truth.lost += self.in_flight
        self.hung_since = None
        self._serves_at = self.now + self.build.load
        self._process()

    def _process(self) -> None:
        build = self.build
        self.gauges = [self._gauges_of(keeps_stale=build.keeps_stale) for _ in range(build.ranks)]
        self.cores = [Core(build.shape, gauges) for gauges in self.gauges]
        self.errors = self.posts = 0
        self.began_at = self.now
        for core in self.cores:
            core.now = self.now

    def _open(self) -> None:
        for client in self.clients:
            self._fill(*client)

    def _fill(self, count: int, prompt: int, output: int) -> None:
        for core in self.cores:
            for _ in range(count):
                core.submit(Request(prompt, output, again=True))

    def _let_pass(self, to: float) -> None:
        for core in self.cores:
            core.advance(to)
        self.now = max(self.now, to)

    def _answer_within(self, limit: float) -> None:
        if not self.serves:
            raise Refused
        if max(self.lag, _QUICK) > limit:
            raise Slow

    def _turn_of(self) -> int:
        self._turn += 1
        return self._turn % len(self.cores)
