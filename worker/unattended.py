"""What looks bad and nobody acts on, asked of Temporal: the sweeps, and what was done about them.

Only servers that have been bad for long are asked about further, so a fleet that is well costs no
more than its sweeps.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.ledgers import GuardReader
from fleet.config import Fleet
from fleet.contracts.alerts import AlertResult, Delivered
from fleet.contracts.fleet import FleetState, Pause
from fleet.contracts.guard import GuardState
from fleet.contracts.names import ALERT, alert_id, health_id, remediation_id
from fleet.contracts.remediation import Phase, RemediationStatus
from fleet.judge import Memory
from fleet.policy import Policy
from fleet.sharding import members, shard_count
from fleet.unattended import (
    Blind,
    Care,
    Run,
    Told,
    Unattended,
    longest_blind,
    looks_bad,
    unattended,
)
from worker.deeds import decoded
from worker.proved import ProvedReader
from worker.runs import listed, told
from worker.sweeps import Shard, first

_PATIENCE = timedelta(seconds=3)
_AT_ONCE = 8
#: So many messages of an incident are read, newest first: the last that arrived is what counts.
_MOST_MESSAGES = 10
_MOST_EVENTS = 500
#: A step that fails so often does not get through by itself; fewer is a worker that was restarted.
_FAILS_OFTEN = 3


class LiveAudit(BaseModel):
    """``blind`` are servers that no sweep looks at; ``problems`` what could not be read."""

    model_config = ConfigDict(frozen=True)

    at: AwareDatetime
    fleet: str
    unattended: list[Unattended] = []
    blind: list[Blind] = []
    problems: list[str] = []

    @property
    def ok(self) -> bool:
        return not self.unattended and not self.blind


class Auditor:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._guards = GuardReader(client)
        self._proved = ProvedReader(client)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def look(
        self, state: FleetState, fleet: Fleet, shards: Sequence[Shard], most: int | None = None
    ) -> LiveAudit:
        """Compare what the last sweeps saw with what was done; ``most`` bounds the servers that
        are asked about, those that have been bad for longest first.
        """
        now = datetime.now(UTC)
        problems: list[str] = []
        memories = await self._proved.over(_memories(fleet, shards), problems)
        suspects = sorted(_suspects(state, fleet, memories, now), key=lambda each: each.since)

        async def ask(suspect: _Suspect) -> Unattended | None:
            async with self._slots:
                care = await self._care(suspect, problems)
            return unattended(suspect.name, suspect.memory, suspect.policy, care, now)

        found = await asyncio.gather(*(ask(suspect) for suspect in suspects[:most]))
        return LiveAudit(
            at=now,
            fleet=fleet.fleet.name,
            unattended=[each for each in found if each is not None],
            blind=_blind(state, fleet, shards, now),
            problems=problems,
        )

    async def _care(self, suspect: "_Suspect", problems: list[str]) -> Care:
        guard, unasked = await self._guard(suspect.name)
        care = Care(pause=suspect.pause, guard=guard, unasked=unasked)
        try:
            run = await self._run(suspect.name)
            return replace(care, run=run, told=await self._messages(suspect.name, suspect.since))
        except (RPCError, TimeoutError) as problem:
            problems.append(f"{suspect.name}: {str(problem)[:200] or type(problem).__name__}")
            return care

    async def _guard(self, name: str) -> tuple[GuardState | None, str]:
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                return await self._guards.state(name), ""
        except TimeoutError:
            return None, "no worker answered in time"
        except (RPCError, WorkflowQueryFailedError, ValueError) as problem:
            return None, " ".join(str(problem).split())[:200] or type(problem).__name__

    async def _run(self, name: str) -> Run | None:
        """The newest run of the server's remediation; none where it never had one."""
        handle = self._client.get_workflow_handle(remediation_id(name))
        try:
            about = await handle.describe(rpc_timeout=_PATIENCE)
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        status = await told(self._client, about)
        return _told_by(status or listed(about), about, answered=status is not None)

    async def _messages(self, name: str, since: datetime) -> list[Told]:
        query = (
            f"WorkflowType = '{ALERT}' AND WorkflowId STARTS_WITH '{alert_id(f'{name}@', '')[:-1]}'"
            f" AND StartTime >= '{since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}'"
        )
        runs = self._client.list_workflows(query, rpc_timeout=_PATIENCE)
        newest = [run async for run in first(runs, _MOST_MESSAGES)]
        return list(await asyncio.gather(*(self._message(run) for run in newest)))

    async def _message(self, run: WorkflowExecution) -> Told:
        handle = self._client.get_workflow_handle(
            run.id, run_id=run.run_id, result_type=AlertResult
        )
        if run.status is WorkflowExecutionStatus.RUNNING:
            return await self._under_way(run)
        at = run.close_time or run.start_time
        try:
            result: AlertResult = await handle.result(follow_runs=False, rpc_timeout=_PATIENCE)
        except Exception:  # noqa: BLE001 - however it ended, it left no word that it arrived
            return Told(at=at, delivered=False, detail="its workflow ended without a result")
        arrived = result.delivered or any(each.delivered for each in result.targets)
        return Told(at=at, delivered=arrived, detail=result.detail)

    async def _under_way(self, run: WorkflowExecution) -> Told:
        """One that some have already, and others not, has arrived."""
        handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
        events = handle.fetch_history_events(rpc_timeout=_PATIENCE)
        arrived: datetime | None = None
        async for event in first(events, _MOST_EVENTS):
            if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                continue
            done = event.activity_task_completed_event_attributes
            came = await decoded(self._client, done.result, Delivered)
            if came is not None and came.delivered:
                arrived = event.event_time.ToDatetime(tzinfo=UTC)
        if arrived is not None:
            return Told(at=arrived, delivered=True)
        detail = _failing(await handle.describe(rpc_timeout=_PATIENCE))
        return Told(at=run.start_time, delivered=None, detail=detail)


