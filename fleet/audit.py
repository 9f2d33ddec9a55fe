"""Who acts on each verdict, server by server: what the ownership of a verdict comes to in a fleet.

The gap that this looks for is a verdict that a detector gives and nobody acts on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fleet import verdicts
from fleet.any_source import Source
from fleet.config import Fleet, Server
from fleet.engine_sources import EngineSource
from fleet.engines.profiles import PROFILES
from fleet.policy import Mode, Policy
from fleet.verdicts import Owner, Ownership, Verdict

#: What is never said of an engine without counters, and what then is, where an operator wants it.
_NEEDS_COUNTERS = frozenset({Verdict.STUCK, Verdict.UNRESPONSIVE, Verdict.SUSPECT})
_WITHOUT_PROOF = frozenset({Verdict.UNRESPONSIVE, Verdict.SUSPECT})


@dataclass(frozen=True)
class Row:
    """``ownership`` is none where nobody acts. ``servers`` is empty where no fleet was asked."""

    verdict: Verdict
    ownership: Ownership | None
    servers: tuple[str, ...] = ()


def audit(fleet: Fleet | None) -> list[Row]:
    """Every verdict that the detectors of the fleet can give; without a fleet, of all detectors."""
    if fleet is None:
        given = frozenset[Verdict]().union(*verdicts.GIVEN_BY.values())
        return [
            Row(verdict, verdicts.OWNERS.get(verdict)) for verdict in Verdict if verdict in given
        ]
    found: dict[tuple[Verdict, Ownership | None], list[str]] = {}
    for name, server in fleet.servers.items():
        for verdict in _given(server, fleet.policy(name)):
            ownership = _in_practice(verdict, server, fleet.policy(name))
            found.setdefault((verdict, ownership), []).append(name)
    order = list(Verdict)
    rows = [Row(verdict, ownership, tuple(names)) for (verdict, ownership), names in found.items()]
    return sorted(rows, key=lambda row: order.index(row.verdict))


def ladders(fleet: Fleet) -> dict[str, list[str]]:
    """The steps of each server that has several, in words, weakest first."""
    found = {name: [str(step) for step in fleet.spec(name).steps] for name in fleet.servers}
    return {name: steps for name, steps in found.items() if len(steps) > 1}


def ownerless(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.ownership is None]


def detector(source: Source) -> str:
    """Which detector judges a source: a record is judged alike wherever it lies."""
    return "engine" if isinstance(source, EngineSource) else "heartbeat"


def _given(server: Server, policy: Policy) -> Iterator[Verdict]:
    never = set(_NEEDS_COUNTERS) if _has_no_counters(server.source) else set()
    if policy.stalled_after is None:
        never.add(Verdict.STALLED)
    if policy.restart_unproven:
        never -= _WITHOUT_PROOF
    yield from (each for each in verdicts.GIVEN_BY[detector(server.source)] if each not in never)


def _has_no_counters(source: Source) -> bool:
    return isinstance(source, EngineSource) and not PROFILES[source.kind].metrics


def _in_practice(verdict: Verdict, server: Server, policy: Policy) -> Ownership | None:
    """The owner that the design names, unless this server's file leaves that owner no hands."""
    named = verdicts.OWNERS.get(verdict)
    if named is None:
        return None
    if verdict is Verdict.MISSING and policy.expected_off:
        return Ownership(Owner.NOBODY, "-", "the machine is off on purpose (expected_off)")
    if named.owner is not Owner.REMEDIATION:
        acts = verdict is Verdict.UNPROVEN and policy.restart_unproven
        more = "; twice no answer is unresponsive: restart_unproven" if acts else ""
        return replace(named, why=f"{named.why}{more}")
    hindrance = _hindrance(server, policy)
    if hindrance is not None:
        return Ownership(Owner.PERSON, named.through, hindrance)
    if policy.mode is Mode.APPROVE:
        return replace(named, why=f"{named.why}; after a person's `steady approve`")
    return named


def _hindrance(server: Server, policy: Policy) -> str | None:
    """Why steady will never restart this server by itself, if so."""
    if policy.mode is Mode.ALERT_ONLY:
        return "mode alert_only: steady tells, and restarts nothing"
    if server.restart is None:
        return "no restart is configured: steady has no way to act"
    if policy.mode is Mode.DRY_RUN:
        return "mode dry_run: everything is done but the command"
    if policy.budget.limit == 0:
        return "budget.limit is 0: no restart is ever granted"
    return None
