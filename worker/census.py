"""What the metrics count, asked of Temporal: the same answer on every worker, after every restart.

Each part has its bound, and one that can't be read leaves the others as they are.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from temporalio.client import Client, WorkflowExecution, WorkflowQueryFailedError
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.ledgers import GuardReader
from activities.policies import PolicyReader
from activities.storms import StormReader
from fleet.actions import machine
from fleet.config import Fleet
from fleet.contracts.alerts import AlertResult
from fleet.contracts.fleet import FleetState
from fleet.contracts.guard import GuardState
from fleet.contracts.names import ALERT, REMEDIATION, SearchAttribute, remediation_id
from fleet.contracts.remediation import RemediationStatus
from fleet.contracts.storm import StormState
from fleet.ledger import budget_left, local_day
from fleet.policy import Budget, DailyBudget
from fleet.verdicts import Verdict
from worker.blocked import OpenRun, blocked, verdict_of
from worker.closed import ClosedRuns
from worker.sweeps import Shard, first
from worker.unattended import Auditor

T = TypeVar("T")

#: A verdict before the first sweep, and a phase that no search attribute tells.
UNKNOWN = "unknown"

_MOST_OPEN = 2000
_PATIENCE = timedelta(seconds=3)
_BUDGETS_EVERY = 60.0
_BUDGETS_A_LOOK = 100
_AUDIT_EVERY = 60.0
_AUDITED = 50
_AT_ONCE = 8
_MOST_TRIES = 10
_PHASE = SearchAttributeKey.for_keyword(SearchAttribute.PHASE)
_VERDICT = SearchAttributeKey.for_keyword(SearchAttribute.VERDICT)


@dataclass(frozen=True)
class ClosedIncident:
    """A remediation that ended; ``restarted_at`` is when its first restart was booked."""

    status: RemediationStatus
    restarted_at: datetime | None = None


@dataclass(frozen=True)
class Census:
    """What was read; a part that could not be is none. ``closed`` and ``alerts`` are new ones only,
    each told once in the life of this process. ``budgets`` are restarts left, and the limit.
    ``refused`` is how often a server's ledger had none left, ``refused_on`` how often that of a
    machine had none for all its servers, ``blocked`` how many servers are kept
    from their restart now, by reason, and ``unattended`` how many nobody acts on.
    """

    verdicts: Mapping[str, int] | None = None
    phases: Mapping[str, int] | None = None
    budgets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    refused_on: Mapping[str, int] = field(default_factory=dict)
    blocked: Mapping[str, int] | None = None
    unattended: int | None = None
    waiting: int | None = None
    storm: StormState | None = None
    closed: Sequence[ClosedIncident] = ()
    alerts: Sequence[bool] = ()
    problems: Sequence[str] = ()


class CensusTaker:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._policies = PolicyReader(client)
        self._guards = GuardReader(client)
        self._storms = StormReader(client)
        self._incidents = ClosedRuns(client, REMEDIATION, RemediationStatus)
        self._alerts = ClosedRuns(client, ALERT, AlertResult)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._budgets = _Budgets(self._guards, self._slots)
        self._machines = _Machines(self._guards, self._slots)
        self._unattended = _Unattended(client)
        self._undated: list[tuple[RemediationStatus, int]] = []

    async def take(self, shards: Sequence[Shard]) -> Census:
        """Look once; ``shards`` are the sweeps as they were last seen."""
        problems: list[str] = []
        state, opened, waiting, closed, alerts, storm = await asyncio.gather(
            _or(None, self._policies.state(), "the fleet", problems),
            _or(None, self._open(), "open incidents", problems),
            _or(None, self._waiting(), "waiting alerts", problems),
            _or([], self._closed(), "closed incidents", problems),
            _or([], self._told(), "alerts", problems),
            _or(None, self._storms.state(_PATIENCE), "the limit on restarts", problems),
        )
        fleet = state.fleet if state is not None else None
        acted_on = {*(opened or {}), *(each.status.server for each in closed)}
        budgets = await self._budgets.look(fleet, acted_on) if fleet is not None else {}
        kept = self._budgets.guards
        machines = _machines(fleet, state.machines) if fleet is not None and state else {}
        return Census(
            verdicts=verdicts(state, shards, opened or {}, kept) if state is not None else None,
            phases=Counter(run.phase for run in opened.values()) if opened is not None else None,
            budgets=budgets,
            refused={name: guard.refused for name, (guard, _) in kept.items()},
            refused_on=await self._machines.look(machines, acted_on),
            blocked=blocked(state, shards, opened, kept, datetime.now(UTC))
            if state is not None and opened is not None
            else None,
            unattended=await _or(
                None, self._unattended.look(state, shards), "unattended servers", problems
            ),
            waiting=waiting,
            storm=storm,
            closed=closed,
            alerts=alerts,
            problems=problems,
        )

    async def _open(self) -> dict[str, OpenRun]:
        """Each server with an open incident, as its run's search attributes tell it."""
        query = f"WorkflowType = '{REMEDIATION}' AND ExecutionStatus = 'Running'"
        runs = first(self._client.list_workflows(query, rpc_timeout=_PATIENCE), _MOST_OPEN)
        return {run.id.removeprefix(remediation_id("")): _told(run) async for run in runs}

    async def _waiting(self) -> int:
        query = f"WorkflowType = '{ALERT}' AND ExecutionStatus = 'Running'"
        return (await self._client.count_workflows(query, rpc_timeout=_PATIENCE)).count

    async def _closed(self) -> list[ClosedIncident]:
        """Those that ended, and the ones before whose ledger did not answer."""
        ended = await self._incidents.new()
        undated = [*self._undated, *((each.result, 0) for each in ended if each.result is not None)]
        found = await asyncio.gather(*(self._dated(status) for status, _ in undated))
        self._undated, closed = [], []
        for (status, tries), incident in zip(undated, found, strict=True):
            if incident is None and tries < _MOST_TRIES:
                self._undated.append((status, tries + 1))
            else:
                closed.append(incident or ClosedIncident(status))
        return closed

    async def _dated(self, status: RemediationStatus) -> ClosedIncident | None:
        """With the time of its first restart, which the ledger has for eight days."""
        if not status.restarts or status.incident is None:
            return ClosedIncident(status)
        try:
            async with self._slots, asyncio.timeout(_PATIENCE.total_seconds()):
                guard = await self._guards.state(status.server)
        except (RPCError, TimeoutError, ValueError):
            return None
        takes = guard.takes if guard is not None else []
        times = [taken.at for taken in takes if taken.incident == status.incident]
        return ClosedIncident(status, min(times, default=None))

    async def _told(self) -> list[bool]:
        ended = await self._alerts.new()
        return [each.result is not None and each.result.delivered for each in ended]


