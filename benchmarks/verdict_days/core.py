"""One engine on virtual time: queue, slots, steps. Time is in seconds since the day began.

Nothing ticks: steps between two moments of interest are counted at once, so a quiet hour costs no
more than a second.
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

_BLOCK = 16


class Halt(StrEnum):
    """Why an engine takes no step. The first three are hangs, the others are somebody's will.

    ``ADMISSION``: what runs is finished, its loop turns and writes its gauges, and nothing is
    admitted any more.
    """

    FROZEN = "frozen"
    PREFILL = "prefill"
    ADMISSION = "admission"
    PAUSED = "paused"
    ASLEEP = "asleep"


HANGS = frozenset({Halt.FROZEN, Halt.PREFILL, Halt.ADMISSION})


@dataclass(eq=False, slots=True)
class Request:
    """``read`` and ``written`` are tokens. ``again``: its client sends the next when it is done."""

    prompt: int
    output: int
    again: bool = False
    read: int = 0
    written: int = 0
    done_at: float | None = None
    lost: bool = False

    @property
    def held(self) -> int:
        return self.read + self.written

    @property
    def blocks(self) -> int:
        return -(-(self.read + self.written) // _BLOCK)


@dataclass(frozen=True)
class Shape:
    """What an engine can do. ``chunk`` is how many prompt tokens one step reads at most, so one as
    long as the longest prompt is a prefill in one step. ``flat_kv``: a model whose cache use does
    not grow with a prompt. A step takes some time, whatever it reads.
    """

    slots: int = 16
    step: float = 0.03
    per_token: float = 0.0001
    chunk: int = 2048
    blocks: int = 32768
    flat_kv: bool = False

    def __post_init__(self) -> None:
        if self.step <= 0:
            raise ValueError("a step takes time")


@dataclass(slots=True)
class Counts:
    """What has happened since the process began. ``output_steps`` gave some request its token."""

    steps: int = 0
    output_steps: int = 0
    step_tokens: int = 0
    all_tokens: int = 0
    prompt: int = 0
    output: int = 0
    read: int = 0
    finished: int = 0
    finished_prompt: int = 0
    finished_output: int = 0


class Exports(Protocol):
    """What an engine writes down, and when."""

    def cut(self, steps: int, begin: float, span: float) -> int:
        """How many of so many steps of decoding may be counted at once: the first begins at
        ``begin``, and each takes ``span`` seconds.
        """

    def decoded(self, core: "Core", steps: int) -> None:
        """After so many steps in a row that only wrote tokens."""

    def prefilled(self, core: "Core") -> None:
        """After a step that read some prompt."""

    def aborted(self, core: "Core") -> None:
        """After requests were dropped without a step."""

    def comes(self, core: "Core") -> None:
        """Before a request comes in."""

    def turned(self, core: "Core") -> None:
        """While the engine's loop turns without a step."""


