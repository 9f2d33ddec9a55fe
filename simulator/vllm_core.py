"""The engine inside a simulated vLLM server: queue, slots, steps, and gauges written after a step.

It counts as V1 does: a step that only reads a prompt moves the KV cache use (and the FLOPs), and
neither the step counter nor the token counters, which wait for the first output.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass(eq=False)
class Request:
    """``read`` and ``written`` are tokens. ``ended`` is set when it is finished."""

    prompt: int
    max_tokens: int
    read: int = 0
    written: int = 0
    is_load: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def held(self) -> int:
        return self.read + self.written


@dataclass
class Shown:
    """What the page says of the engine. Gauges keep their last values until the next step."""

    running: int = 0
    waiting: int = 0
    kv: float = 0.0
    steps: int = 0
    step_tokens: int = 0
    prompt: int = 0
    output: int = 0
    flops: float = 0.0
    finished: int = 0


class Core:
    """One engine. ``step`` is the seconds of a step, ``chunk`` the prompt tokens that one reads.

    ``load`` requests of its own keep its slots busy, each for ``length`` tokens. ``blocks`` is the
    size of its cache in tokens.
    """

    def __init__(  # noqa: PLR0913 - they are the engine's flags
        self,
        *,
        step: float = 0.05,
        slots: int = 4,
        chunk: int = 512,
        blocks: int = 65536,
        load: int = 0,
        length: int = 6000,
    ) -> None:
        self.shown = Shown()
        self.frozen = False
        self.asleep = False
        self._step, self._slots, self._chunk, self._blocks = step, slots, chunk, blocks
        self._load, self._length = load, length
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._work = asyncio.Event()
        for _ in range(load):
            self._add_load()

    async def run(self) -> None:
        """Step for ever; an idle engine takes none."""
        while True:
            await self._work.wait()
            await asyncio.sleep(self._step)
            if self._work.is_set() and not self.frozen and not self.asleep:
                self.step()

    def submit(self, prompt: int, max_tokens: int) -> Request:
        request = Request(prompt=max(1, prompt), max_tokens=max(1, max_tokens))
        self._waiting.append(request)
        self._work.set()
        return request

    def abort(self, request: Request) -> None:
        """Drop a request whose client went away. A frozen engine does not notice before it thaws,
        and neither do its gauges.
        """
        if request in self._waiting:
            self._waiting.remove(request)
        if request in self._running:
            self._running.remove(request)
        self._work.set()

    def drop_all(self) -> None:
        """Forget all work without a step: the gauges go stale, as after a mass abort."""
        self._load = 0
        self._waiting.clear()
        self._running.clear()
        self._work.clear()

    def step(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            self._running.append(self._waiting.popleft())
        left, tokens, outputs = self._chunk, 0, 0
        for request in self._running:
            if request.read < request.prompt:
                take = min(left, request.prompt - request.read)
                request.read += take
                left -= take
                tokens += take
                if request.read < request.prompt:
                    continue
                self.shown.prompt += request.prompt
            request.written += 1
            tokens += 1
            outputs += 1
        self._book(tokens, outputs)
        self._end_finished()
        self._show()

    def _book(self, tokens: int, outputs: int) -> None:
        self.shown.flops += tokens * 1e9
        if outputs:
            self.shown.steps += 1
            self.shown.step_tokens += tokens
            self.shown.output += outputs

    def _end_finished(self) -> None:
        for request in [each for each in self._running if each.written >= each.max_tokens]:
            self._running.remove(request)
            self.shown.finished += 1
            request.ended.set()
            if request.is_load and self._load:
                self._add_load()

    def _show(self) -> None:
        self.shown.running = len(self._running)
        self.shown.waiting = len(self._waiting)
        self.shown.kv = min(1.0, sum(each.held for each in self._running) / self._blocks)
        self._rest_if_done()

    def _rest_if_done(self) -> None:
        if not self._waiting and not self._running:
            self._work.clear()

    def _add_load(self) -> None:
        request = Request(prompt=64, max_tokens=self._length, is_load=True)
        self._waiting.append(request)
        self._work.set()
