"""How fast ``steady gateway`` is beside nginx: requests a second, CPU a request, added latency.

    .venv/bin/python -m benchmarks.gateway [--quick] [--json]

Needs ``nginx`` and ``wrk`` (Debian has both). The proxy under test has a core of its own, and the
load and the upstream (another nginx) share a second one, so the upstream is never the limit of a
proxy in Python. Every figure is measured in this run; ratios are of the same run too.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PATH = "/v1/chat/completions"
_SERVERS = "/usr/local/sbin:/usr/sbin:/sbin"
_PROXY_CORE, _LOAD_CORE = 0, 1
_UP_WITHIN = 20.0
_TICK = os.sysconf("SC_CLK_TCK")

USAGE = {"prompt_tokens": 110, "total_tokens": 160, "completion_tokens": 50}
ANSWER = json.dumps(
    {"id": "x", "object": "chat.completion", "choices": ["a" * 200], "usage": USAGE}
)
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a" * 550}]})

NGINX = """\
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 300s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  {inner}
}}
"""
UPSTREAM = """
  server {{ listen 127.0.0.1:{port} backlog=1024; default_type application/json;
    location / {{ return 200 '{answer}'; }} }}
"""
PROXY = """
  upstream up {{ server 127.0.0.1:{up}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} backlog=1024;
    proxy_http_version 1.1; proxy_set_header Connection "";
    location / {{ proxy_pass http://up; }}
    location /mirrored/ {{ mirror /copy; proxy_pass http://up/; }}
    location = /copy {{ internal; proxy_pass http://up{path}; }} }}
"""
STEADY = """\
[servers.gpu-1]
source = {{ kind = "redis", key = "worker:1" }}
[gateway]
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
[endpoints.plain]
backends.gpu-1.url = "http://127.0.0.1:{up}"
[endpoints.mirrored]
path = "/mirrored"
backends.gpu-1.url = "http://127.0.0.1:{up}"
candidates.live = {{ url = "http://127.0.0.1:{up}", sample = 100 }}
[endpoints.dead]
path = "/dead"
backends.gpu-1.url = "http://127.0.0.1:{up}"
candidates.refused = {{ url = "http://127.0.0.1:{refused}", sample = 100 }}
candidates.stalled = {{ url = "http://127.0.0.1:{stalled}", sample = 100 }}
[endpoints.three]
path = "/three"
backends.gpu-1.url = "http://127.0.0.1:{up}"
candidates.live3 = {{ url = "http://127.0.0.1:{up}", sample = 100 }}
candidates.refused3 = {{ url = "http://127.0.0.1:{refused}", sample = 100 }}
candidates.stalled3 = {{ url = "http://127.0.0.1:{stalled}", sample = 100 }}
"""
LUA = """\
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
class Measured:
    """One run of wrk; latencies in ms, CPU of the proxy in µs a request (none without a proxy)."""

    what: str
    connections: int
    rps: float
    p50_ms: float
    p99_ms: float
    cpu_us: float | None
    errors: int


@dataclass(frozen=True)
class Program:
    process: subprocess.Popen[bytes]
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


@contextlib.contextmanager
def running(arguments: list[str], port: int, core: int, folder: Path) -> Iterator[Program]:
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        try:
            _wait_for(port, process, folder)
            yield Program(process, port)
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
    sys.exit(f"a server did not start: {(folder / f'{port}.log').read_text()[-2000:]}")


@contextlib.contextmanager
def nginx(inner: str, port: int, core: int, folder: Path) -> Iterator[Program]:
    own = folder / f"nginx-{port}"
    own.mkdir()
    file = own / "nginx.conf"
    file.write_text(NGINX.format(folder=own, inner=inner))
    arguments = [found("nginx"), "-p", str(own), "-c", str(file), "-e", str(own / "error.log")]
    with running(arguments, port, core, own) as program:
        yield program


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
    total = 0.0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ProcessLookupError):
            pid = int(entry.parent.name)
            fields = entry.read_text().rpartition(")")[2].split()
            if root in (pid, int(fields[1])):
                total += (int(fields[11]) + int(fields[12])) / _TICK
    return total


def peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


class Bench:
    def __init__(self, folder: Path) -> None:
        self.script = folder / "post.lua"
        self.script.write_text(LUA.format(body=f"[==[{BODY}]==]"))
        self.wrk = found("wrk")
        self.all: list[Measured] = []

    def run(
        self, what: str, program: Program, path: str, connections: int, seconds: int
    ) -> Measured:
        pid = program.process.pid
        before = cpu_seconds(pid)
        url = f"http://127.0.0.1:{program.port}{path}"
        arguments = ["-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(self.script), url]
        done = subprocess.run(
            [self.wrk, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=seconds + 30,
            preexec_fn=lambda: os.sched_setaffinity(0, {_LOAD_CORE}),
        )
        spent = cpu_seconds(pid) - before
        numbers = re.findall(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", done.stdout)
        requests, micros, p50, p99, errors = map(int, numbers[0])
        measured = Measured(
            what=what,
            connections=connections,
            rps=round(requests / micros * 1e6),
            p50_ms=p50 / 1000,
            p99_ms=p99 / 1000,
            cpu_us=None if what == "direct" else round(spent / max(requests, 1) * 1e6, 1),
            errors=errors,
        )
        self.all.append(measured)
        return measured


def measure(folder: Path, *, quick: bool) -> dict[str, object]:
    up, proxied, served, admin = (free_port() for _ in range(4))
    bench = Bench(folder)
    seconds, rounds = (2, 2) if quick else (5, 5)
    upstream = UPSTREAM.format(port=up, answer=ANSWER)
    proxy = PROXY.format(port=proxied, up=up, path=PATH)
    refused = free_port()
    steady = [str(Path(sys.executable).with_name("steady")), "gateway"]
    with (
        stalled() as stuck,
        nginx(upstream, up, _LOAD_CORE, folder) as direct,
        nginx(proxy, proxied, _PROXY_CORE, folder) as peer,
    ):
        text = STEADY.format(port=served, admin=admin, up=up, refused=refused, stalled=stuck)
        (folder / "fleet.toml").write_text(text)
        with running(steady, served, _PROXY_CORE, folder) as own:
            return _compared(bench, (direct, peer, own), seconds, rounds) | _of_mirrors(admin)


def _compared(
    bench: Bench, programs: tuple[Program, Program, Program], seconds: int, rounds: int
) -> dict[str, object]:
    direct, peer, own = programs
    one = [
        (
            bench.run("direct", direct, PATH, 1, seconds),
            bench.run("nginx", peer, PATH, 1, seconds),
            bench.run("steady", own, PATH, 1, seconds),
            bench.run("steady, mirrors dead", own, f"/dead{PATH}", 1, seconds),
        )
        for _ in range(rounds)
    ]
    many = [
        (
            bench.run("nginx", peer, PATH, connections, seconds),
            bench.run("steady", own, PATH, connections, seconds),
            bench.run("nginx, one mirror", peer, f"/mirrored{PATH}", connections, seconds),
            bench.run("steady, one mirror", own, f"/mirrored{PATH}", connections, seconds),
            bench.run("steady, three mirrors", own, f"/three{PATH}", connections, seconds),
        )
        for connections in (16, 128)
    ]
    middle = statistics.median

    def ratio(top: float | None, bottom: float | None) -> float:
        return round((top or 0) / bottom, 3) if bottom else 0.0

    return {
        "rps_to_nginx": ratio(middle(m[1].rps for m in many), middle(m[0].rps for m in many)),
        "cpu_to_nginx": ratio(
            middle(m[1].cpu_us or 0 for m in many), middle(m[0].cpu_us or 0 for m in many)
        ),
        "rps_with_mirror_to_nginx_mirror": ratio(
            middle(m[3].rps for m in many), middle(m[2].rps for m in many)
        ),
        "p50_dead_mirrors_to_none": ratio(
            middle(o[3].p50_ms for o in one), middle(o[2].p50_ms for o in one)
        ),
        "p99_dead_mirrors_to_none": ratio(
            middle(o[3].p99_ms for o in one), middle(o[2].p99_ms for o in one)
        ),
        "added_ms_p50": round(middle(o[2].p50_ms - o[0].p50_ms for o in one), 3),
        "added_ms_p99": round(middle(o[2].p99_ms - o[0].p99_ms for o in one), 3),
        "nginx_added_ms_p50": round(middle(o[1].p50_ms - o[0].p50_ms for o in one), 3),
        "peak_mib": round(peak_mib(own.process.pid), 1),
        "errors": sum(each.errors for each in bench.all),
        "runs": [asdict(each) for each in bench.all],
    }


def _of_mirrors(admin: int) -> dict[str, object]:
    """What became of the mirrored requests, from the gateway's own metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as page:
        shown = page.read().decode()
    line = r'mirror_results_total\{candidate="(.*?)",endpoint=".*?",result="(.*?)"\} ([0-9.e+]+)'
    counts = {f"{who}: {what}": float(n) for who, what, n in re.findall(line, shown) if float(n)}
    return {"mirrored": counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under 50 s")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        sys.exit("two cores are needed: one for the proxy, one for the load")
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="steady-bench-") as folder:
        result = measure(Path(folder), quick=given.quick)
    result |= {"seconds": round(time.monotonic() - began, 1), "load_before": round(load, 2)}
    if given.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{'what':24} {'conn':>5} {'req/s':>8} {'p50 ms':>8} {'p99 ms':>8} {'CPU µs':>7}")
    runs = result.pop("runs")
    assert isinstance(runs, list)
    for each in runs:
        cpu = each["cpu_us"] if each["cpu_us"] is not None else "-"
        print(
            f"{each['what']:24} {each['connections']:>5} {each['rps']:>8.0f} {each['p50_ms']:>8.3f}"
            f" {each['p99_ms']:>8.3f} {cpu:>7}"
        )
    for key, value in result.items():
        print(f"{key} = {value}")


if __name__ == "__main__":
    main()
