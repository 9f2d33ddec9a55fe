"""The story of one incident, from what Temporal keeps: statuses, histories, and the alerts.

A worker is needed for nothing but the newest words of an incident that is open.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from pydantic import AwareDatetime, BaseModel, ConfigDict
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError

from fleet.contracts.names import REMEDIATION, guard_id, remediation_id
from fleet.contracts.remediation import Moment, Outcome, Phase, RemediationStatus
from fleet.details import meaning
from fleet.statistics import recovered_at
from fleet.verdicts import Verdict
from worker.deeds import Booked, Commanded, Deeds, Saved, deeds
from worker.runs import listed, told
from worker.sweeps import first
from worker.told import AlertTold, alerts_of

_MOST_LISTED = 2000
#: So many histories are read; an incident has a few runs.
_MOST_RUNS = 50
#: The clocks of a heartbeat's observer and of Temporal may differ by so much.
_SLACK = timedelta(minutes=5)
_SUGGESTIONS = 5


class UnknownError(Exception):
    """There is no such incident; ``instead`` are names under which there is one."""

    def __init__(self, name: str, instead: Sequence[str]) -> None:
        super().__init__(name)
        self.instead = tuple(instead)


class Story(BaseModel):
    """One incident over all its runs, as ``steady incident show --json`` prints it.

    ``restarted_at`` is the end of the first restart command that may have had an effect.
    ``complete`` is false where the newest words of an open incident are missing, as no worker
    answers. ``runs`` are Temporal's run IDs, oldest first.
    """

    model_config = ConfigDict(frozen=True)

    incident: str | None
    server: str
    workflow_id: str
    runs: list[str] = []
    phase: Phase | None = None
    verdict: Verdict | None = None
    outcome: Outcome | None = None
    meaning: str = ""
    job: str | None = None
    since: AwareDatetime | None = None
    detected_at: AwareDatetime | None = None
    restarted_at: AwareDatetime | None = None
    recovered_at: AwareDatetime | None = None
    closed_at: AwareDatetime | None = None
    restarts: int = 0
    next_step: str = ""
    next_at: AwareDatetime | None = None
    timeline: list[Moment] = []
    commands: list[Commanded] = []
    budget: list[Booked] = []
    evidence: list[Saved] = []
    alerts: list[AlertTold] = []
    complete: bool = True


async def find(client: Client, name: str) -> Story:
    """The incident of that ID; of a server or a workflow, its latest one.

    Raises:
        UnknownError: there is none.
    """
    server, incident = named(name)
    runs = await _runs_of(client, server, incident)
    if incident is None:
        incident = next((run.incident for run in reversed(runs) if run.incident), None)
    mine = [run for run in runs if run.incident == incident]
    if incident is None and runs:
        mine = runs[-1:]
    alerts = await alerts_of(client, incident) if incident is not None else []
    if not mine and not alerts:
        raise UnknownError(name, await _instead(client, server, runs))
    return _story(server, incident, mine, alerts)


def named(name: str) -> tuple[str, str | None]:
    """Server and incident, from an incident's ID, a server's name or a workflow's ID."""
    for prefix in (remediation_id(""), guard_id("")):
        if name.startswith(prefix):
            return name.removeprefix(prefix), None
    bare = name.removeprefix("alert/")
    incident = bare.split("/", 1)[0]
    server, at, _ = incident.rpartition("@")
    return (server, incident) if at else (bare, None)


