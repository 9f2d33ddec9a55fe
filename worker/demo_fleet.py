"""The demonstration fleet: four simulated workers, with timers of seconds in place of minutes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.config import Fleet
from simulator.heartbeat import Options
from simulator.host import SimHost

HEALTHY = "gpu-healthy"
FREEZES = "gpu-freezes"
RECOVERS = "gpu-recovers"
BROKEN = "gpu-broken"
NAMES = (HEALTHY, FREEZES, RECOVERS, BROKEN)

#: Seconds that each takes to load; the broken one must have frozen again before it is looked at.
_BOOT = {HEALTHY: 0.5, FREEZES: 2.0, RECOVERS: 0.5, BROKEN: 0.2}


@dataclass(frozen=True)
class Pace:
    """``budget`` restarts in ``window``; a sweep every ``sweep``."""

    sweep: str
    budget: int
    window: str


#: To its end within a minute.
BRISK = Pace(sweep="1s", budget=2, window="1h")
#: For ever, and slow enough to be read.
CALM = Pace(sweep="3s", budget=2, window="5m")


def simulated_workers(store: str) -> list[Options]:
    return [Options(url=store, key=f"worker:{name}", name=name, boot=_BOOT[name]) for name in NAMES]


def demo_fleet(host: SimHost, pace: Pace, webhook: Path | None = None) -> Fleet:
    """The fleet of the workers on ``host``; ``webhook`` is a file with the URL for alerts."""
    alerts = {"webhook": {"file": str(webhook)}} if webhook is not None else {}
    return Fleet.model_validate(
        {
            "fleet": {"name": "demonstration", "sweep_every": pace.sweep},
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
                    "budget": {"limit": pace.budget * len(NAMES), "window": pace.window},
                }
            },
            "servers": {name: _server(name) for name in NAMES},
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
        "budget": {"limit": pace.budget, "window": pace.window},
        "escalated_reads": ["2s", "5s", "10s"],
    }


def _server(name: str) -> dict[str, Any]:
    restart = {"kind": "docker", "host": "simulated", "name": name, "stop_timeout": "1s"}
    source = {"kind": "redis", "key": f"worker:{name}"}
    server = {"source": source, "restart": restart, "policy": _OVERRIDES.get(name, {})}
    return {**server, "drill": {}} if name == HEALTHY else server


#: The one that recovers by itself is given more time to; the broken one more to freeze again.
_OVERRIDES = {
    RECOVERS: {"persist_hung": "12s", "persist_error": "12s"},
    BROKEN: {"verify_after": "6s"},
}
