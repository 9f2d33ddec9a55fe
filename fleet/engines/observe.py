"""What a sweep or a probe remembers of an engine server, and what counts as confirmed."""

from datetime import UTC, datetime, timedelta

from fleet.engines.judge import changed, find_by
from fleet.engines.reading import Page
from fleet.engines.sighting import Change, Sighting, seen_after
from fleet.findings import Finding
from fleet.judge import (
    APART_INTERVALS,
    FRESH_INTERVALS,
    Memory,
    counted,
    only_looked,
    with_known,
)
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import GOOD, Verdict


def observe(
    reading: Reading, before: Memory | None, policy: Policy, interval: timedelta
) -> tuple[Memory, Finding]:
    """Judge a reading of an engine against the last one, and remember it.

    ``suspect`` counts at once, since it rests on two looks already and is only a reason to look
    closer. Every other bad verdict is confirmed as of any server, by looks in a row.
    """
    gap = reading.at - before.at if before is not None else timedelta(0)
    then = before if timedelta(0) < gap <= interval * FRESH_INTERVALS else None
    loading = before.loading if before is not None else None
    change, age = changed(reading, _last(then)), _age(reading, then)
    finding = find_by(reading, change, policy, loading, age)
    memory = _remembered(reading, before, finding, change, age)
    if finding.verdict in GOOD:
        same = before is not None and before.verdict in GOOD
        since = before.since if same and before is not None else memory.at
        return with_known(memory, verdict=finding.verdict, since=since), finding
    if then is not None and gap < interval * APART_INTERVALS:
        # Two looks as close as that are one: nothing could have moved.
        return then, finding
    if finding.verdict is Verdict.SUSPECT:
        again = before is not None and before.verdict is Verdict.SUSPECT
        since = before.since if again and before is not None else memory.at
        return with_known(memory, verdict=Verdict.SUSPECT, since=since), finding
    if then is None:
        return only_looked(memory, before, reading, finding), finding
    return counted(memory, then, reading, finding, policy), finding


def _last(memory: Memory | None) -> Sighting | None:
    return Sighting.decode(memory.engine) if memory is not None else None


def _age(reading: Reading, memory: Memory | None) -> timedelta:
    """How old the sighting is that the memory holds."""
    if memory is None:
        return timedelta(0)
    return reading.at - memory.at + timedelta(seconds=memory.ago)


def _remembered(
    reading: Reading,
    before: Memory | None,
    finding: Finding,
    change: Change,
    age: timedelta,
) -> Memory:
    """What was seen; where nothing was, what was known: a page may come back as it was."""
    at = reading.at.astimezone(UTC)
    engine = reading.engine
    if engine is not None and engine.page is Page.OK:
        sighting = seen_after(engine, change, age)
        loading = _load_began(finding, before, at)
        return Memory(at=at, since=at, engine=sighting.encode(), loading=loading)
    known = before.engine if before is not None else None
    ago = round(max(timedelta(0), _age(reading, before)).total_seconds(), 3) if known else 0
    loading = _load_began(finding, before, at)
    return Memory(at=at, since=at, engine=known, ago=ago, loading=loading)


def _load_began(finding: Finding, before: Memory | None, at: datetime) -> datetime | None:
    if finding.verdict not in (Verdict.LOADING, Verdict.OVERDUE):
        return None
    return before.loading if before is not None and before.loading is not None else at
