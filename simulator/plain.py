"""Simulated model servers without vLLM's counters: a plain one that speaks OpenAI's language, one
like Ollama, one like llama.cpp's ``llama-server`` and one like its router.

``python -m simulator.plain --name a --port 8000 --kind ollama``. SIGUSR1: work is no longer
answered, and pages are. SIGCONT: it is again. SIGTERM: end. By ``POST /sim/WORD``: ``freeze``,
``thaw``, ``load``, ``unload``, ``sleep``, ``full`` (503, overloaded), ``boot`` (503, loading),
``fail`` (500), ``mend``. ``GET /sim`` has how many requests for work came in by path, and how many
loads they caused.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from simulator.parent import die_with_parent
from simulator.wire import ASKED, answer, as_json, options_of, receive, say

_HEAD_WITHIN = 10.0
_SAYS = {
    "full": (503, {"error": {"message": "the server is overloaded"}}),
    "boot": (503, {"error": {"message": "Loading model", "code": 503}}),
    "fail": (500, {"error": {"message": "CUDA error: simulated"}}),
}


@dataclass(frozen=True)
class Options:
    """``kind`` is ``openai``, ``ollama``, ``llamacpp`` or ``router``. ``bare`` serves no metrics.

    ``working`` says that a request of somebody else's is always in flight, and moves.
    """

    PROGRAM: ClassVar[str] = __file__
    FREEZES_WHOLE: ClassVar[bool] = False

    name: str
    port: int
    kind: str = "openai"
    model: str = "tiny"
    boot: float = 0.5
    step: float = 0.02
    bare: bool = False
    working: bool = False
    doomed: bool = False


@dataclass
class _State:
    says: str = ""
    frozen: bool = False
    loaded: bool = True
    sleeping: bool = False
    loads: int = 0
    decodes: int = 0
    asked: Counter[str] = field(default_factory=Counter)


class Plain:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._state = _State(frozen=options.doomed)
        self._thawed = asyncio.Event()
        self._freeze(options.doomed)

    async def run(self) -> None:
        """Load with the port closed, then serve until SIGTERM."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        loop.add_signal_handler(signal.SIGUSR1, self._freeze, True)
        loop.add_signal_handler(signal.SIGCONT, self._freeze, False)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), self._options.boot)
        if ended.is_set():
            return
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._options.port)
        stepping = asyncio.create_task(self._work())
        parent = os.getppid()
        while not ended.is_set() and os.getppid() == parent:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 1)
        stepping.cancel()
        server.close()

    def _freeze(self, frozen: bool) -> None:
        self._state.frozen = frozen
        self._thawed.clear() if frozen else self._thawed.set()

    async def _work(self) -> None:
        while self._options.working:
            await asyncio.sleep(self._options.step)
            await self._thawed.wait()
            self._state.decodes += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_HEAD_WITHIN):
                method, target, _, body = await receive(reader)
            writer.write(answer(*await self._answer(method, target, body)))
            await writer.drain()
        writer.close()

    async def _answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes, str]:
        url = urlsplit(target)
        if url.path == "/sim" or url.path.startswith("/sim/"):
            return as_json(200, self._control(url.path.removeprefix("/sim").strip("/")))
        if method == "POST":
            return await self._generate(url.path, parse_qs(url.query), json.loads(body))
        if self._options.kind in ("llamacpp", "router") and url.path == "/metrics":
            return self._metrics(parse_qs(url.query))
        pages = {**_COMMON, **_PAGES[self._options.kind]}
        if url.path not in pages:
            return as_json(404, {"error": "not found"})
        return as_json(200, pages[url.path](self))

    async def _generate(
        self, path: str, query: dict[str, list[str]], asked: dict[str, Any]
    ) -> tuple[int, bytes, str]:
        self._state.asked[path] += 1
        say(f"{ASKED} {path}")
        if self._state.says:
            return as_json(*_SAYS[self._state.says])
        if not self._state.loaded or self._state.sleeping:
            if query.get("autoload") == ["false"]:
                return as_json(400, {"error": {"message": "model is not loaded"}})
            self._state.loads += 1
            self._state.loaded, self._state.sleeping = True, False
        await self._thawed.wait()
        await asyncio.sleep(self._options.step)
        self._state.decodes += 1
        return as_json(200, {"model": asked.get("model"), "choices": [{"text": ""}]})

    def _metrics(self, query: dict[str, list[str]]) -> tuple[int, bytes, str]:
        if self._options.bare:
            said = {"message": "This server does not support metrics endpoint.", "code": 501}
            return as_json(501, {"error": said})
        if self._options.kind == "router" and "model" not in query:
            return as_json(400, {"error": {"message": "model name is missing from the request"}})
        lines = [
            f"llamacpp:requests_processing {int(self._options.working)}",
            "llamacpp:requests_deferred 0",
            f"llamacpp:n_decode_total {self._state.decodes}",
        ]
        return 200, "\n".join([*lines, ""]).encode(), "text/plain; version=0.0.4"

    def models(self) -> Any:
        return {"data": [{"id": self._options.model}]}

    def routed(self) -> Any:
        status = {"value": "loaded" if self._state.loaded else "unloaded"}
        return {"data": [{"id": self._options.model, "status": status}]}

    def loaded(self) -> Any:
        row = {"name": f"{self._options.model}:latest", "context_length": 2048}
        return {"models": [row] if self._state.loaded else []}

    def props(self) -> Any:
        return {"is_sleeping": self._state.sleeping}

    def _control(self, word: str) -> dict[str, Any]:
        state = self._state
        match word:
            case "freeze" | "thaw":
                self._freeze(word == "freeze")
            case "load" | "unload":
                state.loaded = word == "load"
            case "sleep":
                state.sleeping = True
            case "full" | "boot" | "fail" | "mend":
                state.says = word if word in _SAYS else ""
        return {
            "requests": dict(state.asked),
            "asked": state.asked.total(),
            "loads": state.loads,
            "decodes": state.decodes,
        }


_COMMON: dict[str, Callable[[Plain], Any]] = {"/health": lambda _: {"status": "ok"}}
_PAGES: dict[str, dict[str, Callable[[Plain], Any]]] = {
    "openai": {"/v1/models": Plain.models},
    "ollama": {
        "/v1/models": Plain.models,
        "/api/ps": Plain.loaded,
        "/api/version": lambda _: {"version": "0.30.0"},
    },
    "llamacpp": {"/v1/models": Plain.models, "/props": Plain.props},
    "router": {"/v1/models": Plain.routed},
}


def main() -> None:
    die_with_parent()
    given = options_of(Options, "python -m simulator.plain", __doc__)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Plain(Options(**given)).run())


if __name__ == "__main__":
    main()
