"""What steady knows at one moment, read from Temporal for whoever looks: live view, status, demo.

Everything comes from what Temporal keeps: the sweeps' results, the remediations' own status, and,
where no worker is there to answer, their search attributes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError

from activities.storms import StormReader
from fleet.config import FleetSection
from fleet.contracts.fleet import FleetQuery, FleetState, Pause
from fleet.contracts.guard import Incident
from fleet.contracts.names import FLEET_ID, REMEDIATION
from fleet.contracts.remediation import Phase, RemediationStatus
from fleet.contracts.storm import StormState
from fleet.contracts.sweep import SweepResult
from fleet.duration_fields import Duration
from fleet.judge import Memory
from fleet.storms import blocked_by
from fleet.verdicts import ALERT_ONLY, Verdict
from worker.proved import ProvedReader, is_proved
from worker.runs import listed, told
from worker.sweeps import PROBES, SweepReader, first

_PATIENCE = timedelta(seconds=3)
_AT_ONCE = 8

T = TypeVar("T")


class ServerView(BaseModel):
    """A server as the last sweep left it; ``verdict`` is none before the first one. Where an open
    incident has proved what no sweep can see, that is the verdict, also when its run has ended.

    ``pending`` is a bad verdict that waits for its confirmation. ``phase`` is that of the server's
    open incident. ``seen_at`` is when it was last read, by the worker's clock.
    """

    model_config = ConfigDict(frozen=True)

    server: str
    verdict: Verdict | None = None
    since: AwareDatetime | None = None
    pending: Verdict | None = None
    why: str = ""
    seen_at: AwareDatetime | None = None
    phase: Phase | None = None
    paused: Pause | None = None


class Snapshot(BaseModel):
    """The whole fleet: ``servers`` by name, ``open`` and ``closed`` incidents newest first.

    ``blocked_by`` is what blocks every restart, empty where nothing does.

    ``fleet`` is none where nothing was applied, or nobody could say. ``problems`` are the things
    that could not be read, each in one line; what is there is then older or less.

    An incident stands once, as its newest run tells it. ``tries`` has, by incident, how many of its
    runs were read; one where it has none.
    """

    model_config = ConfigDict(frozen=True)

    at: AwareDatetime
    fleet: str | None = None
    version: int = 0
    applied_at: AwareDatetime | None = None
    sweep_every: Duration = timedelta(seconds=30)
    temporal_ui: str | None = None
    fleet_pause: Pause | None = None
    blocked_by: str = ""
    servers: list[ServerView] = []
    open: list[RemediationStatus] = []
    closed: list[RemediationStatus] = []
    tries: dict[str, int] = {}
    problems: list[str] = []


async def fetch_snapshot(client: Client, *, closed: int = 20) -> Snapshot:
    """Look once, within some seconds; ``closed`` bounds how many ended incidents are read."""
    return await SnapshotReader(client, closed=closed).fetch()


class SnapshotReader:
    """Looks again and again, and reads what can't change only once."""

    def __init__(self, client: Client, *, closed: int = 20) -> None:
        self._client = client
        self._closed = closed
        self._results: dict[str, RemediationStatus] = {}
        self._sweeps = SweepReader(client)
        self._probes = SweepReader(client, PROBES)
        self._storms = StormReader(client)
        self._proved = ProvedReader(client)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def fetch(self) -> Snapshot:
        problems: list[str] = []
        state, sweeps, probes, incidents, storm = await asyncio.gather(
            _or(FleetState(), self._fleet(), "the fleet", problems),
            _or([], self._last_sweeps(), "the sweeps", problems),
            _or([], self._last_probes(), "the probes", problems),
            _or(Incidents(), self._remediations(), "the incidents", problems),
            _or(StormState(), self._storms.state(_PATIENCE), "the limit on restarts", problems),
        )
        fleet = state.fleet
        rows = views(state, sweeps, incidents.open, probes)
        alone = {row.server for row in rows if row.phase is None}
        held = await self._proved.incidents(
            {
                name: memory
                for sweep in sweeps
                for name, memory in sweep.servers.items()
                if name in alone
            },
            problems,
        )
        return Snapshot(
            at=datetime.now(UTC),
            fleet=fleet.fleet.name if fleet is not None else None,
            version=state.version,
            applied_at=state.applied_at,
            sweep_every=(fleet.fleet if fleet is not None else FleetSection()).sweep_every,
            temporal_ui=fleet.fleet.temporal_ui if fleet is not None else None,
            fleet_pause=state.fleet_pause,
            blocked_by=blocked_by(storm),
            servers=[_as_held(row, held.get(row.server)) for row in rows],
            open=incidents.open,
            closed=incidents.closed,
            tries=incidents.tries,
            problems=problems,
        )

    async def _fleet(self) -> FleetState:
        handle = self._client.get_workflow_handle(FLEET_ID)
        state: FleetState = await handle.query(
            FleetQuery.STATE, result_type=FleetState, rpc_timeout=_PATIENCE
        )
        return state

    async def _last_sweeps(self) -> list[SweepResult]:
        shards = await self._sweeps.fetch()
        return [shard.result for shard in shards if shard.result is not None]

    async def _last_probes(self) -> list[SweepResult]:
        """An old one says nothing of the present."""
        now, shards = datetime.now(UTC), await self._probes.fetch()
        return [each.result for each in shards if each.result and each.is_fresh(now)]

    async def _remediations(self) -> "Incidents":
        """All that run, and the newest of those that ended; a run that continues is not an end."""
        runs = self._client.list_workflows(f"WorkflowType = '{REMEDIATION}'")
        open_runs: list[WorkflowExecution] = []
        ended: list[WorkflowExecution] = []
        async for run in first(runs, 10 * self._closed):
            if run.status is WorkflowExecutionStatus.RUNNING:
                open_runs.append(run)
            elif run.status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
                ended.append(run)
        del ended[self._closed :]
        incidents = once(
            await asyncio.gather(*(self._bounded(self._status(run)) for run in open_runs)),
            await asyncio.gather(*(self._bounded(self._status(run)) for run in ended)),
        )
        shown = {run.run_id for run in ended}
        self._results = {run: status for run, status in self._results.items() if run in shown}
        return incidents

    async def _status(self, run: WorkflowExecution) -> RemediationStatus:
        known = self._results.get(run.run_id)
        if known is not None:
            return known
        status = await told(self._client, run)
        if status is None:
            return listed(run)
        if run.status is not WorkflowExecutionStatus.RUNNING:
            self._results[run.run_id] = status
        return status

    async def _bounded(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._slots:
            return await work


@dataclass(frozen=True)
class Incidents:
    """As in a ``Snapshot``."""

    open: list[RemediationStatus] = field(default_factory=list)
    closed: list[RemediationStatus] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)


