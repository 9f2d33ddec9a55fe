"""What a remediation decides. Pure functions over what was just read."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleet.config import CommandRestart
from fleet.contracts.fleet import PresentPolicy
from fleet.contracts.guard import Hold
from fleet.contracts.host import HostState, HostStatus
from fleet.contracts.remediation import Outcome
from fleet.findings import Finding
from fleet.policy import Mode, Policy
from fleet.readings import Reading
from fleet.verdicts import ACTIONABLE, GOOD, Verdict


class Next(StrEnum):
    """Where the recheck at the last moment sends the incident."""

    RESTART = "restart"
    END = "end"
    WAIT = "wait"
    BOOTING = "booting"
    APPROVAL = "approval"


@dataclass(frozen=True)
class Decision:
    next: Next
    why: str
    outcome: Outcome | None = None
    recovered: bool = False

    @classmethod
    def end(cls, outcome: Outcome, why: str, *, recovered: bool = False) -> "Decision":
        return cls(Next.END, why, outcome, recovered)


@dataclass(frozen=True)
class Standing:
    """What an incident knows when it comes to the last recheck."""

    now: datetime
    by_hand: bool
    approved: bool
    not_before: datetime | None
    seen: HostState | None
    waited_for: str


def by_policy(present: PresentPolicy, standing: Standing) -> Decision | None:
    """What the present policy forbids, or none.

    A person's ``restart_now`` outranks pause, mode and snooze: they bind automation.
    """
    if present.spec is None:
        return Decision.end(Outcome.REMOVED, "the server is no longer in the fleet")
    if present.spec.restart is None:
        return Decision.end(Outcome.ALERT_ONLY, "no restart is configured: a person has to act")
    if standing.by_hand:
        return None
    if present.pause is not None and present.pause.until > standing.now:
        who = f" by {present.pause.who}" if present.pause.who else ""
        return Decision.end(Outcome.PAUSED, f"paused until {present.pause.until:%H:%M:%S}{who}")
    return _by_mode(present.spec.policy.mode, standing)


def _by_mode(mode: Mode, standing: Standing) -> Decision | None:
    if mode is Mode.ALERT_ONLY:
        return Decision.end(Outcome.ALERT_ONLY, "mode alert_only: a person has to act")
    if standing.not_before is not None and standing.not_before > standing.now:
        return Decision(Next.WAIT, f"snoozed until {standing.not_before:%H:%M:%S}")
    if mode is Mode.APPROVE and not standing.approved:
        return Decision(Next.APPROVAL, "mode approve: a person has to signal approve")
    return None


def by_reading(finding: Finding, standing: Standing) -> Decision | None:
    if standing.by_hand:
        return None
    if finding.verdict in GOOD:
        return Decision.end(Outcome.RECOVERED, f"{finding.verdict}: {finding.why}")
    if finding.verdict not in ACTIONABLE:
        return Decision(Next.WAIT, f"{finding.verdict}: {finding.why}")
    return None


def by_host(
    host: HostState, present: PresentPolicy, reading: Reading, standing: Standing
) -> Decision | None:
    """What the host forbids: we never start what somebody stopped, paused or replaced."""
    if host.status is HostStatus.RESTARTING:
        return Decision(Next.BOOTING, "the host is restarting it already")
    why = _must_be_left(host, present, standing)
    if why is not None:
        return Decision.end(Outcome.HANDED_OVER, why)
    if _is_booting(host, reading, standing):
        return Decision(
            Next.BOOTING,
            "its process was started after the last heartbeat: it may still be loading",
        )
    return None


def _must_be_left(host: HostState, present: PresentPolicy, standing: Standing) -> str | None:
    if host.status in (HostStatus.STOPPED, HostStatus.PAUSED, HostStatus.GONE):
        return f"on the host it is {host.status}: somebody did that, not steady"
    if host.status is HostStatus.UNKNOWN and not _has_no_identity(present):
        return f"the host does not say what runs there: {host.detail}"
    if standing.seen is not None and standing.seen.identity and not host.same_object(standing.seen):
        return "it was replaced while the incident was open"
    return f"a restart would do harm: {host.hindrance}" if host.hindrance else None


def _has_no_identity(present: PresentPolicy) -> bool:
    restart = present.spec.restart if present.spec is not None else None
    return isinstance(restart, CommandRestart) and not restart.identity


def _is_booting(host: HostState, reading: Reading, standing: Standing) -> bool:
    """Both times are the host's, so they may be compared. Waited for once, and no longer."""
    if standing.by_hand or host.started_at is None or reading.heartbeat is None:
        return False
    return host.started_at > reading.heartbeat and standing.waited_for != host.own_start


def deadline(since: dict[Verdict, datetime], policy: Policy) -> datetime | None:
    """When the act is due: the earliest of the verdicts that are still true."""
    due = [at + policy.persistence(verdict) for verdict, at in since.items()]
    return min(due, default=None)