class Core:
    def __init__(self, shape: Shape, exports: Exports) -> None:
        self.shape, self.exports = shape, exports
        self.now = self.worked_at = self._came_at = 0.0
        self.counts = Counts()
        self.halt: Halt | None = None
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self._chunks: list[tuple[Request, int]] = []
        self._began, self._span, self._left = 0.0, 0.0, 0
        self._stalled_until = 0.0
        self._hang_at: tuple[float, Halt] | None = None

    @property
    def in_flight(self) -> int:
        return len(self.running) + len(self.waiting)

    @property
    def kv(self) -> float:
        if self.shape.flat_kv:
            return min(1.0, len(self.running) * 4 / self.shape.blocks)
        return min(1.0, sum(each.blocks for each in self.running) / self.shape.blocks)

    def state(self) -> tuple[int, int, int, int, Halt | None]:
        """Whatever of it may show on a page, beside its gauges."""
        counts = self.counts
        return counts.steps, counts.finished, len(self.running), len(self.waiting), self.halt

    @property
    def _takes_steps(self) -> bool:
        return self.halt in (None, Halt.ADMISSION)

    @property
    def _admits(self) -> bool:
        return bool(self.waiting) and self.halt is None

    @property
    def stood(self) -> float:
        """Seconds since its last step, or since it has had work; none while idle."""
        return self.now - max(self.worked_at, self._came_at) if self.in_flight else 0.0

    def submit(self, request: Request) -> Request:
        self.exports.comes(self)
        if not self.in_flight:
            self._came_at = self.now
        self.waiting.append(request)
        if self.halt is Halt.ADMISSION:
            self.exports.turned(self)
        self._cut_short()
        return request

    def abort(self, request: Request) -> None:
        """Drop a request whose client went away; a halted engine does not notice."""
        request.lost = True
        if self.halt is not None:
            return
        self._drop(request)
        self.exports.aborted(self)

    def abort_all(self) -> None:
        for request in [*self.running, *self.waiting]:
            request.lost = True
            self._drop(request)
        self._left = 0
        self.exports.aborted(self)

    def stop(self, halt: Halt) -> None:
        """Halt now. Where no more steps are taken, the one in progress is lost."""
        self.halt = halt
        if halt is Halt.ADMISSION:
            self.exports.turned(self)
        else:
            self._left = 0

    def resume(self) -> None:
        self.halt = None

    def stall(self, seconds: float) -> None:
        """The next step, or the one in progress, ends so much later: GC, or a graph captured."""
        if self._left:
            self._began += seconds
        else:
            self._stalled_until = self.now + seconds

    def advance(self, to: float) -> None:
        """Take every step that ends by ``to``."""
        if not (self._left or self.running or self.waiting):
            self.now = max(self.now, to)
            return
        while self.now < to:
            if not self._takes_steps or not (self._left or self._start()):
                break
            if self._began + self._span > to + 1e-9:
                break
            done = min(self._left, int((to - self._began) / self._span + 1e-9))
            self._apply(self.exports.cut(max(done, 1), self._began, self._span))
        self.now = max(self.now, to)

    def _start(self) -> bool:
        """Plan the next steps; false where there is nothing to do."""
        self._chunks, left = [], self.shape.chunk
        for request in self.running:
            left -= self._take(request, left)
        while self._admits and len(self.running) < self.shape.slots and left:
            self.running.append(self.waiting.popleft())
            left -= self._take(self.running[-1], left)
        if not self.running:
            return False
        read = self.shape.chunk - left
        self._began = max(self.now, self._stalled_until)
        self._span = self.shape.step + read * self.shape.per_token
        self._left = 1 if read else min(each.output - each.written for each in self.running)
        return True

    def _take(self, request: Request, left: int) -> int:
        """The part of its prompt that a request reads in the next step."""
        take = min(left, request.prompt - request.read)
        if take:
            self._chunks.append((request, take))
        return take

    def _apply(self, steps: int) -> None:
        self._began += steps * self._span
        self.now = self.worked_at = self._began
        self._left -= steps
        writing = [each for each in self.running if each.read >= each.prompt]
        counts, read = self.counts, 0
        for request, take in self._chunks:
            request.read += take
            read += take
            if request.read >= request.prompt:
                writing.append(request)
                counts.prompt += request.prompt
        for request in writing:
            request.written += steps
        counts.steps += steps
        counts.read += read
        counts.all_tokens += read + steps * len(writing)
        if writing:
            counts.output_steps += steps
            counts.step_tokens += read + steps * len(writing)
            counts.output += steps * len(writing)
        had_chunks, self._chunks = bool(self._chunks), []
        ended = [each for each in writing if each.written >= each.output]
        for request in ended:
            self._end(request)
        if had_chunks:
            self.exports.prefilled(self)
        else:
            self.exports.decoded(self, steps)

    def _end(self, request: Request) -> None:
        request.done_at = self.now
        self.running.remove(request)
        self.counts.finished += 1
        self.counts.finished_prompt += request.prompt
        self.counts.finished_output += request.written
        if request.again:
            self.waiting.append(Request(request.prompt, request.output, again=True))

    def _drop(self, request: Request) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self.running.remove(request)
            self._chunks = [each for each in self._chunks if each[0] is not request]
            self._cut_short()
            if not self.running:
                self._left = 0

    def _cut_short(self) -> None:
        """What came or went is noticed when the step in progress ends."""
        self._left = min(self._left, 1)


def loop(core: Core, count: int, prompt: int, output: int) -> None:
    """A batch job: so many clients, each with one request in flight at any time."""
    for _ in range(count):
        core.submit(Request(prompt, output, again=True))
