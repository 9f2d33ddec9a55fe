"""Programs that are measured: started on a core of their own, and watched from outside."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROXY_CORE, LOAD_CORE = 0, 1

_SERVERS = "/usr/local/sbin:/usr/sbin:/sbin"
#: On a busy machine LiteLLM takes minutes to load all of its providers.
_UP_WITHIN = 600.0


@dataclass(frozen=True)
class Program:
    pid: int
    port: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def found(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SERVERS}")
    if path is None:
        sys.exit(f"there is no {name}: apt install {name}")
    return path


def on_load_core() -> None:
    """For a process that makes load, before it begins."""
    os.sched_setaffinity(0, {LOAD_CORE})


@contextlib.contextmanager
def running(
    arguments: list[str],
    port: int,
    core: int,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """A program that serves at the port before long."""
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        try:
            _wait_for(port, process, folder)
            yield Program(process.pid, port)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + _UP_WITHIN
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    said = (folder / f"{port}.log").read_text()[-2000:]
    sys.exit(f"{process.args!r} did not start: {said}")


@contextlib.contextmanager
def stalled() -> Iterator[int]:
    """A port on which connections are accepted, and nothing is ever read or answered."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(server.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
    for each in kept:
        each.close()


def cpu_seconds(root: int) -> float:
    """CPU time of a process and its children, as far as they still run."""
    total = 0
    for pid in _family(root):
        for times in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(times.read_text().split()[0])
    return total / 1e9


def memory_kib(root: int) -> int:
    """What a process and its children have in memory now."""
    return sum(_status(pid, "VmRSS") for pid in _family(root))


def peak_mib(pid: int) -> float:
    """What one process had in memory at most."""
    return _status(pid, "VmHWM") / 1024


def _status(pid: int, what: str) -> int:
    with contextlib.suppress(OSError):
        found = re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) if found is not None else 0
    return 0


def _family(root: int) -> list[int]:
    members = [root]
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == root:
                members.append(int(entry.parent.name))
    return members
