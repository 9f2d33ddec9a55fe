"""Streams of single tokens: how long a chunk is on its way, and what it costs."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.gateway.peers import HERE
from benchmarks.gateway.programs import Program, cpu_seconds, memory_kib, on_load_core
from benchmarks.gateway.stream_upstream import RATE

_ENDS_WITHIN = 60.0


@dataclass(frozen=True)
class Streams:
    """One run; ``share`` is how much of what the upstream is to send arrived. CPU of the proxy in
    µs a chunk, and its memory for each stream. ``missing`` are streams that did
    not begin in time, or ended.
    """

    what: str
    streams: int
    share: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    kib_a_stream: float
    missing: int


@dataclass(frozen=True)
class Source:
    """Where streams come from: a proxy, or the upstream itself."""

    what: str
    program: Program
    path: str
    model: str = "m"


def run_streams(source: Source, streams: int, seconds: float, idle_kib: int) -> Streams:
    """``idle_kib`` is what the program took before its first stream: what is freed in between it
    rarely gives back, so that only of many streams the memory for each says something.
    """
    program = source.program
    arguments = [str(program.port), source.path, source.model, str(streams), f"{seconds:g}"]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gateway.stream_client", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE["PYTHONPATH"],
        preexec_fn=on_load_core,
    ) as client:
        try:
            assert client.stdout is not None
            if client.stdout.readline() != "flowing\n":
                sys.exit(f"no streams came from {source.what}")
            before = cpu_seconds(program.pid)
            seen: dict[str, Any] = json.loads(client.stdout.readline())
            spent = cpu_seconds(program.pid) - before
            memory = memory_kib(program.pid) - idle_kib
            client.communicate(timeout=_ENDS_WITHIN)
        finally:
            client.kill()
    time.sleep(0.3)  # until the proxy has seen them go
    chunks = seen["chunks"]
    return Streams(
        what=source.what,
        streams=streams,
        share=round(chunks / (streams * RATE * seconds), 3),
        p50_ms=seen["p50_ms"],
        p99_ms=seen["p99_ms"],
        cpu_us=round(spent / max(chunks, 1) * 1e6, 1),
        kib_a_stream=round(memory / streams, 1),
        missing=streams - seen["flowing"],
    )