def _told_by(
    status: RemediationStatus, about: WorkflowExecutionDescription, *, answered: bool
) -> Run:
    is_open = about.status is WorkflowExecutionStatus.RUNNING
    trouble = _failing(about) if is_open else ""
    if is_open and not answered and not trouble:
        trouble = "no worker answers for it"
    last = status.timeline[-1].at if status.timeline else None
    reasons = [
        moment.text.removeprefix(f"{status.outcome}: ")
        for moment in status.timeline
        if status.outcome is not None and moment.text.startswith(f"{status.outcome}: ")
    ]
    said = f"{status.outcome} {reasons[-1]}" if reasons else ""
    return Run(
        phase=status.phase if is_open else Phase.CLOSED,
        moved_at=last if is_open else about.close_time,
        next_at=status.next_at if is_open else None,
        outcome=status.outcome,
        said=said[:200],
        trouble=trouble,
    )


def _failing(about: WorkflowExecutionDescription) -> str:
    """What of an open workflow fails again and again, in Temporal's own words."""
    raw = about.raw_description
    if raw.pending_workflow_task.attempt >= _FAILS_OFTEN:
        return f"its workflow task fails (try {raw.pending_workflow_task.attempt})"
    for each in raw.pending_activities:
        if each.attempt >= _FAILS_OFTEN or each.state == PendingActivityState.Value(
            "PENDING_ACTIVITY_STATE_PAUSED"
        ):
            said = " ".join(each.last_failure.message.split())[:200]
            step = each.activity_type.name.replace("_", " ")
            return f"{step}, try {each.attempt}" + (f": {said}" if said else "")
    return ""


@dataclass(frozen=True)
class _Suspect:
    """A server that has been bad for long, ``since`` when."""

    name: str
    memory: Memory
    policy: Policy
    since: datetime
    pause: Pause | None


def _memories(fleet: Fleet, shards: Sequence[Shard]) -> dict[str, Memory]:
    return {
        name: memory
        for shard in shards
        if shard.result is not None
        for name, memory in shard.result.servers.items()
        if name in fleet.servers
    }


def _suspects(
    state: FleetState, fleet: Fleet, memories: Mapping[str, Memory], now: datetime
) -> Iterator[_Suspect]:
    for name, memory in memories.items():
        policy = fleet.policy(name)
        bad = looks_bad(memory, policy, now)
        if bad is not None:
            yield _Suspect(name, memory, policy, bad[1], _pause(state, name))


def _pause(state: FleetState, name: str) -> Pause | None:
    both = [each for each in (state.pauses.get(name), state.fleet_pause) if each is not None]
    return max(both, key=lambda pause: pause.until, default=None)


def _blind(state: FleetState, fleet: Fleet, shards: Sequence[Shard], now: datetime) -> list[Blind]:
    known = {shard.number: shard for shard in shards}
    count = shard_count(len(fleet.servers), fleet.fleet.shard_size)
    found = []
    for number in range(count):
        names = members(fleet.servers, number, count)
        policies = [fleet.policy(name) for name in names]
        unseen = _unseen(number, names, known.get(number), state.applied_at or now)
        limit = longest_blind(policies, fleet.fleet.sweep_every)
        if unseen.servers and now - unseen.since > limit:
            found.append(unseen)
    return found


def _unseen(number: int, names: list[str], shard: Shard | None, applied: datetime) -> Blind:
    """Which servers of a shard were not looked at since when, and why not."""
    name = health_id(number)
    if shard is None:
        return Blind(shard=number, servers=names, since=applied, why=f"there is no schedule {name}")
    result = shard.result
    if result is not None and not all(each in result.servers for each in names):
        lacking = [each for each in names if each not in result.servers]
        if result.at >= applied:
            why = f"the sweeps of {name} leave it out"
            return Blind(shard=number, servers=lacking, since=applied, why=why)
    since = result.at if result is not None else shard.since
    halted = f"the schedule {name} is paused in Temporal"
    why = halted if shard.paused else f"no sweep has ended since: see the runs of {name}"
    return Blind(shard=number, servers=names, since=since, why=why)
