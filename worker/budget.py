"""The ledgers of a server and its machine, as people and other scripts see and use them."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.ledgers import GUARD_REFUSED, GuardReader, Ledgers, today
from fleet import ledger
from fleet.actions import machine
from fleet.config import ServerSpec
from fleet.contracts.fleet import FleetState, Pause
from fleet.contracts.guard import (
    Claim,
    HostShare,
    Ledger,
    Reset,
    ResetRequest,
    Take,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.names import remediation_id
from fleet.contracts.remediation import STATUS_QUERY, Phase, RemediationStatus
from fleet.policy import Budget
from worker.asking import ask
from worker.client import NO_WORKER
from worker.commands.exits import Exit, Stop
from worker.errors import SetupError

_QUERY_WITHIN = timedelta(seconds=5)
#: While a remediation is here, the server is being restarted, or was a moment ago.
_ACTING = frozenset(
    {
        Phase.TAKING,
        Phase.RESTARTING,
        Phase.FREEING,
        Phase.SETTLING,
        Phase.COOLING,
        Phase.VERIFYING,
    }
)


class Booked(Take):
    """A take as it stands in the ledger; ``counts``: it uses the budget up now."""

    counts: bool


class Book(BaseModel):
    """One ledger. ``lost_at``: its history is gone, and all counts as used."""

    model_config = ConfigDict(frozen=True)

    limit: int
    span: str
    used: int
    left: int
    next_at: AwareDatetime | None = None
    lost_at: AwareDatetime | None = None
    cooldown_until: AwareDatetime | None = None
    takes: list[Booked] = []
    resets: list[Reset] = []


class Budgets(BaseModel):
    model_config = ConfigDict(frozen=True)

    server: str
    machine: str | None = None
    own: Book
    host: Book | None = None


class Refused(StrEnum):
    SERVER = "server"
    HOST = "host"
    COOLDOWN = "cooldown"
    PAUSE = "pause"
    REMEDIATION = "remediation"


class Taken(BaseModel):
    """What came of asking for a restart."""

    model_config = ConfigDict(frozen=True)

    granted: bool
    left: int = 0
    why: str = ""
    next_at: AwareDatetime | None = None
    refused_by: Refused | None = None

    @property
    def line(self) -> str:
        if self.granted:
            return f"granted, {self.left} left"
        then = f"; the next is free at {_utc(self.next_at)}" if self.next_at is not None else ""
        return f"refused: {self.why}{then}"


@dataclass(frozen=True)
class Counter:
    """Where budgets are looked at, taken from and filled up. ``state`` is the fleet in force.

    Each method raises ``SetupError`` where Temporal or a worker is not there, and ``Stop`` where
    the request makes no sense.
    """

    client: Client
    state: FleetState
    task_queue: str

    async def read(self, names: Sequence[str]) -> list[Budgets]:
        """The budgets of these servers. A ledger that does not run is used up from now on."""
        try:
            return [await self._read(self._spec(name)) for name in names]
        except (RPCError, WorkflowQueryFailedError) as problem:
            raise SetupError(NO_WORKER) from problem

    async def _read(self, spec: ServerSpec) -> Budgets:
        reader, now = GuardReader(self.client), datetime.now(UTC)
        kept = await reader.state(spec.name) or Ledger(lost_at=now)
        share, host = self._share(spec), None
        if share is not None:
            total = await reader.host(share.machine) or Ledger(lost_at=now)
            host = book(total, share.budget, now)
        return Budgets(
            server=spec.name,
            machine=share.machine if share is not None else None,
            own=book(kept, spec.policy.budget, now),
            host=host,
        )

    async def take(self, name: str, by: str, why: str, key: str) -> Taken:
        """Take one restart for somebody else, if nothing speaks against it."""
        pause = self._pause(name)
        if pause is not None:
            who = f" by {pause.who}" if pause.who else ""
            said = f"paused{who}: {pause.why or 'no reason given'}"
            return Taken(granted=False, why=said, next_at=pause.until, refused_by=Refused.PAUSE)
        if (phase := await self._acting(name)) is not None:
            said = f"steady is restarting it itself (phase {phase}): `steady status {name}`"
            return Taken(granted=False, why=said, refused_by=Refused.REMEDIATION)
        spec = self._spec(name)
        request = TakeRequest(
            server=name,
            incident="",
            key=f"{by[:60]}/{key or uuid.uuid4()}",
            budget=spec.policy.budget,
            cooldown=spec.policy.cooldown,
            by=by,
            why=why,
            heeds_cooldown=True,
            host=self._share(spec),
        )
        try:
            return _taken(await self._ledgers.take(request, str(uuid.uuid4())))
        except ApplicationError as problem:
            raise _unasked(problem) from problem

    async def reset(self, name: str, who: str, why: str, *, host: bool) -> str | None:
        """Fill a ledger up again; return the machine's name where it was the machine's."""
        share = self._share(self._spec(name)) if host else None
        if host and share is None:
            raise Stop(
                f"{name} has no machine with a ledger: `steady apply` of its fleet file founds it",
                Exit.WRONG_INPUT,
            )
        where, asker = share.machine if share is not None else "", str(uuid.uuid4())
        request = ResetRequest(server=name, machine=where, who=who, why=why, key=asker)
        try:
            await self._ledgers.reset(request, asker)
        except ApplicationError as problem:
            raise _unasked(problem) from problem
        return where or None

    @property
    def _ledgers(self) -> Ledgers:
        return Ledgers(self.client, self.task_queue)

    def _spec(self, name: str) -> ServerSpec:
        assert self.state.fleet is not None
        return self.state.fleet.spec(name)

    def _share(self, spec: ServerSpec) -> HostShare | None:
        if spec.host is None or machine(spec.host) not in self.state.machines:
            return None
        return HostShare(machine=machine(spec.host), budget=spec.host.budget)

    def _pause(self, name: str) -> Pause | None:
        both = (self.state.pauses.get(name), self.state.fleet_pause)
        running = [p for p in both if p is not None and p.until > datetime.now(UTC)]
        return max(running, key=lambda pause: pause.until, default=None)

    async def _acting(self, name: str) -> Phase | None:
        """The phase of the server's remediation, where that is one in which it is restarted."""
        handle = self.client.get_workflow_handle(remediation_id(name))
        try:
            status = await ask(handle, STATUS_QUERY, RemediationStatus, _QUERY_WITHIN)
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return None
            raise SetupError(NO_WORKER) from problem
        except WorkflowQueryFailedError as problem:
            raise SetupError(NO_WORKER) from problem
        return status.phase if status.phase in _ACTING else None


