"""From readings to verdicts. Pure: the same readings give every observer the same answer.

What one sweep leaves for the next is a ``Memory``. It travels as the schedule's last completion
result, so "two observations in a row" is shared, durable data: two workers can't disagree on it,
and a worker that was restarted forgets nothing.
"""

import base64
import hashlib
from datetime import UTC, timedelta
from typing import Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from fleet.durations import brief
from fleet.findings import Finding
from fleet.policy import MOST_OBSERVATIONS, Policy
from fleet.readings import Reading, ReadStatus, WorkState
from fleet.verdicts import GOOD, Verdict

#: After a gap of more than this many intervals between two sweeps the earlier one proves nothing.
FRESH_INTERVALS = 2.5

#: Two looks closer than this many intervals are one: a sweep set off by hand is no second witness.
APART_INTERVALS = 0.25

_DIGEST = 8

#: Verdicts on a heartbeat that stands still: one that moved ends them.
AT_REST = frozenset({Verdict.HUNG, Verdict.SILENT})


class Memory(BaseModel):
    """What is known of a server after a sweep, in at most 300 bytes of JSON.

    ``verdict`` is the confirmed one (none before the first), true since ``since``. ``pending`` is a
    bad verdict that has been seen ``count`` times in a row from ``first`` on; a count of 0 means
    that it was seen by a sweep that only looked. ``beat`` is the last heartbeat that was read.
    ``progress`` and ``process`` are digests. ``moved`` is when the progress marker last changed
    during work, and ``loading`` when the present load was first seen, by the observer's clock.
    ``engine`` is the last sighting of an engine server, and empty for all others. It was made so
    many seconds before ``at`` as ``ago`` says.
    ``owed`` is 1 where the verdict is for people and a pause or ``expected_off`` kept it from them.
    ``told`` is how often people heard of the present bad verdict; then nothing is owed.
    """

    model_config = ConfigDict(frozen=True)

    at: AwareDatetime
    verdict: Verdict | None = None
    since: AwareDatetime
    pending: Verdict | None = None
    first: AwareDatetime | None = None
    count: int = Field(default=0, ge=0, le=99)
    beat: AwareDatetime | None = None
    progress: str | None = Field(default=None, max_length=_DIGEST)
    process: str | None = Field(default=None, max_length=_DIGEST)
    moved: AwareDatetime | None = None
    loading: AwareDatetime | None = None
    owed: int = Field(default=0, ge=0, le=1)
    engine: str | None = Field(default=None, max_length=400)
    ago: float = 0
    told: int = Field(default=0, ge=0, le=9)

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A shard's memory is one payload, and most fields of most servers are empty."""
        return {name: value for name, value in handler(self).items() if value}


def find(reading: Reading, before: Memory | None, policy: Policy) -> Finding:
    """Judge one reading against the previous one.

    Age compares two clocks, the worker's and the observer's; whether the heartbeat changed is seen
    by one. Where the two contradict each other the clocks disagree, and nothing is hung.
    """
    if reading.status is ReadStatus.MISSING:
        return Finding(verdict=Verdict.MISSING, why=reading.detail or "no record")
    if reading.status is ReadStatus.UNREADABLE or reading.heartbeat is None:
        return Finding(
            verdict=Verdict.UNREADABLE, why=reading.detail or "no heartbeat in the record"
        )
    age = reading.at - reading.heartbeat
    if age < -policy.skew_tolerance:
        return Finding(
            verdict=Verdict.SKEWED, why=f"the heartbeat lies {brief(-age)} in the future"
        )
    if reading.state is WorkState.ERROR:
        return Finding(verdict=Verdict.ERROR, why=f"the worker says {reading.word or 'error'}")
    if age > policy.stale_after:
        return _old(reading, before, policy, age)
    return _fresh(reading, before, policy)


