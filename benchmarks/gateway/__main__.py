"""How fast ``steady gateway`` is beside nginx, Starlette with httpx, and LiteLLM's proxy.

    .venv/bin/python -m benchmarks.gateway [--quick] [--json]
        [--starlette PYTHON] [--litellm PYTHON]

Needs ``nginx`` and ``wrk`` (Debian has both). The proxy under test has a core of its own, and the
load and the upstream share a second one, so the upstream is never the limit of a proxy in Python.
Every figure is measured in this run; ratios are of the same run too.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gateway import peers
from benchmarks.gateway.measuring import (
    DIRECT,
    FULL,
    LITELLM,
    NGINX,
    QUICK,
    STARLETTE,
    STEADY,
    Measuring,
)
from benchmarks.gateway.programs import free_port, stalled
from benchmarks.gateway.report import figures, shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under 50 s, without Starlette")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--starlette", type=Path, help="a Python with starlette, uvicorn and httpx (else made)"
    )
    parser.add_argument("--litellm", type=Path, help="a Python with litellm[proxy]")
    given = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        sys.exit("two cores are needed: one for the proxy, one for the load")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # and all that was started
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="steady-bench-") as folder:
        measuring = measured(Path(folder), given)
    result = figures(measuring) | {
        "seconds": round(time.monotonic() - began, 1),
        "load_before": round(load, 2),
    }
    print(json.dumps(result, indent=2) if given.json else shown(measuring, result))


def measured(folder: Path, given: argparse.Namespace) -> Measuring:
    measuring = Measuring(folder, QUICK if given.quick else FULL)
    starlette = given.starlette
    if starlette is None and not given.quick:
        starlette = peers.starlette_python(folder)
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(peers.upstream(folder))
        streaming = stack.enter_context(peers.streaming_upstream(folder))
        to = peers.Upstreams(
            up=upstream.port,
            streams=streaming.port,
            refused=free_port(),
            stalled=stack.enter_context(stalled()),
        )
        programs = {DIRECT: upstream, NGINX: stack.enter_context(peers.nginx_proxy(to, folder))}
        programs[STEADY], admin = stack.enter_context(peers.steady(to, folder))
        if starlette is not None:
            own = peers.starlette(starlette.absolute(), to, folder)
            programs[STARLETTE] = stack.enter_context(own)
        if given.litellm is not None:
            own = peers.litellm(given.litellm.absolute(), to, folder)
            programs[LITELLM] = stack.enter_context(own)
        measuring.run(programs, streaming, admin)
    return measuring


if __name__ == "__main__":
    main()