def once(opened: list[RemediationStatus], ended: list[RemediationStatus]) -> Incidents:
    """Each incident once: a restart that could not be carried out is tried in a run of its own.

    Both are newest first. A run that opened no incident stands for itself.
    """
    tries = Counter(run.incident for run in (*opened, *ended) if run.incident is not None)
    seen: set[str] = set()

    def is_first(run: RemediationStatus) -> bool:
        known = run.incident in seen
        seen.update([run.incident] if run.incident is not None else [])
        return not known

    return Incidents(
        open=[run for run in opened if is_first(run)],
        closed=[run for run in ended if is_first(run)],
        tries={incident: count for incident, count in tries.items() if count > 1},
    )


def views(
    state: FleetState,
    sweeps: list[SweepResult],
    incidents: list[RemediationStatus],
    probes: Sequence[SweepResult] = (),
) -> list[ServerView]:
    """A row for each server of the fleet, by name; ``incidents`` are the open ones."""
    sweeps = [_with_probes(sweep, probes) for sweep in sweeps]
    memories = {name: memory for sweep in sweeps for name, memory in sweep.servers.items()}
    whys = {name: why for sweep in sweeps for name, why in sweep.whys.items()}
    opened = {status.server: status for status in incidents}
    known = state.fleet.servers if state.fleet is not None else memories
    return [
        _view(name, memories.get(name), whys.get(name, ""), opened.get(name)).model_copy(
            update={"paused": state.pauses.get(name)}
        )
        for name in sorted(known)
    ]


def _with_probes(sweep: SweepResult, probes: Sequence[SweepResult]) -> SweepResult:
    """What a probe found that a sweep can't see: an engine that looks idle, and did not answer."""
    found = {
        name: (memory, probe.whys.get(name, ""))
        for probe in probes
        for name, memory in probe.servers.items()
        if memory.verdict in ALERT_ONLY
        and (swept := sweep.servers.get(name)) is not None
        and swept.verdict is Verdict.IDLE
    }
    return sweep.model_copy(
        update={
            "servers": {**sweep.servers, **{name: memory for name, (memory, _) in found.items()}},
            "whys": {**sweep.whys, **{name: why for name, (_, why) in found.items()}},
        }
    )


def _view(
    server: str, memory: Memory | None, why: str, incident: RemediationStatus | None
) -> ServerView:
    phase = incident.phase if incident is not None else None
    if memory is None:
        return ServerView(server=server, phase=phase)
    swept = ServerView(
        server=server,
        verdict=memory.verdict,
        since=memory.since,
        pending=memory.pending,
        why=why,
        seen_at=memory.at,
        phase=phase,
    )
    return _as_proved(swept, incident) if incident is not None else swept


def _as_proved(swept: ServerView, incident: RemediationStatus) -> ServerView:
    """What the incident has proved, while a sweep sees the same engine and can't tell."""
    if not is_proved(swept.verdict, incident.verdict, incident.phase):
        return swept
    return _unseen(swept, incident.verdict, incident.since)


def _as_held(swept: ServerView, incident: Incident | None) -> ServerView:
    """The same, of an incident that waits for a person after its run has ended."""
    if incident is None:
        return swept
    return _unseen(swept, incident.verdict, incident.first_observed)


def _unseen(swept: ServerView, verdict: Verdict | None, since: datetime | None) -> ServerView:
    seen = f"{swept.verdict}: {swept.why}" if swept.why else str(swept.verdict)
    return swept.model_copy(
        update={
            "verdict": verdict,
            "since": since or swept.since,
            "pending": None,
            "why": f"a request was not answered; to a sweep it is {seen}",
        }
    )


async def _or(otherwise: T, wanted: Awaitable[T], what: str, problems: list[str]) -> T:
    """Await ``wanted``; where it can't be read, note that and go on with ``otherwise``."""
    try:
        return await wanted
    except ValidationError:
        problems.append(f"{what} can't be read: another version of steady wrote it")
        return otherwise
    except (RPCError, WorkflowQueryFailedError, TimeoutError, ValueError) as problem:
        problems.append(f"{what} can't be read: {str(problem)[:200] or type(problem).__name__}")
        return otherwise
