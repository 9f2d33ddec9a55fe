"""Server programs as children of ours: started in a session of their own, stopped for certain.

A PID file says what a run started, so that the next one can end what a killed run left behind.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from worker import tether
from worker.errors import EndedError, SetupError

_STOP_WITHIN = 10.0
_TAIL_BYTES = 2000
_TAIL_LINES = 10
_FOR_US_ALONE = 0o077
_LOG_LIMIT = 20_000_000


@dataclass(frozen=True)
class Program:
    """``variables`` are set in its environment; told to stop, it has ``stop_within`` seconds."""

    name: str
    argv: Sequence[str]
    log: Path
    pid_file: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    stop_within: float = _STOP_WITHIN


@dataclass(frozen=True)
class Child:
    """A running program. What earlier runs logged ends at ``logged``."""

    program: Program
    process: asyncio.subprocess.Process
    logged: int

    def check(self) -> None:
        """Raise EndedError, with the end of what it logged, where the program has ended."""
        if self.process.returncode is not None:
            said = _tail(self.program.log, self.logged)
            end = f"The end of {self.program.log}:\n{said}" if said else "It logged nothing."
            raise EndedError(f"{self.program.name} ended {_manner(self.process.returncode)}. {end}")


@asynccontextmanager
async def running(program: Program) -> AsyncIterator[Child]:
    """Run ``program`` for the length of the block, which is cancelled where it ends too early.

    Raises:
        EndedError: it ended while the block was running.
    """
    child = await _start(program)
    process = child.process
    watch = _watch(process)
    try:
        program.pid_file.write_text(json.dumps({"pid": process.pid}))
        yield child
    except asyncio.CancelledError:
        # As asyncio.timeout does it: our own cancellation is turned into what it stands for.
        if watch.done() and not watch.cancelled() and _uncancelled():
            child.check()
        raise
    finally:
        watch.cancel()
        await _stop(process, program.stop_within)
        program.pid_file.unlink(missing_ok=True)


async def _start(program: Program) -> Child:
    program.log.parent.mkdir(parents=True, exist_ok=True)
    with program.log.open("ab") as log:
        if log.tell() > _LOG_LIMIT:
            log.truncate(0)
        before = os.fstat(log.fileno()).st_size
        process = await asyncio.create_subprocess_exec(
            *_tethered(program.argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **program.variables},
            umask=_FOR_US_ALONE,
        )
    return Child(program, process, before)


def _watch(process: asyncio.subprocess.Process) -> asyncio.Task[None]:
    """Cancel the present task when the process ends."""
    owner = asyncio.current_task()

    async def watch() -> None:
        await process.wait()
        if owner is not None:
            owner.cancel()

    return asyncio.create_task(watch())


def _uncancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.uncancel() == 0


def _tethered(argv: Sequence[str]) -> list[str]:
    return [sys.executable, "-IS", tether.__file__, str(os.getpid()), *argv]


async def _stop(process: asyncio.subprocess.Process, within: float) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), within)
    except TimeoutError:
        process.kill()
        await process.wait()


async def end_orphan(name: str, pid_file: Path, mark: str) -> None:
    """End the program that a killed run left, if the PID in its file still is that program's.

    Raises:
        SetupError: it lives on after SIGKILL.
    """
    pid = _left_behind(pid_file, mark)
    if pid is None:
        return
    for order in (signal.SIGTERM, signal.SIGKILL):
        _send(pid, order)
        for _ in range(int(_STOP_WITHIN / 0.1)):
            if mark not in command_line(pid):
                return
            await asyncio.sleep(0.1)
    raise SetupError(f"{name} of an earlier run (PID {pid}) can't be ended: end it by hand")


def _left_behind(pid_file: Path, mark: str) -> int | None:
    try:
        pid = int(json.loads(pid_file.read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if mark in command_line(pid) else None


def _send(pid: int, order: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, order)


def command_line(pid: int) -> str:
    """The command line of a process; empty where there is none of that PID."""
    proc = Path("/proc")
    if (proc / "self").exists():
        try:
            return (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return ""
    seen = subprocess.run(  # noqa: S603
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        timeout=5,
    )
    return seen.stdout.strip()


def _manner(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"


def _tail(log: Path, begin: int) -> str:
    try:
        said = log.read_bytes()[begin:][-_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(said.strip().splitlines()[-_TAIL_LINES:])
