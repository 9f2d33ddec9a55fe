"""A real engine as a process group of its own, and what a test does to it."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from activities.engine_pages import EnginePages
from fleet.engine_sources import EngineSource
from fleet.policy import Policy
from fleet.readings import Reading
from tests.engines.installed import HOME
from tests.parts.ports import free_port
from worker.check_report import Report
from worker.checking import Checker

#: A tokenizer without merges: one character is one token.
LONG_PROMPT = "a" * 15_000


@dataclass
class Real:
    """``kind`` is that of the source; ``process`` leads a group that has all of its processes."""

    kind: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    _asking: list[asyncio.Task[int]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def source(self, **more: Any) -> EngineSource:
        return EngineSource.model_validate({"kind": self.kind, "url": self.url, **more})

    async def check(self, *, wait: str = "2s", deadline: str = "20s", **more: Any) -> Report:
        """Judge it by what `steady check` runs."""
        source = self.source(deadline=deadline, **{"timeout": "5s", **more})
        policy = Policy.model_validate({"confirm_wait": wait})
        return await Checker(source, policy, lambda _: None, ask=True).run()

    async def look(self) -> Reading:
        """As a sweep sees it."""
        return await EnginePages().look("real", self.source(), timedelta(seconds=10))

    async def page(self, save: str = "") -> str:
        async with httpx.AsyncClient(timeout=30) as client:
            text = (await client.get(f"{self.url}/metrics")).text
        if save:
            (HOME / "pages").mkdir(exist_ok=True)
            (HOME / "pages" / f"{save}.prom").write_text(text)
        return text

    async def json(self, path: str, key: str) -> Any:
        async with httpx.AsyncClient(timeout=30) as client:
            return (await client.get(f"{self.url}{path}")).json()[key]

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> int:
        async with httpx.AsyncClient(timeout=None) as client:
            return (await client.post(f"{self.url}{path}", json=body)).status_code

    def ask(self, prompt: str = "Hi", tokens: int = 6000) -> "asyncio.Task[int]":
        """A request as a user sends it, in the background."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        task = asyncio.create_task(self.post("/v1/completions", body))
        self._asking.append(task)
        return task

    async def working(self, begins: str) -> None:
        """Until a gauge whose name begins so is above zero."""
        async with asyncio.timeout(60):
            while not any(
                float(line.rpartition(" ")[2]) > 0
                for line in (await self.page()).splitlines()
                if line.startswith(begins)
            ):
                await asyncio.sleep(0.2)

    async def let_go(self) -> None:
        """Give up all requests."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        self._asking.clear()

    def pids(self, title: str = "") -> list[int]:
        """Its processes whose title begins so, in the order of their IDs."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                said = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if int(fields[2]) == self.process.pid and said.startswith(title):
                found.append(int(entry.name))
        return sorted(found)

    def signal(self, number: signal.Signals, title: str = "") -> None:
        pids = self.pids(title)
        assert pids, f"no process of it is called {title}"
        for pid in pids:
            os.kill(pid, number)

    def end(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        self.process.wait(30)


@contextmanager
def running(
    kind: str,
    argv: Sequence[str],
    *,
    within: float,
    port: int | None = None,
    variables: Mapping[str, str] | None = None,
    until: int = 200,
) -> Iterator[Real]:
    """Run it until the block ends; in ``argv`` PORT stands for its port.

    The block begins when its ``/health`` answers ``until``, within so many seconds.
    """
    port = port or free_port()
    HOME.mkdir(exist_ok=True)
    log = HOME / f"{kind}-{port}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [each.replace("PORT", str(port)) for each in argv],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, **(variables or {})},
            start_new_session=True,
        )
    real = Real(kind, port, process, log)
    try:
        _wait_until(real, until, within)
        yield real
    finally:
        real.end()


def _wait_until(real: Real, status: int, within: float) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if real.process.poll() is not None:
            break
        try:
            if httpx.get(f"{real.url}/health", timeout=5, trust_env=False).status_code == status:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.005)
    raise AssertionError(f"it did not answer {status}: {real.log.read_text()[-3000:]}")