class _Budgets:
    """What is left of each server's budget, read again a minute later, and where steady acts on the
    server with every look; in a fleet of more than a few hundred less often.
    """

    def __init__(self, guards: GuardReader, slots: asyncio.Semaphore) -> None:
        self._guards, self._slots = guards, slots
        self._known: dict[str, tuple[float, tuple[int, int] | None]] = {}
        self.guards: dict[str, tuple[GuardState, int]] = {}

    async def look(self, fleet: Fleet, acted_on: Collection[str]) -> dict[str, tuple[int, int]]:
        never = (float("-inf"), None)
        self._known = {name: self._known.get(name, never) for name in fleet.servers}
        self.guards = {name: kept for name, kept in self.guards.items() if name in fleet.servers}
        now = time.monotonic()
        due = [
            name
            for name, (at, _) in self._known.items()
            if now - at >= _BUDGETS_EVERY or name in acted_on
        ]
        due.sort(key=lambda name: self._known[name][0])
        await asyncio.gather(*(self._read(fleet, name) for name in due[:_BUDGETS_A_LOOK]))
        return {name: left for name, (_, left) in self._known.items() if left is not None}

    async def _read(self, fleet: Fleet, name: str) -> None:
        budget = fleet.policy(name).budget
        try:
            async with self._slots, asyncio.timeout(_PATIENCE.total_seconds()):
                guard = await self._guards.state(name)
        except (RPCError, TimeoutError, ValueError):
            self._known[name] = (time.monotonic(), None)
            return
        now = datetime.now(UTC)
        left = budget_left(guard, budget, now, _day(budget, now)) if guard is not None else 0
        self._known[name] = (time.monotonic(), (left, budget.limit))
        if guard is not None:
            self.guards[name] = (guard, left)


