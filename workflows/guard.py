"""``guard/<server>``: the ledger of a server's restarts and its open incident, kept for ever.

The entity has no I/O and no failing exception: bad data is an error of whoever sent it. All that it
decides is decided in ``fleet.guard``.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from fleet import guard
    from fleet.contracts.guard import (
        CloseRequest,
        CloseResult,
        GiveBackRequest,
        GuardInput,
        GuardQuery,
        GuardSignal,
        GuardState,
        GuardUpdate,
        Incident,
        OpenRequest,
        OpenResult,
        Recovery,
        TakeRequest,
        TakeResult,
    )
    from fleet.contracts.names import SERVER_GUARD, remediation_id
    from fleet.details import code, link, page, plain, utc
    from fleet.guard import MEMORY
    from fleet.policy import DailyBudget

_LONGEST_KEY = 300

_Request = TypeVar("_Request")
_Result = TypeVar("_Result")


@workflow.defn(name=SERVER_GUARD)
class ServerGuard:
    @workflow.init
    def __init__(self, start: GuardInput) -> None:
        self._state = start.state or _first(start, workflow.now())
        self._show()

    @workflow.run
    async def run(self, start: GuardInput) -> None:
        await workflow.wait_condition(
            lambda: (
                workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()
            )
        )
        workflow.continue_as_new(GuardInput(server=start.server, state=self._state))

    @workflow.query(name=GuardQuery.STATE)
    def state(self) -> GuardState:
        return self._state

    @workflow.update(name=GuardUpdate.OPEN)
    def open_incident(self, request: OpenRequest) -> OpenResult:
        return self._answer(guard.open_incident, request)

    @open_incident.validator
    def _may_open(self, request: OpenRequest) -> None:
        self._is_mine(request.server)
        if request.observation is None and not request.by_hand:
            raise ValueError("an incident is opened by an observation or by hand; this was neither")
        if request.observation is not None:
            self._is_mine(request.observation.server)

    @workflow.update(name=GuardUpdate.TAKE)
    def take(self, request: TakeRequest) -> TakeResult:
        return self._answer(guard.take, request)

    @take.validator
    def _may_take(self, request: TakeRequest) -> None:
        self._is_mine(request.server)
        _is_key(request.key)
        if isinstance(request.budget, DailyBudget) and request.day_start is None:
            raise ValueError("a budget by calendar day needs day_start, the local midnight")

    @workflow.update(name=GuardUpdate.GIVE_BACK)
    def give_back(self, request: GiveBackRequest) -> None:
        self._answer(guard.give_back, request)

    @give_back.validator
    def _may_give_back(self, request: GiveBackRequest) -> None:
        self._is_mine(request.server)
        _is_key(request.key)
        if not request.proof.strip():
            raise ValueError("a take is given back only on proof that no command was sent")

    @workflow.update(name=GuardUpdate.CLOSE)
    def close(self, request: CloseRequest) -> CloseResult:
        return self._answer(guard.close, request)

    @close.validator
    def _may_close(self, request: CloseRequest) -> None:
        self._is_mine(request.server)

    @workflow.signal(name=GuardSignal.RECOVERED)
    def recovered(self, *words: Any) -> None:
        """One ``contracts.Recovery``; whatever else is sent, and however much, proves nothing.

        With a fixed number of arguments, one signal with more would stop the entity for ever.
        """
        try:
            at = Recovery.model_validate(words[0] if words else None).at
        except ValidationError:
            workflow.logger.warning("recovered: a signal without a time was ignored")
            return
        self._state = guard.recovered(self._state, at)
        self._show()

    @workflow.signal(name=GuardSignal.FORGET_HOLD)
    def forget_hold(self, *_words: Any) -> None:
        """A person's word that automation may act on the open incident again."""
        self._state = guard.forget_hold(self._state)
        self._show()

    def _answer(
        self,
        decide: Callable[[GuardState, _Request, datetime], tuple[GuardState, _Result]],
        request: _Request,
    ) -> _Result:
        """Any exception but an ``ApplicationError`` would stop the entity for ever."""
        try:
            self._state, result = decide(self._state, request, workflow.now())
        except Exception as problem:
            raise ApplicationError(
                f"{self._state.server}: the guard can't work with this: {problem}",
                type="GuardRequest",
                non_retryable=True,
            ) from problem
        self._show()
        return result

    def _is_mine(self, server: str) -> None:
        if server != self._state.server:
            raise ValueError(f"this is the guard of {self._state.server}, not of {server}")

    def _show(self) -> None:
        workflow.set_current_details(_markdown(self._state, workflow.info().namespace))


def _first(start: GuardInput, now: datetime) -> GuardState:
    return guard.founded(start.server) if start.founding else guard.lost(start.server, now)


def _is_key(key: str) -> None:
    if not 0 < len(key) <= _LONGEST_KEY:
        raise ValueError(f"a take is named by a key of 1 to {_LONGEST_KEY} characters")


def _markdown(state: GuardState, namespace: str) -> str:
    """Moments and no spans: it is drawn when something is booked, and read at any time."""
    facts = [
        f"- the ledger's history was **lost** at {utc(state.lost_at)}: its budget was used up then"
        if state.lost_at is not None
        else "",
        f"- cooldown until {utc(state.cooldown_until)}" if state.cooldown_until else "",
        *(_incident(state.incident, namespace) if state.incident else ["- no open incident"]),
        f"- restarts in the ledger, of the last {MEMORY.days} days: {len(state.takes)}",
    ]
    rows = [
        f"- `{taken.at:%Y-%m-%d %H:%M:%S}` UTC by {plain(taken.by or 'steady')},"
        f" for {code(taken.incident or taken.key)}"
        for taken in reversed(state.takes)
    ]
    ledger = ["", "**The ledger**, newest first", ""] if rows else []
    return page([f"**{state.server}**", "", *(fact for fact in facts if fact), *ledger], rows)


def _incident(incident: Incident, namespace: str) -> list[str]:
    verdict = incident.verdict or "asked for by a person"
    lines = [
        f"- open incident {code(incident.id)}: **{verdict}** since {utc(incident.first_observed)}",
        f"- its latest run: {link(remediation_id(incident.server), namespace)}",
        f"- its restarts: {incident.restarts}; tries that failed: {incident.failed_tries}",
    ]
    if incident.hold is not None:
        lines.append(f"- **closed to automation**: {incident.hold}")
    if incident.next_try_at is not None:
        lines.append(f"- next try from {utc(incident.next_try_at)} on")
    return lines
