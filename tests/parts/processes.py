"""Commands of steady as processes of their own, and what they leave behind."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class Command:
    """A running command whose output is read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._new: queue.Queue[str] = queue.Queue()
        if process.stdout is not None:
            threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._new.put(line.rstrip())

    def until(self, text: str, within: float = 60) -> str:
        """The first line with ``text`` from here on; fails with all lines where none comes."""
        end = time.monotonic() + within
        while (left := end - time.monotonic()) > 0:
            try:
                line = self._new.get(timeout=left)
            except queue.Empty:
                break
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} did not come: " + "\n".join(self.lines))


@contextmanager
def command(
    script: str, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> Iterator[Command]:
    """Run a Python ``script`` in ``folder`` for the length of the block.

    Of variables for Temporal and steady it has the given ones only.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TEMPORAL_", "STEADY_"))
    }
    own = {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env={**inherited, **own, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Command(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def left_behind(folder: Path) -> list[str]:
    """Command lines of the processes that have to do with ``folder``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found
