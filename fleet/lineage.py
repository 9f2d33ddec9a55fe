"""Which ledgers a fleet needs, and whose takes go on under another name.

A server is known by its name, and what is restarted by its target: the container, unit or command
on a machine. Who takes over the target of another name takes over what was restarted of it as well,
or renaming a server would fill its budget up again.
"""

import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime

from fleet.actions import machine, target
from fleet.config import Fleet
from fleet.contracts.fleet import Departure, FleetState, FoundingRequest
from fleet.ledger import MEMORY

#: A fleet has no more servers than this; of more departures within 8 days the oldest are forgotten.
MOST_DEPARTURES = 2000
MOST_MACHINES = 4000

_DIGEST = 16


def founding(state: FleetState, after: Fleet, now: datetime) -> FoundingRequest:
    """The guards that have to be there before ``after`` is in force."""
    before = state.fleet
    old = set(before.servers) if before is not None else set()
    added = sorted(set(after.servers) - old)
    recent = {each.server for each in _recent(state.departed, now)}
    founded = set(state.machines)
    return FoundingRequest(
        servers=[name for name in added if name not in recent],
        returning=[name for name in added if name in recent],
        heirs=_heirs(state, after, now),
        machines={
            name: sorted(servers & old)
            for name, servers in sorted(machines(after).items())
            if name not in founded
        },
    )


def machines(fleet: Fleet) -> dict[str, set[str]]:
    """The machines on which a server is restarted, each with its servers."""
    found: dict[str, set[str]] = {}
    for name, server in fleet.servers.items():
        if server.restart is not None:
            found.setdefault(machine(fleet.hosts[server.restart.host]), set()).add(name)
    return found


def departed(state: FleetState, after: Fleet, now: datetime) -> list[Departure]:
    """Who left the fleet, or its target, lately: in time, and bounded."""
    still = set(after.servers)
    held = {(name, what) for what, name in _targets(after).items()}
    before = _targets(state.fleet)
    left = [
        Departure(server=name, target=what, at=now)
        for what, name in before.items()
        if (name, what) not in held
    ]
    gone = set(state.fleet.servers) - still if state.fleet is not None else set()
    without_target = gone - set(before.values())
    left += [Departure(server=name, target="", at=now) for name in sorted(without_target)]
    anew = {(each.server, each.target) for each in left}
    kept = [e for e in _recent(state.departed, now) if (e.server, e.target) not in anew]
    return sorted([*kept, *left], key=lambda each: each.at)[-MOST_DEPARTURES:]


def _heirs(state: FleetState, after: Fleet, now: datetime) -> dict[str, list[str]]:
    """The servers of ``after`` that restart what others did, each with those others' names."""
    before = _targets(state.fleet)
    found: dict[str, list[str]] = {}
    for what, name in _targets(after).items():
        if before.get(what) == name:
            continue
        others = {each.server for each in _recent(state.departed, now) if each.target == what}
        others |= {before[what]} if what in before else set()
        if others - {name}:
            found[name] = sorted(others - {name})
    return found


def _targets(fleet: Fleet | None) -> dict[str, str]:
    """What is restarted, as a digest, and the server whose restart it is."""
    if fleet is None:
        return {}
    return {
        _digest(target(server.restart, fleet.hosts[server.restart.host])): name
        for name, server in fleet.servers.items()
        if server.restart is not None
    }


def _digest(what: tuple[object, ...]) -> str:
    raw = hashlib.sha256(repr(what).encode(errors="surrogatepass")).digest()
    return base64.urlsafe_b64encode(raw)[:_DIGEST].decode()


def _recent(departures: Iterable[Departure], now: datetime) -> list[Departure]:
    """What was taken by those who left earlier is forgotten by their own ledgers as well."""
    return [each for each in departures if each.at > now - MEMORY]
