"""The end of a remediation: booked with the guard, told to people, shown in the UI."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from fleet.alerts import RECOVERED_LATER
    from fleet.contracts.alerts import Severity
    from fleet.contracts.guard import CloseRequest, CloseResult
    from fleet.contracts.remediation import Outcome, Phase
    from fleet.policy import Policy
    from fleet.remediation import (
        HOLDS,
        OVER,
        PAGES,
        QUIET,
        TRY_AGAIN,
        Decision,
        last_word,
    )
    from fleet.verdicts import ACTIONABLE, FOR_REMEDIATION
    from workflows.case import Case


class Ending:
    def __init__(self, case: Case) -> None:
        self._case, self._book = case, case.book

    async def close(
        self, decision: Decision, policy: Policy, *, harmless: bool, held: bool
    ) -> None:
        """Book, tell and show the end. ``held``: this run only found it closed to automation.

        ``harmless``: it is proved that no command had an effect.
        """
        book, outcome = self._book, decision.outcome or Outcome.INTERNAL_ERROR
        self._case.orders.committed = False
        book.outcome = outcome
        book.note(f"{outcome}: {decision.why}")
        if not held:
            await self._book_the_end(decision, outcome, policy, harmless=harmless)
            await self._tell_the_end(decision, outcome)
        if self._case.orders.cancel is not None:
            late = "cancelled" if outcome is Outcome.CANCELLED else f"ended before: {outcome}"
            book.answer(self._case.orders.cancel.id, late)
        self._case.answer_restart(f"not restarted: {decision.why}")
        book.closed_at = workflow.now()
        restarts = self._case.incident.restarts
        word = last_word(outcome, recovered=decision.recovered, restarts=restarts)
        book.enter(Phase.CLOSED, word)

    async def _book_the_end(
        self, decision: Decision, outcome: Outcome, policy: Policy, *, harmless: bool
    ) -> None:
        """Leave with the guard what a later run must know. Where that fails, it is noted."""
        book = self._book
        if book.incident is None:
            return
        never_bad = book.verdict not in FOR_REMEDIATION
        request = CloseRequest(
            server=self._case.server,
            incident=book.incident.id,
            recovered=decision.recovered or outcome in OVER or never_bad or book.well,
            hold=HOLDS.get(outcome),
            hold_mode=policy.mode,
            failed_try=outcome in TRY_AGAIN,
            no_effect=harmless,
            rung=book.incident.rung,
            retry_delays=list(policy.retry_delays),
            told=self._case.causes,
            process=self._case.process,
            is_ours=self._case.process == self._case.ours,
        )
        try:
            result = await self._case.hands.close(request)
            if book.well and not request.recovered:
                # A sweep spoke while the hold was being booked; it would never be lifted again.
                await self._case.hands.close(request.model_copy(update={"recovered": True}))
                return
        except ActivityError as problem:
            book.note(f"the guard could not be told: {problem.cause}")
            return
        await self._tell_next_try(result)

    async def _tell_next_try(self, result: CloseResult) -> None:
        if result.out_of_tries:
            await self._case.tell(
                "gave_up",
                Severity.PAGE,
                f"{self._case.server}: all {result.failed_tries} tries to restart it failed",
                next_step="a person has to act: steady restart, when the cause is mended",
            )
        elif result.next_try_at is not None:
            self._book.note(f"the next try is due from {result.next_try_at:%H:%M:%S} on")

    async def _tell_the_end(self, decision: Decision, outcome: Outcome) -> None:
        if outcome in QUIET:
            return
        server = self._case.server
        if decision.recovered:
            await self._case.tell(
                RECOVERED_LATER, Severity.NOTICE, f"{server} has recovered", detail=decision.why
            )
            return
        word = last_word(outcome, recovered=False, restarts=self._case.incident.restarts)
        await self._case.tell(
            str(outcome),
            self._severity(outcome),
            f"{server}: {word}",
            detail=decision.why,
        )

    def _severity(self, outcome: Outcome) -> Severity:
        """A person whose order for a healthy server was refused has read it already."""
        refused = outcome is Outcome.BUDGET_EXHAUSTED and self._book.verdict not in ACTIONABLE
        return Severity.PAGE if outcome in PAGES and not refused else Severity.NOTICE
