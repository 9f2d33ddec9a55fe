"""``guard/<server>``: the ledger of a server's restarts and its open incident, kept for ever.

The entity has no I/O and no failing exception: bad data is an error of whoever sent it. All that it
decides is decided in ``fleet.guard``.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from fleet import foreign, guard
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
        InheritRequest,
        OpenRequest,
        OpenResult,
        Recovery,
        ResetRequest,
        StartRequest,
        StartResult,
        TakeRequest,
        TakeResult,
    )
    from fleet.contracts.names import SERVER_GUARD, guard_id, remediation_id
    from fleet.details import code, link, page, utc
    from workflows.ledgers import answered, check_claim, check_key, check_proof, facts, read, rows

_Request = TypeVar("_Request")
_Result = TypeVar("_Result")


@workflow.defn(name=SERVER_GUARD)
class ServerGuard:
    @workflow.init
    def __init__(self, start: RawValue) -> None:
        self._state = _first(start)
        self._show()

    @workflow.run
    async def run(self, start: RawValue) -> None:
        """``start`` is a ``GuardInput``. One that can't be understood is a history that is lost:
        refusing it would leave the entity retrying for ever, and its server without an answer.
        """
        del start
        await workflow.wait_condition(
            lambda: (
                workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()
            )
        )
        workflow.continue_as_new(GuardInput(server=self._state.server, state=self._state))

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
        check_claim(request)

    @workflow.update(name=GuardUpdate.GIVE_BACK)
    def give_back(self, request: GiveBackRequest) -> None:
        self._answer(guard.give_back, request)

    @give_back.validator
    def _may_give_back(self, request: GiveBackRequest) -> None:
        self._is_mine(request.server)
        check_key(request.key)
        check_proof(request.proof)

    @workflow.update(name=GuardUpdate.CLOSE)
    def close(self, request: CloseRequest) -> CloseResult:
        return self._answer(guard.close, request)

    @close.validator
    def _may_close(self, request: CloseRequest) -> None:
        self._is_mine(request.server)

    @workflow.update(name=GuardUpdate.INHERIT)
    def inherit(self, request: InheritRequest) -> None:
        self._answer(guard.inherit, request)

    @inherit.validator
    def _may_inherit(self, request: InheritRequest) -> None:
        self._is_mine(request.server)

    @workflow.update(name=GuardUpdate.STARTED)
    def started(self, request: StartRequest) -> StartResult:
        return self._answer(foreign.started, request)

    @started.validator
    def _may_have_started(self, request: StartRequest) -> None:
        self._is_mine(request.server)
        check_key(request.process)

    @workflow.update(name=GuardUpdate.RESET)
    def reset(self, request: ResetRequest) -> None:
        self._answer(guard.reset, request)

    @reset.validator
    def _may_reset(self, request: ResetRequest) -> None:
        self._is_mine(request.server)
        check_key(request.key)

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
        self._state, result = answered(
            self._state.server, lambda: decide(self._state, request, workflow.now())
        )
        self._show()
        return result

    def _is_mine(self, server: str) -> None:
        if server != self._state.server:
            raise ValueError(f"this is the guard of {self._state.server}, not of {server}")

    def _show(self) -> None:
        workflow.set_current_details(_markdown(self._state, workflow.info().namespace))


def _first(start: RawValue) -> GuardState:
    given = read(start, GuardInput)
    if given is None:
        server = workflow.info().workflow_id.removeprefix(guard_id(""))
        return guard.lost(server, workflow.now())
    if given.state is not None:
        return given.state
    return guard.founded(given.server) if given.founding else _lost(given.server)


def _lost(server: str) -> GuardState:
    return guard.lost(server, workflow.now())


def _markdown(state: GuardState, namespace: str) -> str:
    """Moments and no spans: it is drawn when something is booked, and read at any time."""
    lines = [
        *facts(state),
        f"- cooldown until {utc(state.cooldown_until)}" if state.cooldown_until else "",
        *(_incident(state.incident, namespace) if state.incident else ["- no open incident"]),
    ]
    known = [f"**{state.server}**", "", *(line for line in lines if line)]
    return page(
        [*known, *(["", "**The ledger**, newest first", ""] if state.takes else [])], rows(state)
    )


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
