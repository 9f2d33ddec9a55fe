"""Every decision of a drill: whether it may begin, whether it was found, and what came of it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.actions import CommandRestart, Drill, Restart
from fleet.contracts.drill import (
    DrillOutcome,
    Expected,
    Healing,
    Ledger,
    Survey,
)
from fleet.contracts.fleet import PresentPolicy
from fleet.contracts.host import HostState, HostStatus
from fleet.contracts.remediation import Outcome, Phase
from fleet.contracts.storm import StormState
from fleet.engine_sources import EngineSource
from fleet.engines import judge as engines
from fleet.engines.reading import Page
from fleet.engines.sighting import Sighting, compare
from fleet.engines.windows import longest_of
from fleet.findings import Finding
from fleet.judge import find
from fleet.policy import Mode, Policy
from fleet.readings import Reading, ReadStatus, WorkState
from fleet.remediation import TRY_AGAIN
from fleet.verdicts import GOOD, Verdict

#: Beyond twice what was expected: for a machine that is slow, and a round of looks.
_GRACE = timedelta(minutes=1)

#: The wait between two looks at a server, which follows from how long the drill takes.
_SHORTEST_LOOK, _LONGEST_LOOK = timedelta(seconds=1), timedelta(seconds=15)
_LOOKS = 100

_NOT_THE_END = TRY_AGAIN | {Outcome.NOT_CONFIRMED}


# --- before it begins ----------------------------------------------------------------------------


def unmarked(server: str) -> str:
    return f"it is not marked for drills: [servers.{server}.drill] in the fleet file does that"


def forbidden(present: PresentPolicy, server: str, now: datetime) -> list[str]:
    """What the fleet file or a pause says against a drill of this server, each in one phrase."""
    return list(_forbidden(present, server, now))


def _forbidden(present: PresentPolicy, server: str, now: datetime) -> Iterator[str]:
    spec = present.spec
    if spec is None:
        yield "it is not in the fleet"
        return
    if spec.drill is None:
        yield unmarked(server)
    if spec.restart is None:
        yield "no restart is configured, so nothing would heal it"
    if spec.policy.mode is not Mode.ACT:
        yield f'its mode is {spec.policy.mode}, so steady would not restart it: set mode = "act"'
    if present.pause is not None and present.pause.until > now:
        yield f"it is paused until {present.pause.until:%Y-%m-%d %H:%M:%S} UTC"


def hindrances(survey: Survey, drill: Drill, now: datetime) -> list[str]:
    """What the ledger, or an incident, says against it at this moment."""
    held_back = [survey.held_back] if survey.held_back else []
    return [*_of_incidents(survey, now), *_of_budget(survey.ledger, drill), *held_back]


def held_back(storm: StormState) -> str:
    """Why no restart of the fleet would happen now, or not at once; empty where it would."""
    if storm.suspicion is not None:
        return (
            f"nothing is restarted in the fleet since {storm.suspicion.began:%H:%M:%S} UTC: storm"
        )
    if len(storm.holders) >= storm.terms.at_once:
        names = ", ".join(lease.server for lease in storm.holders[:5])
        return f"as many as may be are being restarted now: {names}"
    return ""


def _of_incidents(survey: Survey, now: datetime) -> Iterator[str]:
    incident = survey.ledger.incident
    if survey.healing is not None and survey.healing.running:
        yield f"an incident of it is open: {survey.healing.incident or 'it has just begun'}"
    elif incident is not None:
        yield f"its incident {incident} is open, and waits for a person or a recovery"
    until = survey.ledger.cooldown_until
    if until is not None and until > now:
        yield f"it was restarted lately: the cooldown lasts until {until:%H:%M:%S} UTC"


def _of_budget(ledger: Ledger, drill: Drill) -> Iterator[str]:
    if ledger.left < drill.spare + 1:
        spare = f" and {drill.spare} must be left for a real incident (spare)"
        yield (
            f"its budget, or its machine's, has {ledger.left} restarts left: the drill costs one"
            f"{spare if drill.spare else ''}"
        )


def unfit(host: HostState, restart: Restart) -> str | None:
    """Why what the host shows must not be frozen, since nothing would restart it; none: it may."""
    nameless = isinstance(restart, CommandRestart) and not restart.identity
    if host.status is not HostStatus.RUNNING and not nameless:
        return f"on the host it is {host.status}{f' ({host.detail})' if host.detail else ''}"
    return f"a restart would do harm: {host.hindrance}" if host.hindrance else None


class Readiness(StrEnum):
    WORKS = "works"
    RESTS = "rests"
    ILL = "ill"


def readiness(reading: Reading, policy: Policy) -> tuple[Readiness, str]:
    """Whether a hang would show, and why: only one that is at work is proved stuck."""
    finding = _judged(reading, policy)
    said = f"{finding.verdict}: {finding.why}" if finding.why else str(finding.verdict)
    if finding.verdict is Verdict.BUSY:
        return Readiness.WORKS, said
    return (Readiness.RESTS if finding.verdict in GOOD else Readiness.ILL), said


def _judged(reading: Reading, policy: Policy) -> Finding:
    """What one look says by itself."""
    if reading.engine is not None:
        return engines.find(reading, None, policy)
    return find(reading, None, policy)


# --- while it lasts ------------------------------------------------------------------------------


def expected(present: PresentPolicy) -> Expected | None:
    """When each should have come at the latest, if the last sign of work came with the freeze."""
    spec, sweep = present.spec, present.sweep_every
    if spec is None or spec.restart is None or sweep is None:
        return None
    policy = spec.policy
    if isinstance(spec.source, EngineSource):
        # Of looks between which nothing moved, the first one after its window is the observation.
        window = longest_of(spec.source.kind)
        first = sweep * (1 + max(1, -(-window // sweep)))
        found = first + max(2 * policy.confirm_wait, window) + spec.source.deadline
    else:
        first = policy.stale_after + sweep
        found = first + (policy.observations - 1) * sweep
    # A frozen process hears no SIGTERM, so all of its time to stop passes.
    restarted = max(found, first + policy.persist_hung) + spec.restart.stop_timeout
    healed = restarted + max(policy.cooldown, policy.verify_after)
    return Expected(found=found, restarted=restarted, healed=healed)


def patience(expected: Expected, policy: Policy) -> tuple[timedelta, timedelta]:
    """How long after the freeze it is waited to be found, and to be healed, and no longer."""
    restarted = 2 * expected.restarted + _GRACE
    verified = max(policy.cooldown, policy.verify_after, policy.load_limit)
    return 2 * expected.found + _GRACE, restarted + verified + _GRACE


def look_every(expected: Expected) -> timedelta:
    return min(max(expected.healed / _LOOKS, _SHORTEST_LOOK), _LONGEST_LOOK)


def moved(before: Reading | None, now: Reading) -> bool:
    """Whether it worked between two looks, both after the freeze: by its own clock or counters.

    Of several engines one that stands still is what was frozen.
    """
    if before is None:
        return False
    if before.engine is not None and now.engine is not None:
        change = compare(now.engine, Sighting.of(before.engine))
        return bool(change.moved) and not change.still
    if before.heartbeat is None or now.heartbeat is None:
        return False
    return now.heartbeat != before.heartbeat


def at_rest(frozen: Reading) -> bool:
    """Whether what it left says that it had no work when it was frozen, however old that is."""
    if frozen.engine is not None:
        return frozen.engine.page is Page.OK and not frozen.engine.in_flight
    return frozen.status is ReadStatus.OK and frozen.state is not WorkState.PROCESSING


def works_again(frozen: Reading | None, now: Reading, policy: Policy) -> bool:
    """Whether this is a sign of life of the process that the restart started."""
    if now.status is not ReadStatus.OK or _judged(now, policy).verdict not in GOOD:
        return False
    if now.engine is None or frozen is None or frozen.engine is None:
        return moved(frozen, now)
    change = compare(now.engine, Sighting.of(frozen.engine))
    return now.engine.page is Page.OK and not change.still


def concerns(healing: Healing | None, frozen_at: datetime) -> Healing | None:
    """The remediation, if the freeze may have begun it."""
    return healing if healing is not None and healing.began >= frozen_at else None


def came_to(healing: Healing) -> tuple[DrillOutcome, str] | None:
    """What the remediation came to for the drill; none while more may come of it.

    A suspicion that was not confirmed comes again, and a restart that failed is tried again.
    """
    outcome = healing.outcome
    if healing.phase is Phase.ESCALATED:
        return DrillOutcome.NOT_HEALED, f"the incident is {outcome or 'escalated'}: {healing.said}"
    if healing.phase is not Phase.CLOSED or outcome is None or outcome in _NOT_THE_END:
        return None
    if healing.restarts and outcome in (Outcome.RESOLVED, Outcome.RECOVERED):
        return DrillOutcome.HEALED, ""
    return DrillOutcome.NOT_HEALED, f"the incident ended as {outcome}: {healing.said}"