class _Run(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: str
    started: AwareDatetime
    goes_on: bool
    told: RemediationStatus | None
    listed: RemediationStatus
    deeds: Deeds

    @property
    def incident(self) -> str | None:
        if self.told is not None and self.told.incident is not None:
            return self.told.incident
        return self.deeds.incident.id if self.deeds.incident is not None else None

    @property
    def status(self) -> RemediationStatus:
        """Its own words, else the listing's with what the history knows better."""
        if self.told is not None:
            return self.told
        opened = self.deeds.incident
        if opened is None:
            return self.listed
        known = {
            "incident": opened.id,
            "verdict": self.listed.verdict or opened.verdict,
            "since": opened.first_observed,
            "detected_at": self.deeds.opened_at,
            "job": opened.job,
            "restarts": opened.restarts + len(self.deeds.restarts),
            "timeline": list(_timeline(self.deeds)),
        }
        return self.listed.model_copy(update=known)


async def _runs_of(client: Client, server: str, incident: str | None) -> list[_Run]:
    """The runs that may belong to the incident, oldest first; without one, those of the latest."""
    query = f"WorkflowId = '{_quoted(remediation_id(server))}'"
    began = moment_of(incident) if incident is not None else None
    if began is not None:
        query += f" AND StartTime >= '{(began - _SLACK).isoformat()}'"
    found = [each async for each in first(client.list_workflows(query), _MOST_LISTED)]
    found.sort(key=lambda run: run.start_time, reverse=incident is None)
    runs: list[_Run] = []
    for each in found[:_MOST_RUNS]:
        run = await _run(client, each)
        seen = {known.incident for known in runs if known.incident is not None}
        wanted = seen if incident is None else seen & {incident}
        if wanted and run.incident is not None and run.incident not in wanted:
            break
        runs.append(run)
    return sorted(runs, key=lambda run: run.started)


async def _run(client: Client, run: WorkflowExecution) -> _Run:
    said, did = await asyncio.gather(_told(client, run), _deeds(client, run))
    return _Run(
        id=run.run_id,
        started=run.start_time,
        goes_on=run.status is WorkflowExecutionStatus.CONTINUED_AS_NEW,
        told=said,
        listed=listed(run),
        deeds=did,
    )


async def _told(client: Client, run: WorkflowExecution) -> RemediationStatus | None:
    if run.status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
        return None
    return await told(client, run)


async def _deeds(client: Client, run: WorkflowExecution) -> Deeds:
    try:
        return await deeds(client, run)
    except RPCError:
        return Deeds()


def _story(
    server: str, incident: str | None, runs: Sequence[_Run], alerts: Sequence[AlertTold]
) -> Story:
    if not runs:
        return _only_told(server, incident, alerts)
    last = runs[-1].status
    spoken = [run.status for run in runs if not run.goes_on] or [last]
    return Story(
        incident=incident,
        server=server,
        alerts=list(alerts),
        workflow_id=remediation_id(server),
        runs=[run.id for run in runs],
        **last.model_dump(include={"phase", "verdict", "outcome", "job", "next_step", "next_at"}),
        meaning=meaning(last) or last.next_step,
        since=last.since,
        detected_at=_first(each.detected_at for each in spoken),
        restarted_at=_first(run.deeds.restarted_at for run in runs),
        recovered_at=recovered_at(last),
        closed_at=last.closed_at,
        restarts=max(each.restarts for each in spoken),
        timeline=_merged(spoken),
        commands=[each for run in runs for each in run.deeds.restarts],
        budget=[each for run in runs for each in run.deeds.budget],
        evidence=[each for run in runs for each in run.deeds.evidence],
        complete=runs[-1].told is not None or last.phase is Phase.CLOSED,
    )


def _only_told(server: str, incident: str | None, alerts: Sequence[AlertTold]) -> Story:
    """An incident that was a person's from its beginning: nothing was remediated."""
    begin = alerts[0]
    return Story(
        incident=incident,
        server=server,
        workflow_id=begin.workflow_id,
        verdict=begin.verdict,
        meaning="people were told; steady does not act on it",
        job=begin.job,
        since=begin.since,
        timeline=[Moment(at=each.at, text=f"{each.severity}: {each.title}") for each in alerts],
        alerts=list(alerts),
    )


def _merged(spoken: Iterable[RemediationStatus]) -> list[Moment]:
    """One timeline of several runs: what continues as new hands its last moments on."""
    moments = {(at.at, at.text): at for status in spoken for at in status.timeline}
    return sorted(moments.values(), key=lambda moment: moment.at)


def _timeline(did: Deeds) -> Iterable[Moment]:
    """What the history alone says, for a run that does not speak for itself."""
    moments = [Moment(at=each.at, text=f"budget: {each.word} {each.why}") for each in did.budget]
    moments += [
        Moment(at=each.at, text=f"evidence: {each.path or 'none'}") for each in did.evidence
    ]
    moments += [
        Moment(at=each.at, text=f"restart command: {each.effect} {each.detail}".strip())
        for each in did.restarts
    ]
    if did.incident is not None and did.opened_at is not None:
        moments.append(Moment(at=did.opened_at, text=f"incident {did.incident.id} opened"))
    return sorted(moments, key=lambda moment: moment.at)


def _first(moments: Iterable[datetime | None]) -> datetime | None:
    return min((at for at in moments if at is not None), default=None)


def moment_of(incident: str) -> datetime | None:
    """The first observation that an incident's ID names."""
    try:
        read = datetime.strptime(incident.rpartition("@")[2], "%Y%m%dT%H%M%S.%fZ")  # noqa: DTZ007
    except ValueError:
        return None
    return read.replace(tzinfo=UTC)


def _quoted(text: str) -> str:
    """Text within a query of Temporal's listing."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


async def _instead(client: Client, server: str, runs: Sequence[_Run]) -> list[str]:
    """Incidents of that server; else the nearest servers that have some."""
    own = dict.fromkeys(run.incident for run in reversed(runs) if run.incident is not None)
    if own:
        return [*own][:_SUGGESTIONS]
    query = f"WorkflowType = '{REMEDIATION}'"
    found = [run async for run in first(client.list_workflows(query), _MOST_LISTED)]
    names = list(dict.fromkeys(run.id.removeprefix(remediation_id("")) for run in found))
    if server in names:
        latest = await _runs_of(client, server, None)
        return [run.incident for run in reversed(latest) if run.incident is not None]
    return get_close_matches(server, names, n=_SUGGESTIONS) or names[:_SUGGESTIONS]
