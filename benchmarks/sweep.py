"""What a sweep over many vLLM servers costs: CPU seconds of the process that reads and judges.

    .venv/bin/python -m benchmarks.sweep [--engines 1000] [--json]

The servers are sockets of another process, one port each, and every page is 54 KB. Measured is what
the worker does for them: the activity that reads the shards over real HTTP, its result as a payload
out and in, and the judgement of it against the last sweep. Temporal itself is not in it.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import ActivityEnvironment

from activities.readings import ReadingActivities
from benchmarks.vllm_pages import vllm_page
from fleet.config import EngineSource, ServerSpec
from fleet.contracts.fleet import PresentPolicy, ShardSlice
from fleet.contracts.sweep import SweepReadings, SweepRequest, SweepResult
from fleet.policy import Policy
from fleet.sharding import members, shard_count
from fleet.sweep import judge_shard

_SHARD_SIZE = 200
_SWEEPS = 3
_MOST_ENGINES = 4000


class Applied:
    """A fleet of these servers, as the workflow that holds it would answer."""

    def __init__(self, ports: list[int]) -> None:
        named = {f"gpu-{port}": port for port in ports}
        self.shards = shard_count(len(ports), _SHARD_SIZE)
        self._slices = [
            ShardSlice(
                version=1,
                interval=timedelta(seconds=30),
                specs=[
                    _spec(name, named[name]) for name in members(list(named), shard, self.shards)
                ],
            )
            for shard in range(self.shards)
        ]

    async def present(self, server: str) -> PresentPolicy:
        raise NotImplementedError(server)

    async def shard(self, number: int) -> ShardSlice:
        return self._slices[number]


def _spec(name: str, port: int) -> ServerSpec:
    source = EngineSource(url=f"http://127.0.0.1:{port}")
    return ServerSpec(
        name=name, source=source, store=None, restart=None, host=None, policy=Policy()
    )


class Sweeps:
    def __init__(self, applied: Applied) -> None:
        self._applied = applied
        self._activities = ReadingActivities(applied, None)
        self._last: dict[int, SweepResult] = {}
        self.verdicts: dict[str, int] = {}

    async def sweep(self) -> None:
        """One after the other, as a worker on few cores comes to them."""
        self.verdicts = {}
        for shard in range(self._applied.shards):
            seen = await ActivityEnvironment().run(
                self._activities.read_shard, SweepRequest(shard=shard)
            )
            seen = await _carried(seen)
            judgement = judge_shard(shard, datetime.now(UTC), "run", seen, self._last.get(shard))
            self._last[shard] = judgement.result
            await pydantic_data_converter.encode([judgement.result])
            for memory in judgement.result.servers.values():
                word = str(memory.verdict)
                self.verdicts[word] = self.verdicts.get(word, 0) + 1

    async def close(self) -> None:
        await self._activities.close()


async def _carried(seen: SweepReadings) -> SweepReadings:
    """From the activity to the workflow, as a payload."""
    payloads = await pydantic_data_converter.encode([seen])
    carried: list[Any] = await pydantic_data_converter.decode(payloads, [SweepReadings])
    read: SweepReadings = carried[0]
    return read


async def measure(ports: list[int]) -> dict[str, Any]:
    sweeps = Sweeps(Applied(ports))
    runs: list[dict[str, Any]] = []
    try:
        for _ in range(_SWEEPS):
            began, before = time.monotonic(), _cpu()
            await sweeps.sweep()
            runs.append(
                {
                    "cpu_seconds": round(_cpu() - before, 2),
                    "seconds": round(time.monotonic() - began, 2),
                    "verdicts": sweeps.verdicts,
                }
            )
    finally:
        await sweeps.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    # The first one imports and connects what is kept; every other sweep of a worker is a later one.
    worst = max(run["cpu_seconds"] for run in runs[1:])
    return {
        "engines": len(ports),
        "cpu_seconds": worst,
        "cpu_ms_an_engine": round(worst / len(ports) * 1000, 2),
        "peak_mib": round(peak, 1),
        "sweeps": runs,
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def served(engines: int) -> Iterator[list[int]]:
    command = [sys.executable, "-m", "benchmarks.sweep", "--serve", str(engines)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline() or "[]")
    finally:
        process.kill()
        process.wait()


async def serve(engines: int) -> NoReturn:
    """Listen on so many ports, print them, and answer each GET with the next page."""
    answers = [_answer(vllm_page(1, turn=turn)) for turn in range(_SWEEPS)]

    async def one(turns: Iterator[bytes]) -> int:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
            writer.write(next(turns, answers[-1]))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    ports = [await one(iter(answers)) for _ in range(engines)]
    print(json.dumps(ports), flush=True)
    # Until whoever started this closes its end, or ends it.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    sys.exit()


def _answer(page: bytes) -> bytes:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode() + page


def _engines(text: str) -> int:
    count = int(text)
    if not 1 <= count <= _MOST_ENGINES:
        raise argparse.ArgumentTypeError(f"from 1 to {_MOST_ENGINES}")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engines", type=_engines, default=1000)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--serve", type=_engines, help=argparse.SUPPRESS)
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 3 * _MOST_ENGINES)), hard))
    if given.serve:
        asyncio.run(serve(given.serve))
    with served(given.engines) as ports:
        if len(ports) != given.engines:
            sys.exit("the servers did not start")
        result = asyncio.run(measure(ports))
    if given.json:
        print(json.dumps(result, indent=2))
        return
    for run in result.pop("sweeps"):
        print(f"{run['cpu_seconds']:>6} s of CPU, {run['seconds']:>6} s: {run['verdicts']}")
    for key, value in result.items():
        print(f"{key} = {value}")


if __name__ == "__main__":
    main()
