"""``steady check`` at a terminal, where it may say what it does meanwhile; and what it leaves."""

import asyncio
import os
import pty
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts.steady_check import STEADY, check
from tests.parts.vllm import sim_vllm
from worker import check_arguments

pytestmark = pytest.mark.anyio

_WITHIN = 60


class Terminal:
    """A program whose input and output are a terminal of 100 columns."""

    def __init__(self, *arguments: str) -> None:
        self.shown = ""
        self._pid, self._end = pty.fork()
        if self._pid == 0:
            environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
            os.execve(STEADY[0], [*STEADY, "check", *arguments], environment)

    def until(self, is_so: Callable[[str], bool]) -> None:
        """Read on until what was shown is so, or nothing more can come."""
        deadline = time.monotonic() + _WITHIN
        while not is_so(self.shown):
            assert time.monotonic() < deadline, self.shown
            try:
                self.shown += os.read(self._end, 65536).decode(errors="replace")
            except OSError:
                return

    def interrupt(self) -> None:
        os.kill(self._pid, signal.SIGINT)

    def ended(self) -> int:
        self.until(lambda _: False)
        os.close(self._end)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


async def test_it_says_what_it_waits_for_and_leaves_one_line() -> None:
    async with sim_vllm() as server:
        terminal = Terminal(server.url, "--wait", "200ms")
        assert await asyncio.to_thread(terminal.ended) == 0
    assert "waiting 200ms: does a witness of progress move?" in terminal.shown
    assert "asking for a short answer, at most 1m; its page is read meanwhile" in terminal.shown
    # Each takes the place of the one before, and the last of them is wiped off.
    kept = [part.rpartition("\x1b[K")[2].strip() for part in terminal.shown.split("\r\n")]
    assert [line.partition(":")[0] for line in kept if line] == ["idle"]


async def test_watch_draws_the_counters_and_what_moved() -> None:
    async with sim_vllm(load=2) as server:
        terminal = Terminal(server.url, "--watch", "--wait", "200ms")
        await asyncio.to_thread(terminal.until, lambda shown: "● moved" in shown)
        for word in ("busy", "witness", "step_tokens", "kv", "Ctrl-C ends"):
            assert word in terminal.shown
        await server.say("freeze")
        await asyncio.to_thread(terminal.until, lambda shown: "suspect" in shown)
        terminal.interrupt()
        assert await asyncio.to_thread(terminal.ended) == 130
        assert await server.asked() == 0


async def test_the_wait_lies_between_two_readings_and_the_deadline_bounds_the_request() -> None:
    typed = check_arguments.parse(["http://x"])
    assert (typed.wait, typed.deadline) == ("5s", "60s")
    async with sim_vllm(load=2) as server:
        await asyncio.sleep(0.3)
        said = (await check(server.url, "--wait", "400ms", "--json")).document
        assert (said["verdict"], said["readings"]) == ("busy", 2)
        assert 0.4 <= said["seconds"] < 5
        await server.say("freeze")
        said = (await check(server.url, "--wait", "400ms", "--deadline", "1s", "--json")).document
        assert said["verdict"] == "stuck"
        assert 2 * 0.4 + 1 <= said["seconds"] < 60


async def test_it_needs_no_home_and_leaves_nothing(tmp_path: Path) -> None:
    """No fleet file, no state: it runs where nothing can be written, and knows no Temporal."""
    home, root = tmp_path / "home", Path(__file__).parents[2]
    home.mkdir()
    env = {"HOME": str(home), "PYTHONPATH": str(root), "TMPDIR": str(home)}
    env |= {"TEMPORAL_ADDRESS": "127.0.0.1:1", "STEADY_STATE_DIR": str(home / "state")}
    async with sim_vllm(load=2) as server:
        await asyncio.sleep(0.3)
        ended = await check(server.url, "--wait", "200ms", env=env)
        assert (ended.code, ended.err) == (0, "")
        assert list(home.iterdir()) == []
        assert ended.out.startswith("busy: a witness moved: 2 running, 0 waiting, step ")
        assert ended.out.endswith(" s, no request sent]\n")
