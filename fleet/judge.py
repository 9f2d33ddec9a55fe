"""From readings to verdicts. Pure: the same readings give every observer the same answer.

What one sweep leaves for the next is a ``Memory``. It travels as the schedule's last completion
result, so "two observations in a row" is shared, durable data: two workers can't disagree on it,
and a worker that was restarted forgets nothing.
"""

from datetime import timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict

from fleet.durations import brief
from fleet.policy import Policy
from fleet.readings import Reading, ReadStatus, WorkState
from fleet.verdicts import GOOD, Verdict

#: After a gap of more than this many intervals between two sweeps the earlier one proves nothing.
FRESH_INTERVALS = 2.5


class Finding(BaseModel):
    """What a single reading says, and in words, why."""

    model_config = ConfigDict(frozen=True)

    verdict: Verdict
    why: str


class Memory(BaseModel):
    """What is known of a server after a sweep, in at most 300 bytes.

    ``verdict`` is the confirmed one (none before the first), true since ``since``. ``pending`` is a
    bad verdict that has been seen ``count`` times in a row from ``first`` on. ``moved`` is when the
    progress marker last changed, by the observer's clock.
    """

    model_config = ConfigDict(frozen=True)

    at: AwareDatetime
    verdict: Verdict | None = None
    since: AwareDatetime
    pending: Verdict | None = None
    first: AwareDatetime | None = None
    count: int = 0
    beat: AwareDatetime | None = None
    progress: str | None = None
    moved: AwareDatetime | None = None
    loading: AwareDatetime | None = None


def find(reading: Reading, before: Memory | None, policy: Policy) -> Finding:
    """Judge one reading against the previous one.

    An old heartbeat counts as standing still only if its value is the same as in ``before``: age
    alone compares two clocks, a change is seen by one.
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
        return _old(reading, before, age)
    return _fresh(reading, before, policy)


def _old(reading: Reading, before: Memory | None, age: timedelta) -> Finding:
    if before is not None and before.beat is not None and reading.heartbeat != before.beat:
        return Finding(
            verdict=Verdict.SKEWED,
            why=f"the heartbeat moves, yet reads {brief(age)} old: clocks disagree",
        )
    said = f"state {reading.word or reading.state}, heartbeat {brief(age)} old"
    if reading.state is WorkState.PROCESSING:
        return Finding(verdict=Verdict.HUNG, why=said)
    return Finding(verdict=Verdict.SILENT, why=said)


def _fresh(reading: Reading, before: Memory | None, policy: Policy) -> Finding:
    if reading.state is WorkState.LOADING:
        began = before.loading if before is not None and before.loading else reading.at
        if reading.at - began > policy.load_limit:
            return Finding(verdict=Verdict.OVERDUE, why=f"loading for {brief(reading.at - began)}")
        return Finding(verdict=Verdict.LOADING, why="loading")
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


def _standing_still(reading: Reading, before: Memory | None) -> timedelta:
    if reading.progress is None or before is None or before.moved is None:
        return timedelta(0)
    if reading.progress != before.progress:
        return timedelta(0)
    return reading.at - before.moved


def observe(
    reading: Reading, before: Memory | None, policy: Policy, interval: timedelta
) -> tuple[Memory, Finding]:
    """Judge a reading and remember it.

    A bad verdict is confirmed when it has been seen ``policy.observations`` times in a row; a good
    one at once. The first sweep of all, and the first after steady's own pause, only looks: what
    lies before the gap is no "previous observation".
    """
    fresh = before is not None and timedelta(0) < reading.at - before.at <= (
        interval * FRESH_INTERVALS
    )
    finding = find(reading, before if fresh else None, policy)
    memory = _carried(reading, before, fresh)
    if finding.verdict in GOOD:
        same = before is not None and before.verdict in GOOD
        since = before.since if same and before is not None else reading.at
        return memory.model_copy(update={"verdict": finding.verdict, "since": since}), finding
    if not fresh or before is None:
        return memory, finding
    if before.verdict is finding.verdict:
        kept = {"verdict": before.verdict, "since": before.since}
        return memory.model_copy(update=kept), finding
    return _count(memory, before, reading, finding, policy), finding


def _carried(reading: Reading, before: Memory | None, fresh: bool) -> Memory:
    is_loading = reading.status is ReadStatus.OK and reading.state is WorkState.LOADING
    began = before.loading if before is not None and before.loading else reading.at
    unmoved = fresh and before is not None and before.moved and before.progress == reading.progress
    return Memory(
        at=reading.at,
        since=reading.at,
        beat=reading.heartbeat,
        progress=reading.progress,
        moved=before.moved if unmoved and before is not None else reading.at,
        loading=began if is_loading else None,
    )


def _count(
    memory: Memory, before: Memory, reading: Reading, finding: Finding, policy: Policy
) -> Memory:
    again = before.pending is finding.verdict
    count = before.count + 1 if again else 1
    first = before.first if again and before.first is not None else reading.at
    if count >= policy.observations:
        return memory.model_copy(update={"verdict": finding.verdict, "since": first})
    return memory.model_copy(
        update={
            "verdict": before.verdict,
            "since": before.since,
            "pending": finding.verdict,
            "first": first,
            "count": count,
        }
    )


def still_bad(reading: Reading, beat: AwareDatetime | None, policy: Policy) -> Finding:
    """Judge a reading taken inside a remediation, against the heartbeat that its incident saw.

    The same predicate as the sweep's, over the same data.
    """
    then = Memory(at=reading.at, since=reading.at, beat=beat) if beat is not None else None
    return find(reading, then, policy)
