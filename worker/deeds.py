"""What a run of a remediation did, from its history. Temporal keeps it, so no worker is needed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution

from fleet.contracts.guard import GiveBackRequest, Incident, OpenResult, TakeResult
from fleet.contracts.host import Effect, Evidence, GpuFault, RestartResult
from fleet.contracts.remediation import RemediationInput
from worker.sweeps import first

#: Far more than a remediation writes before it continues as new.
_MOST_EVENTS = 20_000
_PATIENCE = timedelta(seconds=10)

M = TypeVar("M", bound=BaseModel)


class _At(BaseModel):
    model_config = ConfigDict(frozen=True)

    at: AwareDatetime


class Booked(_At):
    """A word with the ledger: ``word`` is taken, refused or given back; ``left`` what was then
    left of the budget, where it was said.
    """

    word: str
    left: int | None = None
    why: str = ""


class Saved(_At):
    """A collection of evidence; ``path`` is on the disk of the worker ``kept_on``."""

    path: str | None
    size: int
    missing: list[str]
    kept_on: str = ""
    faults: list[GpuFault] = []


class Commanded(_At):
    """A restart command that was sent, and what was known of its effect then."""

    effect: Effect
    detail: str = ""


class Deeds(BaseModel):
    """``incident`` is none where the run ended, or stands, before it had opened one."""

    model_config = ConfigDict(frozen=True)

    incident: Incident | None = None
    opened_at: AwareDatetime | None = None
    budget: list[Booked] = []
    evidence: list[Saved] = []
    restarts: list[Commanded] = []

    @property
    def restarted_at(self) -> datetime | None:
        """When the first command that may have had an effect was over."""
        sent = (each.at for each in self.restarts if each.effect is not Effect.FAILED)
        return min(sent, default=None)


async def deeds(client: Client, run: WorkflowExecution) -> Deeds:
    """Read the history of one run.

    Raises:
        RPCError: Temporal does not have it any more, or is out of reach.
    """
    reader = _Reader(client)
    handle = client.get_workflow_handle(run.id, run_id=run.run_id)
    async for event in first(handle.fetch_history_events(rpc_timeout=_PATIENCE), _MOST_EVENTS):
        await reader.take(event)
    return reader.deeds


class _Reader:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: dict[int, str] = {}
        self.deeds = Deeds()

    async def take(self, event: HistoryEvent) -> None:
        at = event.event_time.ToDatetime(tzinfo=UTC)
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                started = event.workflow_execution_started_event_attributes
                request = await self._read(started.input, RemediationInput)
                if request is not None and request.carried is not None:
                    self._note(incident=request.carried.incident, opened_at=at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                asked = event.activity_task_scheduled_event_attributes
                self._names[event.event_id] = asked.activity_type.name
                if asked.activity_type.name == "give_back":
                    await self._gave_back(at, asked.input)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                done = event.activity_task_completed_event_attributes
                await self._done(at, self._names.get(done.scheduled_event_id, ""), done.result)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                late = event.activity_task_timed_out_event_attributes
                if self._names.get(late.scheduled_event_id) == "restart_server":
                    self._commanded(Commanded(at=at, effect=Effect.UNKNOWN, detail="no answer"))

    async def _done(self, at: datetime, name: str, payloads: Payloads) -> None:
        match name:
            case "open_incident":
                opened = await self._read(payloads, OpenResult)
                if opened is not None:
                    self._note(incident=opened.incident, opened_at=at)
            case "take_budget":
                took = await self._read(payloads, TakeResult)
                if took is not None:
                    word = "taken" if took.granted else "refused"
                    self._booked(Booked(at=at, word=word, left=took.left, why=took.why))
            case "collect_evidence":
                saved = await self._read(payloads, Evidence)
                if saved is not None:
                    kept = Saved(at=at, **saved.model_dump(include=set(Saved.model_fields)))
                    self._note(evidence=[*self.deeds.evidence, kept])
            case "restart_server" | "start_server":
                result = await self._read(payloads, RestartResult)
                if result is not None:
                    self._commanded(Commanded(at=at, effect=result.effect, detail=result.detail))

    async def _gave_back(self, at: datetime, payloads: Payloads) -> None:
        request = await self._read(payloads, GiveBackRequest)
        if request is not None:
            self._booked(Booked(at=at, word="given back", why=request.proof))

    def _booked(self, booked: Booked) -> None:
        self._note(budget=[*self.deeds.budget, booked])

    def _commanded(self, commanded: Commanded) -> None:
        self._note(restarts=[*self.deeds.restarts, commanded])

    def _note(self, **changes: Any) -> None:
        self.deeds = self.deeds.model_copy(update=changes)

    async def _read(self, payloads: Payloads, model: type[M]) -> M | None:
        return await decoded(self._client, payloads, model)


async def decoded(client: Client, payloads: Payloads, model: type[M]) -> M | None:
    """The one model in some payloads; none where another version of steady wrote something else."""
    try:
        read: Sequence[Any] = await client.data_converter.decode(payloads.payloads, [model])
    except (RuntimeError, ValueError):
        return None
    return read[0] if read and isinstance(read[0], model) else None
