"""The demonstration fleet: simulated servers, with timers of seconds in place of minutes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.config import Fleet
from simulator import heartbeat, vllm
from simulator.engine import Options
from simulator.host import SimHost
from worker.state import port_for

HEALTHY = "gpu-healthy"
FREEZES = "gpu-freezes"
RECOVERS = "gpu-recovers"
BROKEN = "gpu-broken"
BROKEN_BUDGET = 1
WORKERS = (HEALTHY, FREEZES, RECOVERS, BROKEN)

BUSY_ENGINE = "vllm-busy"
FREEZING_ENGINE = "vllm-freezes"
IDLE_ENGINE = "vllm-idle"
ENGINES = (BUSY_ENGINE, FREEZING_ENGINE, IDLE_ENGINE)

NAMES = (*WORKERS, *ENGINES)

#: Seconds that each takes to load; the broken one must have frozen again before it is looked at.
_BOOT = {HEALTHY: 0.5, FREEZES: 2.0, RECOVERS: 0.5, BROKEN: 0.2}

#: Requests in flight, and slots. All of the busy one's are taken for ten minutes, and whoever asks
#: it waits for as long: the server that a watchdog which waits 45 s for an answer restarts all day.
_LOAD = {BUSY_ENGINE: (4, 4), FREEZING_ENGINE: (2, 4), IDLE_ENGINE: (0, 4)}
_STEP, _LENGTH = 0.1, 6000


@dataclass(frozen=True)
class Pace:
    """``budget`` restarts in ``window``; a sweep every ``sweep``, a probe every ``probe``."""

    sweep: str
    probe: str
    budget: int
    window: str


#: To its end within a minute. A sweep that comes later than 2.5 intervals confirms nothing, so with
#: shorter ones a busy machine would find nothing.
BRISK = Pace(sweep="2s", probe="3s", budget=2, window="1h")
#: For ever, and slow enough to be read.
CALM = Pace(sweep="3s", probe="15s", budget=2, window="5m")


def simulated_servers(store: str, ports: Mapping[str, int]) -> list[Options]:
    workers: list[Options] = [
        heartbeat.Options(url=store, key=f"worker:{name}", name=name, boot=_BOOT[name])
        for name in WORKERS
    ]
    return [*workers, *(_simulated(name, port) for name, port in ports.items())]


def _simulated(name: str, port: int) -> vllm.Options:
    load, slots = _LOAD[name]
    return vllm.Options(
        name=name, port=port, boot=0.5, step=_STEP, load=load, slots=slots, length=_LENGTH
    )


def engine_ports(state: Path) -> dict[str, int]:
    """A free port of this machine for each engine; those of the last run, where they are free."""
    return {name: port_for(state, f"simulated_{name}", None) for name in ENGINES}


def demo_fleet(
    host: SimHost, pace: Pace, webhook: Path | None = None, ports: Mapping[str, int] | None = None
) -> Fleet:
    """The fleet of the servers on ``host``; ``webhook`` is a file with the URL for alerts, and
    ``ports`` are those of the engines that are there.
    """
    servers = {name: _worker(name) for name in WORKERS}
    servers |= {name: _engine(name, port) for name, port in (ports or {}).items()}
    alerts = {"webhook": {"file": str(webhook)}} if webhook is not None else {}
    return Fleet.model_validate(
        {
            "fleet": {
                "name": "demonstration",
                "sweep_every": pace.sweep,
                "probe_every": pace.probe,
            },
            "alerts": alerts,
            # All that freeze belong to the story, and none waits for another.
            "storm": {"restarts_at_once": len(NAMES), "at_least": len(NAMES)},
            "defaults": _defaults(pace),
            "hosts": {
                "simulated": {
                    "address": host.address,
                    "port": host.port,
                    "user": host.user,
                    "key": str(host.key),
                    "known_hosts": str(host.known_hosts),
                    # All its servers are on this one machine, and each may use its own up.
                    "budget": {
                        "limit": pace.budget * (len(servers) - 1) + BROKEN_BUDGET,
                        "window": pace.window,
                    },
                }
            },
            "servers": servers,
        }
    )


def _defaults(pace: Pace) -> dict[str, Any]:
    return {
        "stale_after": "2s",
        "persist_hung": "3s",
        "persist_error": "10s",
        "reading_max_age": "10s",
        "cooldown": "4s",
        "verify_after": "5s",
        "load_limit": "60s",
        "confirm_wait": "700ms",
        "budget": {"limit": pace.budget, "window": pace.window},
        "escalated_reads": ["2s", "5s", "10s"],
    }


def _worker(name: str) -> dict[str, Any]:
    source = {"kind": "redis", "key": f"worker:{name}"}
    server = {"source": source, "restart": _restart(name), "policy": _OVERRIDES.get(name, {})}
    return {**server, "drill": {}} if name == HEALTHY else server


def _engine(name: str, port: int) -> dict[str, Any]:
    source = {"kind": "vllm", "url": f"http://127.0.0.1:{port}", "deadline": "2s"}
    server = {"source": source, "restart": _restart(name)}
    return {**server, "drill": _engine_drill(name)} if name == FREEZING_ENGINE else server


def _engine_drill(name: str) -> dict[str, Any]:
    """A model server's engine hangs, and its pages go on: other signals than the usual ones."""
    return {
        word: ["docker", "kill", f"--signal={signal}", name]
        for word, signal in (("freeze", "USR1"), ("thaw", "CONT"))
    }


def _restart(name: str) -> dict[str, Any]:
    return {"kind": "docker", "host": "simulated", "name": name, "stop_timeout": "1s"}


#: The one that recovers by itself is given more time to; the broken one more to freeze again.
_OVERRIDES = {
    RECOVERS: {"persist_hung": "12s", "persist_error": "12s"},
    # One restart that did not help is enough to tell its story; each more takes 12 s.
    BROKEN: {"verify_after": "6s", "budget": {"limit": BROKEN_BUDGET}},
}
