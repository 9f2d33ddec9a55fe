"""What a remediation has proved of an engine, and whether it still holds at a later look."""

from dataclasses import dataclass

from fleet.engines.judge import find
from fleet.engines.profiles import profile_named
from fleet.engines.reading import Came, EngineReading, Page
from fleet.engines.sighting import Change, Sighting, compare
from fleet.findings import Finding
from fleet.patience import Patience
from fleet.readings import Reading
from fleet.verdicts import Verdict


@dataclass(frozen=True)
class Proof:
    """``seen`` is the look after which nothing may have moved in the engines of ``labels``."""

    verdict: Verdict
    seen: EngineReading
    labels: frozenset[str]


def proof_of(
    engine: EngineReading, policy: Patience, before: EngineReading | None = None
) -> Proof | None:
    """What an unanswered request proves: ``stuck`` with work in flight, else ``unresponsive``.

    ``before`` is the look before it: an engine that counts what its front end has taken in shows
    the request itself as work. Without counters it proves nothing, unless the operator has said
    that it is to be acted on. A server that says itself that its engine died is ``error``.
    """
    answer = engine.answer
    if answer is None or answer.came not in (Came.NONE, Came.DIED):
        return None
    if answer.came is Came.DIED:
        return Proof(Verdict.ERROR, engine, frozenset(each.label for each in engine.engines))
    if engine.page is Page.LISTED:
        return Proof(Verdict.UNRESPONSIVE, engine, frozenset()) if policy.restart_unproven else None
    if profile_named(engine.profile).by_ends and not policy.restart_unproven:
        return None
    named = [each for each in engine.engines if each.label == answer.rank]
    asked = named if answer.rank else engine.telling
    labels = frozenset(each.label for each in asked)
    seen = before.engines if before is not None else asked
    worked = any(each.in_flight for each in seen if each.label in labels)
    return Proof(Verdict.STUCK if worked else Verdict.UNRESPONSIVE, engine, labels)


def judge_again(
    reading: Reading, proof: Proof | None, last: EngineReading | None, policy: Patience
) -> Finding:
    """Judge a look inside a remediation: against its proof, else against its last look."""
    engine = reading.engine
    if engine is None or proof is None or engine.asleep or engine.page is not proof.seen.page:
        return find(reading, Sighting.of(last) if last is not None else None, policy)
    if engine.page is Page.LISTED:
        return Finding(verdict=proof.verdict, why="it has not answered, and has no counters")
    change = compare(engine, Sighting.of(proof.seen))
    if change.restarted or not _holds(change, proof):
        return find(reading, Sighting.of(proof.seen), policy)
    shown = "; ".join(each.numbers() for each in engine.engines if each.label in proof.labels)
    return Finding(
        verdict=proof.verdict, why=f"nothing has moved since it was asked ({shown})"[:300]
    )


def _holds(change: Change, proof: Proof) -> bool:
    if not change.known or any(each.label in proof.labels for each in change.moved):
        return False
    if proof.verdict is not Verdict.STUCK:
        return True
    return any(each.label in proof.labels for each in change.still)


def is_open(reading: Reading, finding: Finding, last: EngineReading | None) -> bool:
    """Whether a look leaves open if the engine works: nothing moved, and nothing is proved."""
    if reading.engine is None or reading.engine.page not in (Page.OK, Page.LISTED):
        return False
    if finding.verdict is Verdict.BUSY:
        return last is None
    if finding.verdict is Verdict.IDLE:
        return not is_shown_alive(reading, last)
    return finding.verdict in (
        *(Verdict.SUSPECT, Verdict.RESTARTED, Verdict.UNRESPONSIVE, Verdict.ERROR),
    )


def is_shown_alive(
    reading: Reading, last: EngineReading | None, ranks: tuple[str, ...] = ()
) -> bool:
    """Whether an engine without work in flight needs no request, since it has moved by itself.

    ``ranks`` names those of several that are meant; else all of them are.
    """
    engine = reading.engine
    if engine is None or last is None or engine.page is not Page.OK:
        return False
    change = compare(engine, Sighting.of(last))
    if ranks:
        return set(ranks) <= {each.label for each in change.moved}
    return change.known and len(change.moved) == len(engine.engines)