class _Machines:
    """How often the ledger of each machine has refused; read as often as those of its servers."""

    def __init__(self, guards: GuardReader, slots: asyncio.Semaphore) -> None:
        self._guards, self._slots = guards, slots
        self._known: dict[str, tuple[float, int | None]] = {}

    async def look(
        self, machines: Mapping[str, Collection[str]], acted_on: Collection[str]
    ) -> dict[str, int]:
        """The refusals by machine; ``machines`` names the servers of each."""
        never, now = (float("-inf"), None), time.monotonic()
        self._known = {name: self._known.get(name, never) for name in machines}
        due = [
            name
            for name, (at, _) in self._known.items()
            if now - at >= _BUDGETS_EVERY or any(server in acted_on for server in machines[name])
        ]
        due.sort(key=lambda name: self._known[name][0])
        await asyncio.gather(*(self._read(name) for name in due[:_BUDGETS_A_LOOK]))
        return {name: count for name, (_, count) in self._known.items() if count is not None}

    async def _read(self, name: str) -> None:
        """A ledger that can't be read keeps its last count: a counter must not seem to restart."""
        count = self._known[name][1]
        try:
            async with self._slots, asyncio.timeout(_PATIENCE.total_seconds()):
                held = await self._guards.host(name)
        except (RPCError, TimeoutError, ValueError):
            held = None
        self._known[name] = (time.monotonic(), held.refused if held is not None else count)


class _Unattended:
    """How many servers nobody acts on, asked once a minute; of many, those bad for longest."""

    def __init__(self, client: Client) -> None:
        self._auditor = Auditor(client)
        self._at = float("-inf")
        self._count: int | None = None

    async def look(self, state: FleetState | None, shards: Sequence[Shard]) -> int | None:
        fleet = state.fleet if state is not None else None
        if state is None or fleet is None or time.monotonic() - self._at < _AUDIT_EVERY:
            return self._count
        self._at = time.monotonic()
        found = await self._auditor.look(state, fleet, shards, most=_AUDITED)
        self._count = len(found.unattended) + sum(len(blind.servers) for blind in found.blind)
        return self._count


def _machines(fleet: Fleet, founded: Collection[str]) -> dict[str, set[str]]:
    """The servers of each machine that has a ledger."""
    found: dict[str, set[str]] = {}
    for name in fleet.servers:
        host = fleet.spec(name).host
        if host is not None and machine(host) in founded:
            found.setdefault(machine(host), set()).add(name)
    return found


def _day(budget: Budget, now: datetime) -> tuple[datetime, datetime] | None:
    return local_day(budget.per_day_in, now) if isinstance(budget, DailyBudget) else None


def verdicts(
    state: FleetState,
    shards: Sequence[Shard],
    opened: Mapping[str, OpenRun],
    guards: Mapping[str, tuple[GuardState, int]],
) -> dict[str, int]:
    """How many servers of the fleet are what."""
    memories = {
        name: memory
        for shard in shards
        if shard.result is not None
        for name, memory in shard.result.servers.items()
    }
    servers = state.fleet.servers if state.fleet is not None else {}
    kept = {name: guard for name, (guard, _) in guards.items()}
    found = (
        verdict_of(memories[name], opened.get(name), kept.get(name)) if name in memories else None
        for name in servers
    )
    return Counter(str(verdict) if verdict is not None else UNKNOWN for verdict in found)


def _told(run: WorkflowExecution) -> OpenRun:
    said = run.typed_search_attributes
    verdict = said.get(_VERDICT) or ""
    return OpenRun(
        phase=said.get(_PHASE) or UNKNOWN,
        verdict=Verdict(verdict) if verdict in {*Verdict} else None,
    )


async def _or(otherwise: T, wanted: Awaitable[T], what: str, problems: list[str]) -> T:
    try:
        return await wanted
    except (
        RPCError,
        WorkflowQueryFailedError,
        ApplicationError,
        TimeoutError,
        ValueError,
    ) as problem:
        problems.append(f"{what}: {type(problem).__name__}")
        return otherwise
