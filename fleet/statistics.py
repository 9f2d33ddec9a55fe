"""How long a fleet's incidents took, and what came of them: medians, by server or by week."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from fleet.remediation import last_word

By = Literal["server", "week"]

#: What is given up may recover after all; its outcome stays.
_GIVEN_UP = frozenset({Outcome.BUDGET_EXHAUSTED, Outcome.ESCALATED})


class Run(BaseModel):
    """One run of a remediation; ``restarted_at`` is when its first restart command went out."""

    model_config = ConfigDict(frozen=True)

    status: RemediationStatus
    restarted_at: AwareDatetime | None = None


class Case(BaseModel):
    """One incident over all its runs. The moments are none where they did not come."""

    model_config = ConfigDict(frozen=True)

    incident: str
    server: str
    since: AwareDatetime
    detected_at: AwareDatetime | None = None
    restarted_at: AwareDatetime | None = None
    recovered_at: AwareDatetime | None = None
    restarts: int = 0
    outcome: Outcome | None = None
    is_open: bool = False


class Row(BaseModel):
    """A group of incidents. Times are medians in seconds from the first observation, and none
    where no incident came so far; ``detected``, ``restarted`` and ``recovered`` count those that
    did. ``outcomes`` counts what came of them by now; of those that wait for a person, which are
    ``open``, too.
    """

    model_config = ConfigDict(frozen=True)

    group: str
    count: int
    open: int
    detected: int
    restarted: int
    recovered: int
    restarts: int
    detect_s: float | None
    restart_s: float | None
    recover_s: float | None
    outcomes: dict[str, int]


def cases(runs: Iterable[Run], since: datetime) -> list[Case]:
    """The incidents that began since then, oldest first. A run that opened none is none."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.status.incident is not None and run.status.since is not None:
            found.setdefault(run.status.incident, []).append(run)
    listed = [_case(name, each) for name, each in found.items()]
    return sorted((case for case in listed if case.since >= since), key=lambda case: case.since)


def rows(found: Sequence[Case], by: By | None) -> list[Row]:
    """A row for each group, in order; without ``by`` one of all, also where there are none."""
    if by is None:
        return [_row("all", found)]
    groups: dict[str, list[Case]] = {}
    for case in found:
        groups.setdefault(_GROUP[by](case), []).append(case)
    return [_row(name, groups[name]) for name in sorted(groups)]


def recovered_at(status: RemediationStatus) -> datetime | None:
    """When the server was seen to work again; none where it was not, or somebody else's word ended
    the incident.
    """
    if status.phase is not Phase.CLOSED or status.outcome is None:
        return None
    if status.outcome in (Outcome.RESOLVED, Outcome.RECOVERED):
        return status.closed_at
    later = status.outcome in _GIVEN_UP and status.next_step == last_word(
        status.outcome, recovered=True
    )
    return status.closed_at if later else None


def _case(incident: str, runs: Sequence[Run]) -> Case:
    """The runs of an incident keep its first observation; the last one has its outcome."""
    told = [run.status for run in runs]
    last = max(told, key=lambda status: status.closed_at or datetime.max.replace(tzinfo=UTC))
    return Case(
        incident=incident,
        server=last.server,
        since=min(status.since for status in told if status.since is not None),
        detected_at=_first(status.detected_at for status in told),
        restarted_at=_first(run.restarted_at for run in runs),
        recovered_at=_first(map(recovered_at, told)),
        restarts=max(status.restarts for status in told),
        outcome=last.outcome,
        is_open=last.phase is not Phase.CLOSED,
    )


def _first(moments: Iterable[datetime | None]) -> datetime | None:
    return min((at for at in moments if at is not None), default=None)


def _row(group: str, found: Sequence[Case]) -> Row:
    detect = _spans(found, lambda case: case.detected_at)
    restart = _spans(found, lambda case: case.restarted_at)
    recover = _spans(found, lambda case: case.recovered_at)
    outcomes = Counter(case.outcome for case in found if case.outcome is not None)
    return Row(
        group=group,
        count=len(found),
        open=sum(case.is_open for case in found),
        detected=len(detect),
        restarted=len(restart),
        recovered=len(recover),
        restarts=sum(case.restarts for case in found),
        detect_s=_median(detect),
        restart_s=_median(restart),
        recover_s=_median(recover),
        outcomes={str(outcome): count for outcome, count in outcomes.most_common()},
    )


def _spans(found: Sequence[Case], moment: Callable[[Case], datetime | None]) -> list[timedelta]:
    """How long after the first observation; clocks of two machines may disagree by a little."""
    came = ((case.since, moment(case)) for case in found)
    return [max(timedelta(0), at - since) for since, at in came if at is not None]


def _median(spans: Sequence[timedelta]) -> float | None:
    return round(median(span.total_seconds() for span in spans), 3) if spans else None


def _week(case: Case) -> str:
    """The ISO week, in UTC, in which the incident began."""
    year, week, _ = case.since.astimezone(UTC).isocalendar()
    return f"{year}-W{week:02d}"


_GROUP: dict[By, Callable[[Case], str]] = {"server": lambda case: case.server, "week": _week}
