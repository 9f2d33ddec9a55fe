"""A suspicion, before anything is opened or told: two waits, readings, and at the end a request."""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.remediation import Outcome, Phase
    from fleet.contracts.sweep import Observation
    from fleet.engines.proof import is_shown_alive
    from fleet.engines.reading import Came
    from fleet.judge import Finding
    from fleet.policy import Policy
    from fleet.readings import Reading
    from fleet.remediation import Decision
    from fleet.verdicts import GOOD, Verdict
    from workflows.case import Case
    from workflows.decide import Ended

_WAITS = 2


class Confirming:
    def __init__(self, case: Case) -> None:
        self._case, self._book, self._engines = case, case.book, case.engines

    async def confirm(self, first: Observation) -> tuple[Observation, Decision | None]:
        """The observation as it was proved, or with it a decision that a person has to take over.

        Raises:
            Ended: it is not so, or nobody can tell.
            Interrupted: a person cancelled.
        """
        policy = await self._policy()
        doubt = first.reading.engine
        if doubt is None:
            raise _not_confirmed("the report says nothing of an engine")
        unanswered = doubt.answer is not None and doubt.answer.came is Came.NONE
        self._engines.last = doubt
        for number in range(1, _WAITS + 1):
            if await self._waited(policy.confirm_wait, number):
                return first, None
            await self._look(policy, unanswered=unanswered)
        self._book.enter(Phase.CONFIRMING, "one short request is sent, and its page read meanwhile")
        asked = await self._engines.ask(policy, suspected=True)
        if asked is None:
            raise _not_confirmed("it is not known what came of the request; the next sweep tells")
        return self._concluded(first, *asked)

    async def _policy(self) -> Policy:
        present = await self._case.hands.present()
        if present.spec is None:
            raise Ended(Decision.end(Outcome.REMOVED, "the server is no longer in the fleet"))
        if present.pause is not None and present.pause.until > workflow.now():
            until = f"{present.pause.until:%H:%M:%S}"
            raise Ended(Decision.end(Outcome.PAUSED, f"paused until {until}"))
        return present.spec.policy

    async def _waited(self, span: timedelta, number: int) -> bool:
        """Wait; true where a person ordered a restart meanwhile, who needs no proof."""
        orders, until = self._case.orders, workflow.now() + span
        step = f"look again: has a witness moved? ({number} of {_WAITS})"
        self._book.enter(Phase.CONFIRMING, step, until)
        await self._case.sleep(until, "does a witness of progress move?", lambda: orders.by_hand)
        return orders.by_hand

    async def _look(self, policy: Policy, *, unanswered: bool) -> None:
        reading = await self._case.hands.read("has a witness moved?")
        is_alive = is_shown_alive(reading, self._engines.last)
        finding = self._engines.judge(reading, policy)
        is_idle = finding.verdict is Verdict.IDLE and unanswered and not is_alive
        if finding.verdict is not Verdict.SUSPECT and not is_idle:
            raise _not_confirmed(f"{finding.verdict}: {finding.why}")

    def _concluded(
        self, first: Observation, reading: Reading, finding: Finding
    ) -> tuple[Observation, Decision | None]:
        if finding.verdict in (Verdict.STUCK, Verdict.UNRESPONSIVE):
            known = {"verdict": finding.verdict, "why": finding.why, "reading": reading}
            return first.model_copy(update=known), None
        if finding.verdict in GOOD or finding.verdict is Verdict.SUSPECT:
            stale = _is_stale(first, reading)
            raise _not_confirmed(f"{finding.why}{'; its gauges are stale' if stale else ''}")
        why = f"{finding.verdict}: {finding.why}"
        return first, Decision.end(Outcome.HANDED_OVER, why)


def _is_stale(first: Observation, reading: Reading) -> bool:
    """Whether it said that work was in flight, stood still, and answered all the same."""
    answer = reading.engine.answer if reading.engine is not None else None
    worked = first.reading.engine is not None and first.reading.engine.in_flight
    return worked and answer is not None and answer.came is Came.GIVEN


def _not_confirmed(why: str) -> Ended:
    return Ended(Decision.end(Outcome.NOT_CONFIRMED, why))
