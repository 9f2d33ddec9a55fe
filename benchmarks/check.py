"""What one `steady check` costs beyond the start of Python: seconds and CPU seconds, and memory.

    .venv/bin/python -m benchmarks.check [--rounds 40] [--json]

Each round starts a bare Python, one that loads what is needed of the standard library, and a
check of a busy engine with a page of 54 KB; its wait of 100 ms is taken off. They alternate, and
the least and the median of each are told: on a machine that does other work too, go by the least.
Byte code is kept from one start to the next, as it is where pip installed steady.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_WAIT = 0.1
_STEADY = "from worker.entry import main; main()"
_STANDARD = "import argparse, asyncio, dataclasses, hashlib, json, ssl, urllib.parse, zlib"


@dataclass(frozen=True)
class Start:
    """Of one process: seconds from its start to its end, of CPU, and MiB at the most."""

    wall: float
    cpu: float
    memory: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="starts of each (40)")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with _engine() as url, tempfile.TemporaryDirectory() as kept:
        found = measure(url, max(chosen.rounds, 1), Path(kept))
    print(json.dumps(found) if chosen.json else _table(found))


def measure(url: str, rounds: int, byte_code: Path) -> dict[str, float]:
    """In seconds and MiB; ``beyond`` is what is over the start of Python, by least and median."""
    argv = {
        "python": ["-c", "pass"],
        "standard": ["-c", _STANDARD],
        "check": ["-c", _STEADY, "check", url, "--wait", f"{_WAIT * 1000:.0f}ms"],
    }
    kept = {**os.environ, "PYTHONPYCACHEPREFIX": str(byte_code), "PYTHONDONTWRITEBYTECODE": ""}
    for arguments in argv.values():
        _started([sys.executable, *arguments], kept)
    starts: Mapping[str, list[Start]] = {name: [] for name in argv}
    for _ in range(rounds):
        for name, arguments in argv.items():
            starts[name].append(_started([sys.executable, *arguments], kept))
    found: dict[str, float] = {}
    for kind, value in (("least", min), ("median", statistics.median)):
        walls = {name: value(each.wall for each in seen) for name, seen in starts.items()}
        cpus = {name: value(each.cpu for each in seen) for name, seen in starts.items()}
        found |= {
            f"{kind}_python": walls["python"],
            f"{kind}_beyond": walls["check"] - _WAIT - walls["python"],
            f"{kind}_cpu_beyond": cpus["check"] - cpus["python"],
            f"{kind}_cpu_beyond_of_standard_library": cpus["standard"] - cpus["python"],
        }
    found["memory_mib"] = max(each.memory for each in starts["check"])
    return {name: round(value, 3) for name, value in found.items()}


def _started(argv: list[str], environment: Mapping[str, str]) -> Start:
    began = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{argv} ended with exit code {process.returncode}")
    # A child begins with the memory of who forked it: this process is kept smaller than a check.
    return Start(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


@contextmanager
def _engine() -> Iterator[str]:
    """A busy engine, in a process of its own: each look at its page shows another step."""
    argv = [sys.executable, "-m", "benchmarks.check_engine"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _table(found: Mapping[str, float]) -> str:
    return "\n".join(f"{name:40} {value:8.3f}" for name, value in found.items())


if __name__ == "__main__":
    main()