def verified(
    before: HostState, after: HostState | None, now: HostState, finding: Finding
) -> tuple[bool, str]:
    """Whether the cure worked: another process than before, still the same one, and healthy."""
    if now.status is not HostStatus.UNKNOWN:
        if now.status is not HostStatus.RUNNING:
            return False, f"on the host it is {now.status}"
        if now.same_process(before):
            return False, "the host still shows the process from before the restart"
        if after is not None and after.identity and not _is_still(after, now):
            return False, "the process that the restart started is gone: it was started again"
        if before.process and now.own_start == before.own_start:
            return False, "the server's own process is still the one from before the restart"
    if finding.verdict not in GOOD:
        return False, f"{finding.verdict}: {finding.why}"
    return True, f"a new process, {finding.verdict}"


def _is_still(after: HostState, now: HostState) -> bool:
    return now.same_process(after) and now.own_start == after.own_start


def is_old_record(reading: Reading, beat: datetime | None) -> bool:
    """Whether the record is still the one that the process before the restart wrote."""
    if reading.engine is not None:
        return False
    return reading.heartbeat is None or reading.heartbeat == beat


#: The holds with which an outcome leaves its incident closed to automation.
HOLDS: dict[Outcome, Hold] = {
    Outcome.CANCELLED: Hold.CANCELLED,
    Outcome.DRY_RUN: Hold.DRY_RUN,
    Outcome.ALERT_ONLY: Hold.ALERT_ONLY,
    Outcome.NOT_APPROVED: Hold.PERSON,
    Outcome.HANDED_OVER: Hold.PERSON,
}

#: What the next run of a held incident says it is.
HELD: dict[Hold, Outcome] = {
    Hold.CANCELLED: Outcome.CANCELLED,
    Hold.DRY_RUN: Outcome.DRY_RUN,
    Hold.ALERT_ONLY: Outcome.ALERT_ONLY,
    Hold.PERSON: Outcome.HANDED_OVER,
    Hold.OUT_OF_TRIES: Outcome.RESTART_FAILED,
}

#: Outcomes after which the incident itself is over.
OVER = frozenset({Outcome.RESOLVED, Outcome.RECOVERED, Outcome.NOT_CONFIRMED, Outcome.REMOVED})

#: Outcomes of which nobody needs to hear.
QUIET = frozenset({Outcome.NOT_CONFIRMED, Outcome.REMOVED})

#: Outcomes of a run that failed, so that a later one may try again, spaced and bounded.
TRY_AGAIN = frozenset({Outcome.RESTART_FAILED, Outcome.INTERNAL_ERROR})

#: What a person should make of an outcome, for alerts and tables.
MEANING: dict[Outcome, str] = {
    Outcome.RESOLVED: "restarted, and healthy since",
    Outcome.RECOVERED: "recovered by itself; nothing was done",
    Outcome.NOT_CONFIRMED: "not confirmed; nothing was done",
    Outcome.CANCELLED: "cancelled by a person; closed to automation until it has recovered",
    Outcome.PAUSED: "paused; nothing was done",
    Outcome.REMOVED: "no longer in the fleet",
    Outcome.DRY_RUN: "would have been restarted (mode dry_run)",
    Outcome.ALERT_ONLY: "waits for a person: automation may not restart it",
    Outcome.NOT_APPROVED: "nobody approved the restart in time",
    Outcome.HANDED_OVER: "handed to a person",
    Outcome.RESTART_FAILED: "the restart could not be carried out",
    Outcome.BUDGET_EXHAUSTED: "the restart budget is used up; waits for a person",
    Outcome.ESCALATED: "the restart did not help; waits for a person",
    Outcome.INTERNAL_ERROR: "steady itself failed; see the workflow",
}

_RECOVERED_LATER: dict[Outcome, str] = {
    Outcome.BUDGET_EXHAUSTED: "the restart budget was used up; it recovered later",
    Outcome.ESCALATED: "the restart did not help; it recovered later",
}


def last_word(outcome: Outcome, *, recovered: bool, restarts: int = 0) -> str:
    """What a person should make of an incident that is closed; some recover after all."""
    if outcome is Outcome.RECOVERED and restarts:
        return "restarted, and recovered later than was waited for"
    return _RECOVERED_LATER.get(outcome, MEANING[outcome]) if recovered else MEANING[outcome]


#: Outcomes that a person must hear of at once.
PAGES = frozenset(
    {
        Outcome.ALERT_ONLY,
        Outcome.NOT_APPROVED,
        Outcome.HANDED_OVER,
        Outcome.RESTART_FAILED,
        Outcome.BUDGET_EXHAUSTED,
        Outcome.ESCALATED,
        Outcome.INTERNAL_ERROR,
    }
)