def _old(reading: Reading, before: Memory | None, policy: Policy, age: timedelta) -> Finding:
    if before is not None and _moved(reading, before):
        # It was written after the last look, so its true age is at most the time since then.
        true_age = reading.at - before.at
        if age > true_age + policy.skew_tolerance:
            return Finding(
                verdict=Verdict.SKEWED,
                why=f"the heartbeat moves, yet reads {brief(age)} old: clocks disagree",
            )
    if reading.state is WorkState.LOADING and age <= policy.load_limit:
        return _loading(reading, before, policy)
    said = f"state {reading.word or reading.state}, heartbeat {brief(age)} old"
    if reading.state is WorkState.PROCESSING:
        return Finding(verdict=Verdict.HUNG, why=said)
    return Finding(verdict=Verdict.SILENT, why=said)


def _fresh(reading: Reading, before: Memory | None, policy: Policy) -> Finding:
    if before is not None and _is_another_process(reading, before):
        return Finding(verdict=Verdict.RESTARTED, why="another process than at the last look")
    if reading.state is WorkState.LOADING:
        return _loading(reading, before, policy)
    if reading.state is WorkState.PROCESSING:
        still = _standing_still(reading, before)
        if policy.stalled_after is not None and still > policy.stalled_after:
            return Finding(
                verdict=Verdict.STALLED,
                why=f"the heartbeat is fresh, no progress for {brief(still)}",
            )
        return Finding(verdict=Verdict.BUSY, why="the heartbeat is fresh and work is under way")
    if reading.state is WorkState.IDLE:
        return Finding(verdict=Verdict.IDLE, why="the heartbeat is fresh, no work")
    return Finding(verdict=Verdict.HEALTHY, why=f"the heartbeat is fresh, state {reading.word!r}")


def _loading(reading: Reading, before: Memory | None, policy: Policy) -> Finding:
    """Loading a model often blocks the heartbeat, so within its limit a load may be silent."""
    began = before.loading if before is not None and before.loading else reading.at
    if reading.at - began > policy.load_limit:
        return Finding(verdict=Verdict.OVERDUE, why=f"loading for {brief(reading.at - began)}")
    return Finding(verdict=Verdict.LOADING, why="loading")


def _standing_still(reading: Reading, before: Memory | None) -> timedelta:
    if reading.progress is None or before is None or before.moved is None:
        return timedelta(0)
    if _digest(reading.progress) != before.progress:
        return timedelta(0)
    return reading.at - before.moved


def _moved(reading: Reading, before: Memory) -> bool:
    return None not in (reading.heartbeat, before.beat) and reading.heartbeat != before.beat


def _is_another_process(reading: Reading, before: Memory) -> bool:
    now = _digest(reading.process)
    return None not in (now, before.process) and now != before.process


def _digest(opaque: str | None) -> str | None:
    if opaque is None:
        return None
    raw = hashlib.sha256(opaque.encode(errors="surrogatepass")).digest()
    return base64.urlsafe_b64encode(raw)[:_DIGEST].decode()


def observe(
    reading: Reading, before: Memory | None, policy: Policy, interval: timedelta
) -> tuple[Memory, Finding]:
    """Judge a reading and remember it.

    A bad verdict is confirmed when it has been seen ``policy.observations`` times in a row, and
    for a heartbeat that stands still, the same heartbeat each time; a good one at once. The first
    sweep of all, and the first after steady's own pause or a step back of its clock, only looks:
    what lies before the gap is no "previous observation".
    """
    gap = reading.at - before.at if before is not None else timedelta(0)
    then = before if timedelta(0) < gap <= interval * FRESH_INTERVALS else None
    finding = find(reading, then, policy)
    memory = _remembered(reading, before, then)
    if finding.verdict in GOOD:
        same = before is not None and before.verdict in GOOD
        since = before.since if same and before is not None else reading.at
        return with_known(memory, verdict=finding.verdict, since=since), finding
    if then is None:
        return only_looked(memory, before, reading, finding), finding
    if gap < interval * APART_INTERVALS and _says_nothing_new(then, reading, finding):
        return then, finding
    return counted(memory, then, reading, finding, policy), finding


def _says_nothing_new(before: Memory, reading: Reading, finding: Finding) -> bool:
    return finding.verdict in (before.verdict, before.pending) and not _moved(reading, before)


