"""The guards as a remediation and ``fleet`` ask for them: bookings, and founding."""

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import datetime
from types import NoneType
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.ledgers import (
    RPC_TIMEOUT,
    Guard,
    GuardReader,
    Ledgers,
    host_guard,
    host_key,
    server_guard,
)
from activities.pulse import pulse
from fleet.contracts.fleet import FoundingRequest, FoundingResult
from fleet.contracts.guard import (
    CloseRequest,
    CloseResult,
    GiveBackRequest,
    GuardSignal,
    GuardUpdate,
    HostGuardInput,
    InheritRequest,
    OpenRequest,
    OpenResult,
    Recovery,
    StartBatch,
    StartBatchResult,
    StartRequest,
    StartResult,
    Take,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.names import Message, guard_id
from fleet.ledger import MOST_TAKES

_FOUNDED_AT_ONCE = 16
_ATTEMPTS = 2

#: ``ApplicationError.type`` of a first attempt that could not book every start.
NOT_BOOKED = "NotBooked"


class GuardActivities:
    """Each method books once; a retried one is answered as the first was.

    Raises ``ApplicationError`` of the types ``GUARD_REFUSED`` and ``GUARD_UNREACHABLE``.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reader = GuardReader(client)

    @activity.defn
    async def open_incident(self, request: OpenRequest) -> OpenResult:
        guard = server_guard(request.server)
        async with pulse():
            return await self._ledgers.ask(guard, GuardUpdate.OPEN, request, OpenResult, _asker())

    @activity.defn
    async def take_budget(self, request: TakeRequest) -> TakeResult:
        """Take one restart. The calendar day, where it matters, is found here and now."""
        async with pulse():
            return await self._ledgers.take(request, _asker())

    @activity.defn
    async def give_back(self, request: GiveBackRequest) -> None:
        async with pulse():
            await self._ledgers.give_back(request, _asker())

    @activity.defn
    async def close_incident(self, request: CloseRequest) -> CloseResult:
        request = request.model_copy(update={"key": request.key or _asker()})
        guard = server_guard(request.server)
        async with pulse():
            return await self._ledgers.ask(guard, GuardUpdate.CLOSE, request, CloseResult, _asker())

    @activity.defn
    async def report_starts(self, batch: StartBatch) -> StartBatchResult:
        """Tell the guards of new processes; one that can't be asked is named, and stops none."""
        answers: dict[str, StartResult] = {}
        unsent: list[str] = []

        async def tell(request: StartRequest) -> None:
            try:
                answers[request.server] = await self._ledgers.started(request, _asker())
            except ApplicationError as problem:
                activity.logger.warning("a start was not booked: %s", problem.message)
                unsent.append(request.server)

        async with pulse():
            await self._each(tell(request) for request in batch.starts)
        if unsent and activity.info().attempt < _ATTEMPTS:
            raise ApplicationError(f"not booked: {', '.join(unsent)}"[:500], type=NOT_BOOKED)
        return StartBatchResult(answers=answers, unsent=unsent)

    @activity.defn
    async def found_guards(self, request: FoundingRequest) -> FoundingResult | None:
        """Start the guards of new servers and machines, and hand on what was taken before.

        A name that once had a guard gets no fresh budget, and neither does a machine.
        """
        async with pulse():
            await self._each(self._found(server) for server in request.servers)
            await self._each(self._come_back(server) for server in request.returning)
            await self._each(self._inherit(*each) for each in request.heirs.items())
            await self._each(self._found_host(*each) for each in request.machines.items())
        return FoundingResult(machines=sorted(request.machines))

    async def _each(self, steps: Iterable[Coroutine[Any, Any, None]]) -> None:
        slots = asyncio.Semaphore(_FOUNDED_AT_ONCE)

        async def in_turn(step: Coroutine[Any, Any, None]) -> None:
            async with slots:
                await step

        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(in_turn(step))

    async def _found(self, server: str) -> None:
        guard = server_guard(server)
        await self._start(guard, guard.founding)

    async def _come_back(self, server: str) -> None:
        """Its guard should run. Where it does not, its history is lost, and it is used up."""
        guard = server_guard(server)
        await self._start(guard, guard.lost)

    async def _inherit(self, heir: str, others: list[str]) -> None:
        takes, lost = await self._taken(others)
        request = InheritRequest(server=heir, takes=takes, lost=lost)
        guard = server_guard(heir)
        await self._ledgers.ask(guard, GuardUpdate.INHERIT, request, NoneType, _asker())

    async def _found_host(self, machine: str, servers: list[str]) -> None:
        """What its servers had of their own budgets before it had a guard counts for it too."""
        takes, lost = await self._taken(servers)
        takes = [t.model_copy(update={"key": host_key(t.server, t.key)}) for t in takes]
        start = HostGuardInput(machine=machine, founding=True, takes=takes, lost=lost)
        await self._start(host_guard(machine), start)

    async def _taken(self, servers: Iterable[str]) -> tuple[list[Take], bool]:
        """The takes of several servers, and whether a ledger among them can't be read."""
        states = [await self._reader.state(server) for server in servers]
        known = [state for state in states if state is not None]
        takes = [
            taken.model_copy(update={"server": state.server})
            for state in known
            for taken in state.takes
        ]
        lost = len(known) < len(states) or any(state.lost_at is not None for state in known)
        newest = sorted(takes, key=lambda taken: taken.at)[-MOST_TAKES:]
        return newest, lost

    async def _start(self, guard: Guard, start: Message) -> None:
        try:
            await self._client.start_workflow(
                guard.workflow,
                start,
                id=guard.id,
                task_queue=activity.info().task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=guard.summary,
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            activity.logger.info("%s is there already", guard.id)

    @property
    def _ledgers(self) -> Ledgers:
        return Ledgers(self._client, activity.info().task_queue)


async def send_recovered(client: Client, server: str, at: datetime) -> None:
    """Tell the guard that its server was seen healthy ``at``; a guard that is not there needs none.

    Raises:
        RPCError: Temporal is out of reach.
    """
    await _signal(client, server, GuardSignal.RECOVERED, Recovery(at=at))


async def send_forget_hold(client: Client, server: str) -> None:
    """Tell the guard that automation may act on the open incident again.

    Raises:
        RPCError: Temporal is out of reach.
    """
    await _signal(client, server, GuardSignal.FORGET_HOLD)


async def _signal(client: Client, server: str, signal: GuardSignal, *words: Message) -> None:
    handle = client.get_workflow_handle(guard_id(server))
    try:
        await handle.signal(signal, args=list(words), rpc_timeout=RPC_TIMEOUT)
    except RPCError as problem:
        if problem.status is not RPCStatusCode.NOT_FOUND:
            raise


def _asker() -> str:
    """The same for every attempt of an activity, and another for every activity."""
    info = activity.info()
    return f"{info.workflow_run_id}/{info.activity_id}"
