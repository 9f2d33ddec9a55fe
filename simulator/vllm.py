"""A simulated vLLM server: a real process with vLLM's pages, whose engine can be told to hang.

``python -m simulator.vllm --name a --port 8000 --load 4``. It loads with its port closed, as vLLM
does. The API server and the engine are apart: a frozen engine takes no step, while the pages still
answer, ``/health`` says 200, and requests wait for ever.

SIGUSR1: the engine freezes. SIGCONT: it thaws. SIGTERM: end. By ``POST /sim/WORD``: ``freeze``,
``thaw`` (with ``?rank=1`` one engine alone), ``sleep``, ``wake``, ``pause``, ``resume``, ``stale``
(all work is gone and the gauges stay), ``fail``, ``mend`` (answers are 500, or no longer), ``full``
(answers are 429). ``GET /sim`` counts the requests by kind and by rank, and says how many came in
all and at once.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from simulator.parent import die_with_parent
from simulator.sglang_page import sglang_page
from simulator.vllm_core import Core, Request
from simulator.vllm_page import page
from simulator.wire import ASKED, answer, as_json, options_of, receive, say

_HEAD_WITHIN = 10.0
_CHARACTERS_A_TOKEN = 4

_KINDS = {
    "/v1/completions": "completion",
    "/v1/chat/completions": "chat",
    "/v1/embeddings": "embedding",
}


@dataclass(frozen=True)
class Options:
    """``boot`` and ``step`` are seconds. ``load`` requests of its own are always in flight, each
    for ``length`` tokens, so with as many ``slots`` no other one is admitted for minutes. ``ranks``
    above 1 is a data-parallel server, of which the one numbered ``idle`` gets none of the load. A
    ``doomed`` one freezes as soon as it has loaded. ``dialect`` is whose pages it writes, "vllm" or
    "sglang"; an ``old`` version passes the name of a rank over, as vLLM 0.11.0 or SGLang 0.5.9.
    """

    PROGRAM: ClassVar[str] = __file__
    FREEZES_WHOLE: ClassVar[bool] = False

    name: str
    port: int
    boot: float = 1.0
    step: float = 0.05
    load: int = 0
    slots: int = 4
    chunk: int = 512
    length: int = 6000
    ranks: int = 1
    model: str = "tiny"
    doomed: bool = False
    mfu: bool = False
    idle: int = -1
    dialect: str = "vllm"
    old: bool = False


@dataclass
class _State:
    paused: bool = False
    status: int = 200
    at_once: int = 0
    most_at_once: int = 0
    asked: Counter[str] = field(default_factory=Counter)


class SimVllm:
    """The API server of a simulated vLLM, and its engines."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._started = time.time()
        self._parent = os.getppid()
        self._state = _State()
        self._cores = [
            Core(
                step=options.step,
                slots=options.slots,
                chunk=options.chunk,
                load=options.load if number != options.idle else 0,
                length=options.length,
            )
            for number in range(options.ranks)
        ]
        self._next = 0
        self._landed = [0] * options.ranks

    async def run(self) -> None:
        """Load, then serve until SIGTERM."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        loop.add_signal_handler(signal.SIGUSR1, self._freeze, True)
        loop.add_signal_handler(signal.SIGCONT, self._freeze, False)
        say(f"loading {self._options.name} for {self._options.boot:g} s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), self._options.boot)
        if ended.is_set():
            return
        self._freeze(self._options.doomed or self._cores[0].frozen)
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._options.port)
        stepping = [asyncio.create_task(core.run()) for core in self._cores]
        say(f"ready on port {self._options.port}")
        await self._ended_or_orphaned(ended)
        say("told to end")
        for task in stepping:
            task.cancel()
        server.close()

    async def _ended_or_orphaned(self, ended: asyncio.Event) -> None:
        while not ended.is_set() and os.getppid() == self._parent:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 1)

    def _freeze(self, frozen: bool, rank: int | None = None) -> None:
        for number, core in enumerate(self._cores):
            if rank in (None, number):
                core.frozen = frozen
        say("frozen" if frozen else "running")

    # --- HTTP, as much of it as is needed ---------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_HEAD_WITHIN):
                method, target, headers, body = await receive(reader)
            writer.write(answer(*await self._answer(method, target, headers, body, reader)))
            await writer.drain()
        writer.close()

    async def _answer(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
    ) -> tuple[int, bytes, str]:
        url = urlsplit(target)
        if url.path == "/metrics":
            return 200, self._page().encode(), "text/plain; version=0.0.4; charset=utf-8"
        if url.path == "/sim" or url.path.startswith("/sim/"):
            return as_json(200, self._control(url.path.removeprefix("/sim"), parse_qs(url.query)))
        if method == "POST" and url.path in _KINDS:
            self._state.asked[_KINDS[url.path]] += 1
            say(f"{ASKED} {_KINDS[url.path]}")
            self._state.at_once += 1
            self._state.most_at_once = max(self._state.most_at_once, self._state.at_once)
            try:
                return await self._generate(json.loads(body), headers, reader)
            finally:
                self._state.at_once -= 1
        return self._plain(url.path)

    def _plain(self, path: str) -> tuple[int, bytes, str]:
        if path == "/health":
            return 200, b"", "text/plain"
        if path == "/v1/models":
            return as_json(200, {"object": "list", "data": [{"id": self._options.model}]})
        if path == "/is_paused":
            return as_json(200, {"is_paused": self._state.paused})
        return as_json(404, {"detail": "Not Found"})

    async def _generate(
        self, asked: dict[str, Any], headers: dict[str, str], reader: asyncio.StreamReader
    ) -> tuple[int, bytes, str]:
        if self._state.status != 200:
            return as_json(self._state.status, {"error": {"message": "CUDA error: simulated"}})
        if asked.get("model") != self._options.model:
            return as_json(
                404, {"error": {"message": f"The model {asked.get('model')!r} does not exist."}}
            )
        rank = None if self._options.old else headers.get("x-data-parallel-rank")
        core = self._core(rank)
        self._landed[self._cores.index(core)] += 1
        said = json.dumps(asked.get("prompt") or asked.get("messages") or asked.get("input") or "")
        # An embedding is one step; without a number, a text has the few tokens that vLLM gives it.
        wanted = int(asked.get("max_tokens") or (1 if "input" in asked else 16))
        request = core.submit(len(said) // _CHARACTERS_A_TOKEN, wanted)
        if not await _ended_before_client(request, reader):
            core.abort(request)
            raise ConnectionAbortedError
        text = "x" * request.written
        return as_json(200, {"choices": [{"text": text, "finish_reason": "length"}]})

    def _core(self, rank: str | None) -> Core:
        if rank is not None and rank.isdecimal() and int(rank) < len(self._cores):
            return self._cores[int(rank)]
        self._next += 1
        return self._cores[self._next % len(self._cores)]

    def _page(self) -> str:
        is_single = len(self._cores) == 1
        if self._options.dialect == "sglang":
            return sglang_page(self._cores, self._options.model, old=self._options.old)
        counted = {path: self._state.asked[kind] for path, kind in _KINDS.items()}
        return page(
            self._cores,
            self._options.model,
            started=self._started if is_single else None,
            cpu=time.process_time(),
            requests=counted,
            mfu=self._options.mfu,
            old=self._options.old,
        )

    def _control(self, word: str, query: dict[str, list[str]]) -> dict[str, Any]:
        rank = int(query["rank"][0]) if "rank" in query else None
        match word.strip("/"):
            case "freeze" | "thaw" as order:
                self._freeze(order == "freeze", rank)
            case "sleep" | "wake" as order:
                for core in self._cores:
                    core.asleep = order == "sleep"
            case "pause" | "resume" as order:
                self._state.paused = order == "pause"
                self._freeze(self._state.paused)
            case "stale":
                for core in self._cores:
                    core.drop_all()
            case "fail" | "full" | "mend" as order:
                self._state.status = {"fail": 500, "full": 429, "mend": 200}[order]
        return {
            "requests": dict(self._state.asked),
            "asked": self._state.asked.total(),
            "frozen": [core.frozen for core in self._cores],
            "landed": self._landed,
            "most_at_once": self._state.most_at_once,
            "steps": [core.shown.steps for core in self._cores],
        }


async def _ended_before_client(request: Request, reader: asyncio.StreamReader) -> bool:
    """Whether the request ended before its client went away."""
    ended = asyncio.create_task(request.ended.wait())
    gone = asyncio.create_task(reader.read(1))
    try:
        done, _ = await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        gone.cancel()
    return ended in done


def main() -> None:
    die_with_parent()
    given = options_of(Options, "python -m simulator.vllm", __doc__)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(SimVllm(Options(**given)).run())


if __name__ == "__main__":
    main()
