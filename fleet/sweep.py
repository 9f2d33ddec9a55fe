"""From the readings of a shard to what it remembers, whom it reports, and whom it tells."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fleet import reminders
from fleet.alerts import OVER
from fleet.contracts.alerts import AlertAction, AlertMessage, Severity
from fleet.contracts.guard import GuardState, Hold
from fleet.contracts.names import incident_id
from fleet.contracts.record import Look
from fleet.contracts.sweep import Observation, Report, SweepReadings, SweepResult
from fleet.durations import brief
from fleet.findings import Finding
from fleet.judge import Memory, unconfirmed
from fleet.observing import observe
from fleet.policy import Mode, Policy
from fleet.readings import Reading
from fleet.recording import look, worth_keeping
from fleet.shares import ill
from fleet.verdicts import ALERT_ONLY, FOR_REMEDIATION, GOOD, OFF_LOOKS_LIKE, OWNERS, Verdict

#: Verdicts that may wait until morning; every other one that only a person can mend pages.
_CAN_WAIT = frozenset({Verdict.STALLED, Verdict.SKEWED})
#: So many reasons are kept for whoever looks; a shard that is bad as a whole needs no more.
_MOST_WHYS = 100


@dataclass(frozen=True)
class Judgement:
    """A shard after a sweep. ``reports`` go to remediations, ``alerts`` to people.

    ``looks`` are the readings that are kept for ``steady replay``.
    ``reminders`` has the number of the reminder that is due, by server, where its incident is yet
    to be asked for.
    """

    result: SweepResult
    reports: list[Report] = field(default_factory=list)
    alerts: list[AlertMessage] = field(default_factory=list)
    reminders: Mapping[str, int] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)


def judge_shard(
    shard: int, at: datetime, run: str, seen: SweepReadings, before: SweepResult | None
) -> Judgement:
    """Judge every reading of a shard against the last sweep's memory.

    ``run`` names the sweep; reports are deduplicated by it.
    """
    judged = [_judge(reading, seen, before, run) for reading in seen.readings]
    servers = {one.reading.server: one.memory for one in judged}
    result = SweepResult(
        shard=shard,
        at=at,
        version=seen.version,
        servers=servers,
        ill=ill(servers, before),
        share_heard=before.share_heard if before is not None else "",
        whys=dict(list(_whys(judged))[:_MOST_WHYS]),
    )
    return Judgement(
        result=result,
        reports=[report for one in judged for report in one.reports()],
        alerts=[alert for one in judged for alert in one.alerts()],
        looks=[] if seen.keep_for is None else list(_kept(judged, seen.interval)),
        reminders={one.reading.server: one.reminder for one in judged if one.asks_for_incident},
    )


def with_unsent(judgement: Judgement, unsent: Mapping[str, str]) -> Judgement:
    """The judgement where some reports reached nobody.

    The verdict of such a server counts as not yet confirmed, so that the next sweep reports it
    anew, and none of the others is held up. People hear of it where steady should have acted.
    """
    if not unsent:
        return judgement
    result = judgement.result
    lost = {n: unconfirmed(memory) for n, memory in result.servers.items() if n in unsent}
    return replace(
        judgement,
        result=result.model_copy(update={"servers": {**result.servers, **lost}}),
        alerts=[*judgement.alerts, *_unreported(judgement.reports, unsent)],
    )


def _unreported(reports: list[Report], unsent: Mapping[str, str]) -> Iterator[AlertMessage]:
    for seen in (report.observation for report in reports):
        if seen.server in unsent and seen.verdict in FOR_REMEDIATION:
            yield AlertMessage(
                server=seen.server,
                incident=incident_id(seen.server, seen.since),
                cause="unreported",
                severity=Severity.PAGE,
                title=f"{seen.server} is {seen.verdict}, and steady can't act on it",
                verdict=seen.verdict,
                since=seen.since,
                job=seen.reading.job,
                detail=f"its remediation could not be started: {unsent[seen.server]}"[:1000],
                next_step="a person has to look; every sweep tries again",
            )


def _kept(judged: list["_Judged"], interval: timedelta) -> Iterator[Look]:
    for one in judged:
        if worth_keeping(one.finding, one.then, one.memory, interval):
            yield look(one.reading, one.finding, one.then, one.memory, interval)


def _whys(judged: list["_Judged"]) -> Iterator[tuple[str, str]]:
    for one in judged:
        if one.finding.verdict not in GOOD:
            yield one.reading.server, one.finding.why[:200]


@dataclass(frozen=True)
class _Judged:
    reading: Reading
    finding: Finding
    memory: Memory
    then: Memory | None
    policy: Policy
    paused: bool
    tells: bool
    follows_up: bool
    reminder: int
    run: str

    @property
    def was(self) -> Verdict | None:
        return self.then.verdict if self.then is not None else None

    @property
    def asks_for_incident(self) -> bool:
        """Whether a reminder is due of what only a remediation knows the incident of."""
        return self.reminder > 0 and self.memory.verdict in FOR_REMEDIATION

    @property
    def _changed(self) -> bool:
        return self.memory.verdict is not self.was

    def reports(self) -> Iterator[Report]:
        verdict = self.memory.verdict
        if verdict is None:
            return
        good = verdict in GOOD
        if good and self.was in GOOD:
            return
        if not good and not self._reportable(verdict):
            return
        yield Report(
            observation=Observation(
                server=self.reading.server,
                verdict=verdict,
                since=self.memory.since,
                reading=self.reading,
                why=self.finding.why,
                key=self.run,
            ),
            ongoing=not self._changed,
            good=good,
            mode=self.policy.mode,
            quiet=self.policy.quiet_after_doubt if verdict is Verdict.SUSPECT else None,
            remind=self.asks_for_incident,
            ends=good and self.follows_up,
        )

    def _reportable(self, verdict: Verdict) -> bool:
        if verdict in FOR_REMEDIATION:
            # A blink of another verdict must not be passed on under the confirmed one's name.
            return not self.paused and self.finding.verdict is verdict
        return self._changed

    def alerts(self) -> Iterator[AlertMessage]:
        yield from self._over()
        verdict = self.memory.verdict
        if verdict is None or verdict not in ALERT_ONLY:
            return
        if self.tells:
            yield self._message(verdict, self.memory.since)
        elif self.reminder:
            span = brief(self.reading.at - self.memory.since)
            yield self._message(verdict, self.memory.since).model_copy(
                update={
                    "cause": reminders.cause(self.reminder),
                    "action": AlertAction.UPDATE,
                    "title": f"{self.reading.server} is still {verdict}, for {span}",
                }
            )

    def _over(self) -> Iterator[AlertMessage]:
        """Whoever was told of a verdict for people hears that it is no longer true."""
        before = reminders.matter(self.then)
        if not self.follows_up or before is None or not reminders.told(self.then):
            return
        verdict, since = before
        if verdict not in ALERT_ONLY or before == reminders.matter(self.memory):
            return
        yield self._message(verdict, since).model_copy(
            update={
                "cause": OVER,
                "severity": Severity.NOTICE,
                "action": AlertAction.RESOLVE,
                "paged": verdict not in _CAN_WAIT,
                "title": f"{self.reading.server} is no longer {verdict}: {self.finding.verdict}",
                "next_step": "",
            }
        )

    def _message(self, verdict: Verdict, since: datetime) -> AlertMessage:
        return AlertMessage(
            server=self.reading.server,
            incident=incident_id(self.reading.server, since),
            cause=str(verdict),
            severity=Severity.NOTICE if verdict in _CAN_WAIT else Severity.PAGE,
            title=f"{self.reading.server} is {verdict}",
            verdict=verdict,
            since=since,
            job=self.reading.job,
            detail=self.finding.why,
            next_step=f"a person decides: {OWNERS[verdict].why}",
        )


def _judge(reading: Reading, seen: SweepReadings, before: SweepResult | None, run: str) -> _Judged:
    then = before.servers.get(reading.server) if before is not None else None
    policy = seen.policies[seen.policy_of[reading.server]]
    memory, finding = observe(reading, then, policy, seen.interval)
    pause = seen.paused.get(reading.server)
    paused = pause is not None and pause.until > reading.at
    told = reminders.carried(memory, then) if seen.follows_up else 0
    owed = not told and _is_owed(memory, then)
    off = memory.verdict is not None and is_off_on_purpose(memory.verdict, policy)
    quiet = paused or off or finding.verdict is not memory.verdict
    tells = owed and not quiet
    known = {"owed": int(owed and quiet)}
    reminder = 0
    if seen.follows_up:
        told = max(told, int(tells))
        if not quiet and not tells:
            reminder = _reminder(memory, told, policy)
        is_mine = reminder > 0 and memory.verdict in ALERT_ONLY
        known["told"] = reminder + 1 if is_mine else told
    return _Judged(
        reading=reading,
        finding=finding,
        memory=memory.model_copy(update=known),
        then=then,
        policy=policy,
        paused=paused,
        tells=tells,
        follows_up=seen.follows_up,
        reminder=reminder,
        run=run,
    )


def _reminder(memory: Memory, told: int, policy: Policy) -> int:
    """The number of the reminder that is due now; of several that are, only the last is told."""
    if memory.verdict is None or memory.verdict in GOOD:
        return 0
    due = reminders.due(memory.since, memory.at, policy.remind_after)
    return due if due >= max(told, 1) else 0


def _is_owed(memory: Memory, then: Memory | None) -> bool:
    """Whether people have yet to hear of the verdict: it is new, or was kept quiet until now."""
    if memory.verdict not in ALERT_ONLY:
        return False
    return then is None or then.verdict is not memory.verdict or then.owed > 0


def is_off_on_purpose(verdict: Verdict, policy: Policy) -> bool:
    """Whether a machine that may be off shows just what one shows that is."""
    return policy.expected_off and verdict in OFF_LOOKS_LIKE


def is_too_old(asked: datetime, now: datetime, seen: SweepReadings) -> bool:
    """Whether readings that were asked for at ``asked`` may no longer be judged.

    Both times are Temporal's clock: a worker that slept between reading and judging shows here.
    """
    limit = min((policy.reading_max_age for policy in seen.policies), default=timedelta(minutes=1))
    return now - asked > limit


def may_open(guard: GuardState | None, mode: Mode, now: datetime) -> bool:
    """Whether automation may open (again) the incident of a server whose remediation isn't running.

    Not while a person keeps it closed, not before the next try is due, not in the cooldown after a
    restart, when a booting server looks just like a hung one.
    """
    if guard is None:
        return True
    if guard.cooldown_until is not None and guard.cooldown_until > now:
        return False
    incident = guard.incident
    if incident is None:
        return True
    if incident.hold in (Hold.DRY_RUN, Hold.ALERT_ONLY) and incident.hold_mode is not mode:
        return True
    if incident.hold is not None:
        return False
    return incident.next_try_at is None or incident.next_try_at <= now
