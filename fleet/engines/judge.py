"""From readings of an engine to verdicts. Pure: the same readings say the same to every observer.

One look proves no hang, and neither do two: work in flight that stands still is ``suspect``, which
a remediation confirms. ``stuck`` and ``unresponsive`` are said there, after a request.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from fleet.durations import brief
from fleet.engines.profiles import profile_named
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.engines.sighting import Change, Sighting, compare
from fleet.engines.windows import window_of
from fleet.findings import Finding
from fleet.patience import Patience
from fleet.readings import Reading
from fleet.verdicts import Verdict

_UNSEEN = {
    Page.BARE: Verdict.UNPROVEN,
    Page.SLOW: Verdict.UNPROVEN,
    Page.FAILING: Verdict.DEGRADED,
    Page.UNREADABLE: Verdict.UNREADABLE,
    Page.ALIVE: Verdict.HEALTHY,
    Page.DIED: Verdict.ERROR,
}

_ANSWERED = {
    Came.GIVEN: Verdict.IDLE,
    Came.MOVED: Verdict.BUSY,
    Came.BUSY: Verdict.BUSY,
    Came.FULL: Verdict.BUSY,
    Came.ASLEEP: Verdict.ASLEEP,
    Came.NONE: Verdict.SUSPECT,
    Came.FAILED: Verdict.DEGRADED,
    Came.REFUSED: Verdict.UNPROVEN,
    Came.ELSEWHERE: Verdict.UNPROVEN,
    Came.DIED: Verdict.ERROR,
}


def find(
    reading: Reading,
    before: Sighting | None,
    policy: Patience,
    loading: datetime | None = None,
    age: timedelta | None = None,
) -> Finding:
    """Judge one reading against the last look. ``loading`` is since when it has been loading.

    ``age`` is how old the last look is: what stands still for less than the window of its witnesses
    proves nothing. Without it, whoever looks has waited for long enough.
    """
    return find_by(reading, changed(reading, before), policy, loading, age)


def changed(reading: Reading, before: Sighting | None) -> Change:
    """What has changed in its engines since the last look."""
    return compare(reading.engine, before) if reading.engine is not None else Change()


def find_by(
    reading: Reading,
    change: Change,
    policy: Patience,
    loading: datetime | None = None,
    age: timedelta | None = None,
) -> Finding:
    """As ``find``, by what has changed since the last look."""
    engine = reading.engine
    if engine is None:
        return Finding(verdict=Verdict.UNREADABLE, why=reading.detail or "no engine was read")
    if engine.page in (Page.OK, Page.LISTED):
        return _seen(reading, engine, policy, loading) or _by_movement(engine, change, age)
    if engine.page is Page.REFUSED:
        return _refused(reading, engine, policy)
    if engine.page is Page.UNAVAILABLE:
        return _unavailable(reading, policy, loading)
    return Finding(verdict=_UNSEEN[engine.page], why=reading.detail or str(engine.page))


def _seen(
    reading: Reading, engine: EngineReading, policy: Patience, loading: datetime | None
) -> Finding | None:
    """What it says of itself, or has answered; none where only movement can tell."""
    if engine.asleep:
        why = f"it sleeps: {reading.detail or engine.numbers()}"
        return Finding(verdict=Verdict.ASLEEP, why=why[:300])
    if engine.answer is not None:
        return _by_answer(reading, engine, engine.answer, policy, loading)
    if engine.page is Page.LISTED:
        return Finding(verdict=Verdict.IDLE, why=f"only an answer tells: {reading.detail}"[:300])
    return None


def _by_answer(
    reading: Reading,
    engine: EngineReading,
    answer: Answer,
    policy: Patience,
    loading: datetime | None,
) -> Finding:
    """Without counters an answer says more than ``idle``, and none says less than a suspicion."""
    why = f"{in_words(answer)} ({engine.numbers() or reading.detail})"[:300]
    if answer.came is Came.LOADING:
        return _unavailable(replace(reading, detail=answer.detail), policy, loading)
    if answer.came is Came.FAILED and _is_booting(reading, engine, policy):
        return Finding(verdict=Verdict.LOADING, why=f"it was just started: {why}"[:300])
    if engine.page is Page.LISTED and answer.came is Came.GIVEN:
        return Finding(verdict=Verdict.HEALTHY, why=why)
    by_ends = profile_named(engine.profile).by_ends
    if (engine.page is Page.LISTED or by_ends) and answer.came is Came.NONE:
        verdict = Verdict.SUSPECT if policy.restart_unproven else Verdict.UNPROVEN
        what = "by the ends of requests" if by_ends else "without counters"
        return Finding(verdict=verdict, why=f"{why}: {what}, busy looks the same"[:300])
    return Finding(verdict=_ANSWERED[answer.came], why=why)


def _is_booting(reading: Reading, engine: EngineReading, policy: Patience) -> bool:
    """Whether its page says that its process was started less than a load ago."""
    try:
        since = reading.at.timestamp() - float(engine.started or "")
    except ValueError:
        return False
    return 0 <= since <= policy.load_limit.total_seconds()


def _by_movement(engine: EngineReading, change: Change, age: timedelta | None) -> Finding:
    if change.restarted:
        return Finding(verdict=Verdict.RESTARTED, why=change.restarted)
    soon = _too_soon(engine, change, age)
    still = tuple(each for each in change.still if each not in soon)
    if still:
        return Finding(verdict=Verdict.SUSPECT, why=standing_still(still))
    if soon and age is not None:
        why = f"no witness moved for {brief(age)}, which its page may take: {engine.numbers()}"
        return Finding(verdict=Verdict.BUSY, why=why[:300])
    if not engine.in_flight:
        return Finding(verdict=Verdict.IDLE, why=f"no work in flight: {engine.numbers()}"[:300])
    seen = "a witness moved" if change.known else "the first look at it"
    return Finding(verdict=Verdict.BUSY, why=f"{seen}: {engine.numbers()}"[:300])


def _too_soon(
    engine: EngineReading, change: Change, age: timedelta | None
) -> tuple[EngineState, ...]:
    """Those that stand still, but not yet for as long as their witnesses may while they work."""
    if age is None or not change.still:
        return ()
    return tuple(
        each
        for each, stood in zip(engine.engines, change.stood, strict=False)
        if stood is not None and stood + age < window_of(engine, each)
    )


def standing_still(engines: tuple[EngineState, ...]) -> str:
    """Which engines have work in flight and do not move, with their numbers."""
    named = [f"engine {each.label or 0}: {each.numbers()}" for each in engines[:4]]
    return f"work in flight, and no witness moved since the last look ({'; '.join(named)})"[:300]


def _refused(reading: Reading, engine: EngineReading, policy: Patience) -> Finding:
    """Where steady itself has just restarted it, a port that is not open yet is a load."""
    since = reading.at - engine.restarted_at if engine.restarted_at is not None else None
    if since is None or since < timedelta(0):
        return Finding(verdict=Verdict.MISSING, why=reading.detail or "connection refused")
    if since <= policy.load_limit:
        return Finding(verdict=Verdict.LOADING, why=f"restarted {brief(since)} ago: it loads")
    return Finding(verdict=Verdict.OVERDUE, why=f"not back {brief(since)} after its restart")


def _unavailable(reading: Reading, policy: Patience, loading: datetime | None) -> Finding:
    since = reading.at - (loading or reading.at)
    said = f" ({reading.detail})" if reading.detail else ""
    if since > policy.load_limit:
        return Finding(verdict=Verdict.OVERDUE, why=f"loading for {brief(since)}{said}"[:300])
    return Finding(verdict=Verdict.LOADING, why=f"it says that it is not ready yet{said}"[:300])


def in_words(answer: Answer) -> str:
    """What a short request came to, in one phrase."""
    took = f"{answer.took:.1f} s" if answer.took is not None else "time"
    said = f": {answer.detail}" if answer.detail else ""
    words = {
        Came.GIVEN: f"it answered a short request after {took}",
        Came.NONE: f"a short request had no answer in {took}, and no witness moved",
        Came.FAILED: f"it answered a short request with an error{said}",
        Came.REFUSED: f"it could not be asked{said}",
        Came.ELSEWHERE: f"another engine of this server answered in its place{said}",
        Came.MOVED: f"a witness moved{said}",
        Came.BUSY: f"it is at work{said}",
        Came.FULL: f"it takes no more requests{said}",
        Came.ASLEEP: f"it is asleep or paused{said}",
        Came.LOADING: f"it is not ready yet{said}",
        Came.DIED: f"it says that its engine died{said}",
    }
    return words[answer.came]
