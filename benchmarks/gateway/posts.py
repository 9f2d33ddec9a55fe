"""Small JSON POSTs by wrk: requests a second, latencies, and the proxy's CPU for each."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway.programs import Program, cpu_seconds, found, on_load_core

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a" * 550}]})

_LUA = """\
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = {body}
done = function(summary, latency, requests)
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99),
    summary.errors.connect + summary.errors.read + summary.errors.write +
    summary.errors.status + summary.errors.timeout))
end
"""


@dataclass(frozen=True)
class Posts:
    """One run; latencies in ms, CPU of the proxy in µs a request."""

    what: str
    connections: int
    rps: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    errors: int


class Load:
    def __init__(self, folder: Path, seconds: float) -> None:
        self._script = folder / "post.lua"
        self._script.write_text(_LUA.format(body=f"[==[{BODY}]==]"))
        self._wrk = found("wrk")
        self._seconds = seconds

    def run(self, what: str, program: Program, path: str, connections: int) -> Posts:
        url = f"http://127.0.0.1:{program.port}{path}"
        before = cpu_seconds(program.pid)
        done = subprocess.run(
            [
                *(self._wrk, "-t1", f"-c{connections}", f"-d{self._seconds:g}s"),
                *("-s", str(self._script), url),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=self._seconds + 60,
            preexec_fn=on_load_core,
        )
        spent = cpu_seconds(program.pid) - before
        numbers = re.findall(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", done.stdout)
        requests, micros, p50, p99, errors = map(int, numbers[0])
        return Posts(
            what=what,
            connections=connections,
            rps=round(requests / micros * 1e6),
            p50_ms=p50 / 1000,
            p99_ms=p99 / 1000,
            cpu_us=round(spent / max(requests, 1) * 1e6, 1),
            errors=errors,
        )
