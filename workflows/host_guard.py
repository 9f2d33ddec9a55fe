"""``host-guard/<machine>``: the ledger of all restarts on one machine, kept for ever.

It has no incident and no cooldown: those are the server's. What it decides is in ``fleet.ledger``.
"""

from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from fleet import ledger
    from fleet.contracts.guard import (
        GiveBackRequest,
        GuardQuery,
        GuardUpdate,
        HostGuardInput,
        HostLedger,
        HostSignal,
        HostTakeRequest,
        ResetRequest,
        Take,
        TakeResult,
    )
    from fleet.contracts.names import HOST_GUARD, host_guard_id
    from fleet.details import page
    from workflows.ledgers import answered, check_claim, check_key, check_proof, facts, read, rows


@workflow.defn(name=HOST_GUARD)
class HostGuard:
    @workflow.init
    def __init__(self, start: RawValue) -> None:
        self._state = _first(start)
        self._show()

    @workflow.run
    async def run(self, start: RawValue) -> None:
        """``start`` is a ``HostGuardInput``; one that can't be understood is a lost history."""
        del start
        await workflow.wait_condition(
            lambda: (
                workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()
            )
        )
        workflow.continue_as_new(HostGuardInput(machine=self._state.machine, state=self._state))

    @workflow.query(name=GuardQuery.STATE)
    def state(self) -> HostLedger:
        return self._state

    @workflow.update(name=GuardUpdate.TAKE)
    def take(self, request: HostTakeRequest) -> TakeResult:
        self._state, result = answered(
            self._state.machine,
            lambda: ledger.take(self._state, request, workflow.now(), request.server),
        )
        self._show()
        return result

    @take.validator
    def _may_take(self, request: HostTakeRequest) -> None:
        self._is_mine(request.machine)
        check_claim(request, of_host=True)

    @workflow.update(name=GuardUpdate.GIVE_BACK)
    def give_back(self, request: GiveBackRequest) -> None:
        self._state = answered(
            self._state.machine, lambda: ledger.give_back(self._state, request, workflow.now())
        )
        self._show()

    @give_back.validator
    def _may_give_back(self, request: GiveBackRequest) -> None:
        self._is_mine(request.machine)
        check_key(request.key, of_host=True)
        check_proof(request.proof)

    @workflow.update(name=GuardUpdate.RESET)
    def reset(self, request: ResetRequest) -> None:
        self._state = answered(
            self._state.machine, lambda: ledger.reset(self._state, request, workflow.now())
        )
        self._show()

    @reset.validator
    def _may_reset(self, request: ResetRequest) -> None:
        self._is_mine(request.machine)
        check_key(request.key, of_host=True)

    @workflow.signal(name=HostSignal.BOOK)
    def book(self, *words: Any) -> None:
        """One ``contracts.guard.Take`` that nobody asked for; anything else changes nothing.

        By a signal, since many come at once where a machine starts anew, and a workflow takes no
        more than ten updates at a time.
        """
        try:
            taken = Take.model_validate(words[0] if words else None)
        except ValidationError:
            workflow.logger.warning("book: a signal that is no take was ignored")
            return
        self._state = ledger.with_takes(self._state, [taken], workflow.now())
        self._show()

    def _is_mine(self, machine: str) -> None:
        if machine != self._state.machine:
            raise ValueError(f"this is the guard of {self._state.machine}, not of {machine}")

    def _show(self) -> None:
        workflow.set_current_details(_markdown(self._state))


def _first(start: RawValue) -> HostLedger:
    given = read(start, HostGuardInput)
    if given is not None and given.state is not None:
        return given.state
    now = workflow.now()
    if given is None or not given.founding:
        machine = workflow.info().workflow_id.removeprefix(host_guard_id(""))
        return HostLedger(machine=machine, lost_at=now)
    return ledger.with_takes(HostLedger(machine=given.machine), given.takes, now, lost=given.lost)


def _markdown(state: HostLedger) -> str:
    lines = [f"**all servers of {state.machine}**", "", *(line for line in facts(state) if line)]
    head = ["", "**The ledger**, newest first", ""] if state.takes else []
    return page([*lines, *head], rows(state))