def book(kept: Ledger, budget: Budget, now: datetime) -> Book:
    """A ledger as it stands at ``now``."""
    kept = ledger.pruned(kept, now)
    request = today(Claim(server="", incident="", key="", budget=budget, cooldown=timedelta(0)))
    counted = ledger.counted(kept, request, now)
    return Book(
        limit=budget.limit,
        span=ledger.span(budget),
        used=min(len(counted), budget.limit) if kept.lost_at is not None else len(counted),
        left=max(0, budget.limit - len(counted)),
        next_at=ledger.refusal(kept, request, counted, now).next_at
        if len(counted) >= budget.limit
        else None,
        lost_at=kept.lost_at,
        cooldown_until=kept.cooldown_until,
        takes=[Booked(**taken.model_dump(), counts=taken.at in counted) for taken in kept.takes],
        resets=kept.resets,
    )


def summary(each: Budgets) -> str:
    host = f"; its machine {_left(each.host)}" if each.host is not None else ""
    return f"{each.server}: {_left(each.own)}{host}"


def lines(each: Budgets) -> Iterator[str]:
    """The ledgers of one server, for a terminal."""
    yield f"{each.server}: {_left(each.own)}"
    yield from _told(each.own)
    if each.host is None:
        return
    yield f"all servers of {each.machine}: {_left(each.host)}"
    yield from _told(each.host)


def _left(kept: Book) -> str:
    lost = f", history lost at {_utc(kept.lost_at)}" if kept.lost_at is not None else ""
    then = f", the next is free at {_utc(kept.next_at)}" if kept.next_at is not None else ""
    return f"{kept.left} of {kept.limit} restarts left {kept.span}{lost}{then}"


def _told(kept: Book) -> Iterator[str]:
    if kept.cooldown_until is not None:
        yield f"  a restart cools down until {_utc(kept.cooldown_until)}"
    told = [(taken.at, _of(taken)) for taken in kept.takes]
    told += [(each.at, f"reset by {each.who}: {each.why}") for each in kept.resets]
    for at, text in sorted(told, reverse=True):
        yield f"  {_utc(at)}  {text}"


def _of(taken: Booked) -> str:
    parts = [f"taken by {taken.by or 'steady'}"]
    parts += [f"for {taken.incident}"] if taken.incident else []
    parts += [f"on {taken.server}"] if taken.server else []
    parts += [f"({taken.why})"] if taken.why else []
    parts += [] if taken.counts else ["- counts no longer"]
    return " ".join(parts)


def _taken(took: TakeResult) -> Taken:
    if took.granted:
        return Taken(granted=True, left=took.left)
    by = Refused(took.refused_by) if took.refused_by is not None else Refused.SERVER
    return Taken(
        granted=False,
        left=took.left,
        why=took.why,
        next_at=took.next_at,
        refused_by=Refused.COOLDOWN if took.cooling_until is not None else by,
    )


def _unasked(problem: ApplicationError) -> Exception:
    if problem.type == GUARD_REFUSED:
        return Stop(problem.message, Exit.WRONG_INPUT)
    return SetupError(f"{problem.message}: {NO_WORKER}")


def _utc(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else "-"
