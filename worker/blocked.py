"""What keeps servers that are proved bad from their restart, at this moment."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.contracts.fleet import FleetState
from fleet.contracts.guard import GuardState
from fleet.contracts.remediation import Phase
from fleet.judge import Memory
from fleet.verdicts import ACTIONABLE, Verdict
from worker.proved import held_verdict, is_proved
from worker.sweeps import Shard

#: By a person's pause, a wait for their approval or an incident closed to automation; by the wait
#: between tries, the cooldown after a restart, the budget of the server, the limit on restarts.
REASONS = ("pause", "approval", "hold", "retry", "cooldown", "budget", "slots")


@dataclass(frozen=True)
class OpenRun:
    """An open incident, as far as a listing tells; the verdict is none where it does not."""

    phase: str
    verdict: Verdict | None = None


def verdict_of(
    memory: Memory, opened: OpenRun | None, guard: GuardState | None = None
) -> Verdict | None:
    """What the server is: as the last sweep saw it, or as its open incident has proved it."""
    if opened is None:
        return held_verdict(memory.verdict, guard.incident if guard is not None else None)
    if is_proved(memory.verdict, opened.verdict, opened.phase):
        return opened.verdict
    return memory.verdict


def blocked(
    state: FleetState,
    shards: Sequence[Shard],
    opened: Mapping[str, OpenRun],
    guards: Mapping[str, tuple[GuardState, int]],
    now: datetime,
) -> dict[str, int]:
    """How many servers each reason keeps; ``guards`` with the restarts that are left.

    A server counts once, by the first reason that applies; one that is being healed does not.
    """
    found: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
    servers = state.fleet.servers if state.fleet is not None else {}
    for shard in shards:
        known = shard.result.servers if shard.result is not None else {}
        for name, memory in known.items():
            run = opened.get(name)
            kept = guards.get(name)
            guard = kept[0] if kept is not None else None
            if name in servers and verdict_of(memory, run, guard) in ACTIONABLE:
                phase = run.phase if run is not None else None
                reason = _reason(state, name, phase, kept, now)
                found.update([reason] if reason is not None else [])
    return dict(found)


def _reason(
    state: FleetState,
    name: str,
    phase: str | None,
    kept: tuple[GuardState, int] | None,
    now: datetime,
) -> str | None:
    pauses = (state.pauses.get(name), state.fleet_pause)
    if any(pause is not None and pause.until > now for pause in pauses):
        return "pause"
    if phase in (Phase.APPROVING, Phase.WAITING):
        return "approval" if phase == Phase.APPROVING else "slots"
    if kept is None or phase not in (None, Phase.ESCALATED):
        return None
    return _by_guard(*kept, now)


def _by_guard(guard: GuardState, left: int, now: datetime) -> str | None:
    incident = guard.incident
    if incident is not None and incident.hold is not None:
        return "hold"
    if incident is not None and incident.next_try_at is not None and incident.next_try_at > now:
        return "retry"
    if guard.cooldown_until is not None and guard.cooldown_until > now:
        return "cooldown"
    return "budget" if left == 0 else None
