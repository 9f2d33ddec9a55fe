"""What is saved before a restart destroys it, and what it says against the restart."""

from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.remediation import Outcome, Phase
    from fleet.incurable import Incurable
    from fleet.remediation import Decision, Next
    from workflows.case import Case
    from workflows.cure import Facts

#: For so long what was collected counts, and is not collected again for the same act.
_EVIDENCE_FOR = timedelta(minutes=30)


class Preparing:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._collected: int | None = None
        self._collected_at: datetime | None = None
        self._incurable = Incurable()

    async def collect(self) -> None:
        """Evidence before the act, once for each; its failure costs no budget, blocks nothing."""
        case, restarts = self._case, self._case.incident.restarts
        if self._collected == restarts:
            return
        self._collected, self._collected_at = restarts, workflow.now()
        case.book.enter(Phase.COLLECTING, "logs are saved before a restart destroys them")
        evidence = await case.hands.evidence(case.incident.id)
        lacking = f"; missing: {', '.join(evidence.missing)}" if evidence.missing else ""
        saved = f"{evidence.size} bytes in {evidence.path}" if evidence.path else "none"
        case.book.note(f"evidence: {saved}{lacking}")
        self._incurable = Incurable.of(evidence)

    def unless_incurable(self, decision: Decision, facts: Facts | None) -> Decision:
        """A fault that no restart cures goes to a person, who may order one all the same."""
        by_hand = self._case.orders.by_hand
        if decision.next is Next.RESTART and not by_hand and self._is_old():
            self._collected = None
            return Decision(Next.WAIT, "what was collected of the host is old by now")
        if not self._incurable or decision.next not in (Next.APPROVAL, Next.RESTART):
            return decision
        if by_hand:
            self._case.book.note(f"by hand, though {self._incurable.why}")
            return decision
        if facts is not None and self._incurable.is_of_another(facts.host):
            self._collected = None
            return Decision(Next.WAIT, "another process runs there now than the evidence is of")
        return Decision.end(Outcome.HANDED_OVER, self._incurable.why)

    def _is_old(self) -> bool:
        """After a long wait for a person or a slot the host may have more to say."""
        at = self._collected_at
        old = at is not None and workflow.now() - at > _EVIDENCE_FOR
        return old and workflow.patched("evidence-anew")
