"""Nothing is left to do by itself: look, slower and slower, until it recovers or a person acts."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.remediation import Carried, Outcome, Phase, RemediationInput
    from fleet.remediation import Decision
    from fleet.verdicts import GOOD
    from workflows.case import Case
    from workflows.decide import Ended


class Escalation:
    def __init__(self, case: Case) -> None:
        self._case = case

    async def wait(self, outcome: Outcome, reads: int, attempts: int) -> None:
        """Return where a person ordered a restart.

        Raises:
            Ended: it recovered, or was removed.
            Interrupted: a person closed it.
        """
        book, orders = self._case.book, self._case.orders
        book.outcome = outcome
        while not orders.by_hand:
            present = await self._case.hands.present()
            if present.spec is None:
                raise Ended(Decision.end(Outcome.REMOVED, "the server is no longer in the fleet"))
            policy = present.spec.policy
            waits = policy.escalated_reads
            until = workflow.now() + waits[min(reads, len(waits) - 1)]
            reads += 1
            book.enter(Phase.ESCALATED, "looks again; waits for a recovery or a person", until)
            orders.changed = False
            await self._case.keep_drained(until)
            await self._case.sleep(until, "until the next look: has it recovered?", self._stirred)
            if orders.by_hand:
                break
            _, finding = await self._case.judge(policy, "has it recovered?", settle=True)
            if finding.verdict in GOOD:
                said = f"recovered later: {finding.why}"
                raise Ended(Decision.end(outcome, said, recovered=True))
            self._continue_if_long(outcome, reads, attempts)
        book.outcome = None
        orders.no_more = False

    def _stirred(self) -> bool:
        return self._case.orders.changed or self._case.orders.by_hand

    def _continue_if_long(self, outcome: Outcome, reads: int, attempts: int) -> None:
        book, orders = self._case.book, self._case.orders
        if book.incident is None or orders.stop or orders.by_hand:
            return
        if not workflow.info().is_continue_as_new_suggested():
            return
        workflow.continue_as_new(
            RemediationInput(
                server=self._case.server,
                search_attributes=self._case.request.search_attributes,
                carried=Carried(
                    incident=book.incident,
                    outcome=outcome,
                    since=book.since,
                    detected_at=book.detected_at,
                    restarted_at=book.restarted_at,
                    timeline=book.timeline[-20:],
                    answers=book.answers,
                    pages=book.pages,
                    reads=reads,
                    attempts=attempts,
                    drained=self._case.drained,
                ),
            )
        )
