"""What looks bad and nobody acts on. Pure: facts of one server in, the reason or nothing out.

Every verdict has an owner by the table of ``fleet.verdicts``; this asks whether that owner is at
work. An act is a remediation that moves, a try that is due, a message that arrived, or an incident
that somebody closed. Where the last one lies longer back than the policy's ``unattended_after``,
and the server has been bad for as long, nobody acts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict

from fleet.contracts.fleet import Pause
from fleet.contracts.guard import GuardState, Hold
from fleet.contracts.remediation import Outcome, Phase
from fleet.durations import brief
from fleet.judge import Memory
from fleet.policy import Policy
from fleet.sweep import is_off_on_purpose
from fleet.verdicts import FOR_REMEDIATION, GOOD, Verdict

#: In these a remediation looks on, and leaves the act to a person.
_FOR_A_PERSON = frozenset({Phase.APPROVING, Phase.ESCALATED})

_HELD: dict[Hold, str] = {
    Hold.CANCELLED: "cancelled by a person",
    Hold.DRY_RUN: "mode dry_run: everything was done but the command",
    Hold.ALERT_ONLY: "automation may not restart it",
    Hold.PERSON: "handed to a person",
    Hold.OUT_OF_TRIES: "every try to restart it failed",
}


@dataclass(frozen=True)
class Run:
    """The newest run of a server's remediation; ``outcome`` is that of one that ended, or gave up.

    ``moved_at`` is when it last did something, or ended; ``next_at`` when it will by itself. It
    can't where there is ``trouble``. ``said`` is the reason that it gave for its outcome.
    """

    phase: Phase
    moved_at: datetime | None = None
    next_at: datetime | None = None
    outcome: Outcome | None = None
    said: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class Told:
    """A message to people, delivered ``at``; ``delivered`` is none while it is on its way."""

    at: datetime
    delivered: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Care:
    """All that was done for one server; ``unasked`` says why its guard did not answer."""

    pause: Pause | None = None
    run: Run | None = None
    guard: GuardState | None = None
    unasked: str = ""
    told: Sequence[Told] = ()


class Unattended(BaseModel):
    """A server that looks bad and that nobody acts on. ``acted_at`` is the last act, if any."""

    model_config = ConfigDict(frozen=True)

    server: str
    verdict: Verdict
    since: AwareDatetime
    acted_at: AwareDatetime | None = None
    why: str


def looks_bad(memory: Memory, policy: Policy, now: datetime) -> tuple[Verdict, datetime] | None:
    """The bad verdict of a server and since when, if that is longer than ``unattended_after``.

    One that waits for its confirmation counts: where no report gets through, none is confirmed.
    """
    found = [(memory.verdict, memory.since), (memory.pending, memory.first)]
    for verdict, since in found:
        if verdict is None or verdict in GOOD or since is None:
            continue
        if is_off_on_purpose(verdict, policy) or now - since <= policy.unattended_after:
            continue
        return verdict, since
    return None


def unattended(
    server: str, memory: Memory, policy: Policy, care: Care, now: datetime
) -> Unattended | None:
    """Why nobody acts on the server; none where it is well, or somebody does.

    A pause is a person's act for as long as it lasts.
    """
    bad = looks_bad(memory, policy, now)
    if bad is None or (care.pause is not None and care.pause.until > now):
        return None
    verdict, since = bad
    acted = max((at for at in _acts(care) if at >= since), default=None)
    if acted is not None and now - acted <= policy.unattended_after:
        return None
    why = "; ".join(_reasons(verdict, care, now))
    return Unattended(server=server, verdict=verdict, since=since, acted_at=acted, why=why)


def _acts(care: Care) -> Iterator[datetime]:
    """When something was done, or will be done by itself."""
    yield from (told.at for told in care.told if told.delivered)
    run, guard = care.run, care.guard
    if run is not None and run.phase not in _FOR_A_PERSON:
        # What merely looks on for a person notes each look, and a look is no act.
        yield from [run.moved_at] if run.moved_at is not None else []
        yield from [run.next_at] if run.next_at is not None and not run.trouble else []
    if guard is not None:
        due = [guard.cooldown_until, guard.incident.next_try_at if guard.incident else None]
        yield from (at for at in due if at is not None)


def _reasons(verdict: Verdict, care: Care, now: datetime) -> Iterator[str]:
    run = care.run
    is_open = run is not None and run.phase is not Phase.CLOSED
    if run is not None and is_open:
        yield _of_an_open_run(run, now)
    elif care.unasked:
        yield f"its guard can't be asked: {care.unasked}"
    elif care.guard is not None and (incident := care.guard.incident) and incident.hold:
        yield f"closed to automation: {_held(incident.hold, run)}"
    elif verdict in FOR_REMEDIATION:
        yield "no remediation runs"
    yield _of_messages(care.told, now)


def _of_an_open_run(run: Run, now: datetime) -> str:
    if run.trouble:
        return f"its remediation can't go on: {run.trouble}"
    if run.phase is Phase.APPROVING:
        return "waits for a person's `steady approve`"
    if run.phase is Phase.ESCALATED:
        return f"{run.outcome or 'escalated'}: waits for a person"
    since = f" for {brief(now - run.moved_at)}" if run.moved_at is not None else ""
    return f"its remediation stands still in {run.phase}{since}"


def _held(hold: Hold, run: Run | None) -> str:
    said = run.said if run is not None and run.phase is Phase.CLOSED else ""
    return said or _HELD[hold]


def _of_messages(told: Sequence[Told], now: datetime) -> str:
    out = [each.at for each in told if each.delivered]
    if out:
        return f"told {brief(now - max(out))} ago, and nothing since"
    stuck = next((each for each in told), None)
    if stuck is None:
        return "nobody was told"
    detail = f": {stuck.detail}" if stuck.detail else ""
    fate = "is still on its way" if stuck.delivered is None else "did not get out"
    return f"the message {fate}{detail}"


class Blind(BaseModel):
    """Servers that no sweep has looked at for longer than the shortest ``unattended_after``."""

    model_config = ConfigDict(frozen=True)

    shard: int
    servers: list[str]
    since: AwareDatetime
    why: str


def longest_blind(policies: Sequence[Policy], every: timedelta) -> timedelta:
    """How long a shard may go unseen before that is listed."""
    shortest = min((policy.unattended_after for policy in policies), default=timedelta(hours=1))
    return max(shortest, 3 * every)