def _remembered(reading: Reading, before: Memory | None, then: Memory | None) -> Memory:
    """What was read; where nothing was, what was known: a record may come back as it was."""
    blank = Memory(at=reading.at.astimezone(UTC), since=reading.at.astimezone(UTC))
    if reading.status is not ReadStatus.OK or reading.heartbeat is None:
        known = ("beat", "progress", "process", "moved", "loading")
        return with_known(blank, **{name: getattr(before, name, None) for name in known})
    is_other = before is not None and _is_another_process(reading, before)
    return with_known(
        blank,
        beat=reading.heartbeat.astimezone(UTC),
        progress=_digest(reading.progress),
        process=_digest(reading.process),
        moved=_last_moved(reading, None if is_other else then, blank),
        loading=_load_began(reading, None if is_other else before, blank),
    )


def _last_moved(reading: Reading, then: Memory | None, now: Memory) -> AwareDatetime | None:
    """Only work can stall: the time before a job is no time without progress."""
    if reading.state is not WorkState.PROCESSING or reading.progress is None:
        return None
    stood = then is not None and then.progress == _digest(reading.progress)
    return then.moved if stood and then is not None and then.moved else now.at


def _load_began(reading: Reading, before: Memory | None, now: Memory) -> AwareDatetime | None:
    if reading.state is not WorkState.LOADING:
        return None
    return before.loading if before is not None and before.loading else now.at


def only_looked(
    memory: Memory, before: Memory | None, reading: Reading, finding: Finding
) -> Memory:
    """Confirm nothing. What was seen both before and after the gap keeps its beginning.

    So an outage of steady makes no second incident of one. A verdict that somebody acts on has its
    beginning only where the heartbeat proves that nothing happened in the gap.
    """
    if before is None:
        return with_known(memory, pending=finding.verdict)
    known = {before.pending: before.first}
    known |= {before.verdict: before.since} if before.verdict is not None else {}
    is_proven = reading.heartbeat == before.beat
    needs_proof = finding.verdict in AT_REST or finding.verdict is Verdict.ERROR
    first = known.get(finding.verdict) if is_proven or not needs_proof else None
    return with_known(memory, pending=finding.verdict, first=first)


def counted(
    memory: Memory, before: Memory, reading: Reading, finding: Finding, policy: Policy
) -> Memory:
    anew = _moved(reading, before)
    held = None if anew and before.verdict in AT_REST else before.verdict
    since = before.since if held is not None else memory.at
    if held is finding.verdict:
        return with_known(memory, verdict=held, since=since)
    again = before.pending is finding.verdict and not (anew and finding.verdict in AT_REST)
    count = before.count + 1 if again else 1
    first = before.first if again and before.first is not None else memory.at
    if count >= policy.observations:
        return with_known(memory, verdict=finding.verdict, since=first)
    return with_known(
        memory, verdict=held, since=since, pending=finding.verdict, first=first, count=count
    )


def unconfirmed(memory: Memory) -> Memory:
    """What is known of a server whose verdict reached nobody: the next such look confirms it anew,
    with the same beginning.
    """
    if memory.verdict in GOOD:
        return with_known(memory, verdict=None)
    return with_known(
        memory, verdict=None, pending=memory.verdict, first=memory.since, count=MOST_OBSERVATIONS
    )


def with_known(memory: Memory, **known: Any) -> Memory:
    return memory.model_copy(update=known)


def still_bad(reading: Reading, beat: AwareDatetime | None, policy: Policy) -> Finding:
    """Judge a reading taken inside a remediation, against the last heartbeat that it saw.

    The same predicate as the sweep's, over the same data. One look can't tell a heartbeat that
    moved and stopped again from clocks that disagree, so neither is hung before the next look.
    """
    finding = find(reading, None, policy)
    if beat is None or finding.verdict not in AT_REST or reading.heartbeat == beat:
        return finding
    return Finding(verdict=Verdict.SKEWED, why=f"the heartbeat moved, and yet: {finding.why}")
