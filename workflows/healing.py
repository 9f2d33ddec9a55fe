"""The story of a remediation: persist, recheck at the last moment, take budget, restart, verify."""

import asyncio
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet import operator
    from fleet.contracts.alerts import Severity
    from fleet.contracts.guard import OpenRequest
    from fleet.contracts.host import HostErrorType
    from fleet.contracts.remediation import Outcome, Phase, RemediationInput
    from fleet.contracts.sweep import Observation
    from fleet.durations import brief
    from fleet.ladder import Step
    from fleet.parts import in_parts
    from fleet.policy import Mode, Policy
    from fleet.remediation import (
        HELD,
        Decision,
        Next,
    )
    from fleet.verdicts import ACTIONABLE, Verdict
    from workflows.book import Book
    from workflows.case import Case
    from workflows.confirming import Confirming
    from workflows.cure import Cure, Facts, NoEffect, Restarted
    from workflows.decide import Decide, Ended
    from workflows.draining import Draining
    from workflows.ending import Ending
    from workflows.escalation import Escalation
    from workflows.hands import Hands, Interrupted, NotSent, expired
    from workflows.orders import Orders
    from workflows.parts import Parts
    from workflows.preparing import Preparing
    from workflows.slots import Slots
    from workflows.taking import Taking, refused

_FIRST_WORD_WITHIN = timedelta(seconds=60)
#: How often an act may be put off because its facts went stale or the host had changed.
_ROUNDS = 10


class Healing:
    def __init__(self, request: RemediationInput, book: Book, orders: Orders, hands: Hands) -> None:
        self.first: Observation | None = None
        self._case = Case(request, book, orders, hands)
        self.slots = Slots(self._case)
        self._decide = Decide(self._case)
        self._draining = Draining(self._case)
        self._taking = Taking(self._case)
        self._evidence = Preparing(self._case)
        self._cure, self._parts = Cure(self._case), Parts(self._case)
        self._escalation = Escalation(self._case)
        self._ending = Ending(self._case)
        self._book, self._orders, self._hands = book, orders, hands
        self._carried = request.carried
        self._attempts = request.carried.attempts if request.carried else 0
        self._proved_harmless = False
        self._held = False

    async def run(self) -> None:
        """Heal, and end in a stated outcome whatever happens."""
        try:
            decision = await self._heal()
        except Interrupted:
            decision = self._cancelled()
        except Ended as end:
            decision = end.decision
        except Exception as problem:  # noqa: BLE001 - rule 5: no silence after an action
            workflow.logger.exception("a remediation failed")
            said = f"{type(problem).__name__}: {problem}"
            decision = Decision.end(Outcome.INTERNAL_ERROR, said[:300])
        await self.slots.give_back()
        await self._draining.end(decision)
        policy = self._case.policy or Policy()
        await self._ending.close(decision, policy, harmless=self._proved_harmless, held=self._held)

    async def _heal(self) -> Decision:
        if self._carried is not None:
            await self._escalate(self._carried.outcome, self._carried.reads)
        else:
            await self._begin()
        rounds = 0
        while rounds <= _ROUNDS:
            policy = await self._decide.persist()
            restarts = self._case.incident.restarts
            if restarts and not self._attempts:
                await self._not_recovered("an earlier run of this incident had restarted it")
            await self._evidence.collect()
            decision, facts = await self._last_look()
            end = await self._follow(decision, facts, policy)
            if end is not None:
                return end
            moved = self._case.incident.restarts > restarts or self.slots.has_waited()
            rounds = 0 if moved or decision.next is not Next.RESTART else rounds + 1
        return Decision.end(Outcome.HANDED_OVER, "the facts changed before every try to act")

    async def _last_look(self) -> tuple[Decision, Facts | None]:
        decision, facts = await self._decide.recheck()
        return self._evidence.unless_incurable(decision, facts), facts

    async def _follow(
        self, decision: Decision, facts: Facts | None, policy: Policy
    ) -> Decision | None:
        """Go where the last look sends the incident; none where it has to be judged anew."""
        if decision.next is Next.END:
            return decision
        if decision.next is Next.APPROVAL:
            await self._decide.approval(policy)
        elif decision.next is Next.WAIT or facts is None:
            await self._decide.pause(policy, decision.why)
        elif decision.next is Next.BOOTING:
            await self._decide.booting(facts, decision.why)
        elif not await self.slots.obtain(facts):
            return None
        elif facts.policy.mode is Mode.DRY_RUN and not self._orders.by_hand:
            return Decision.end(Outcome.DRY_RUN, "everything but the command was done")
        elif await self._draining.begin(facts):
            # What was seen is old by then, and who recovered meanwhile is not restarted.
            decision, facts = await self._last_look()
            return await self._follow(decision, facts, policy)
        else:
            return await self._act(facts)
        return None

    async def _begin(self) -> None:
        """Hear why this run exists and open the incident with the guard, which keeps its clock."""
        await self._hear_why()
        handed_over = await self._confirm()
        opened = await self._hands.open(
            OpenRequest(
                server=self._case.server, observation=self.first, by_hand=self._orders.by_hand
            )
        )
        incident = self._book.incident = opened.incident
        self._book.detected_at = workflow.now()
        self._case.beat = incident.beat
        self._book.job = incident.job or self._book.job
        if self.first is not None:
            same = incident.verdict is self.first.verdict
            self._book.adopt(
                self.first.verdict, incident.first_observed if same else self.first.since
            )
        if incident.hold is not None and not self._orders.by_hand and not opened.is_new:
            self._held = True
            raise Ended(Decision.end(HELD[incident.hold], f"held since before: {incident.hold}"))
        # A cancel that came with the first word must leave its mark with the guard, so not earlier.
        self._case.check()
        if handed_over is not None:
            raise Ended(handed_over)
        self._book.note(
            f"incident {incident.id} opened"
            if opened.is_new
            else f"incident {incident.id} goes on, first seen {incident.first_observed:%H:%M:%S}"
        )
        self._book.enter(Phase.CONFIRMING, "look at the host")
        if opened.cooldown_until is not None and not self._orders.by_hand:
            await self._case.sleep(opened.cooldown_until, "cooldown after an earlier restart")
        await self._decide.first_look()
        await self._tell_confirmed()

    async def _confirm(self) -> Decision | None:
        """A suspicion becomes a verdict, or ends here. One that was cancelled leaves its mark."""
        decision = None
        if self.first is not None and self.first.verdict is Verdict.SUSPECT:
            with suppress(Interrupted):
                self.first, decision = await Confirming(self._case).confirm(self.first)
        return decision

    async def _hear_why(self) -> None:
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                self._knows_why,
                timeout=_FIRST_WORD_WITHIN,
                timeout_summary="the first report, or a person's order",
            )
        if not self._knows_why():
            raise Ended(Decision.end(Outcome.NOT_CONFIRMED, "nobody reported anything"))

    def _knows_why(self) -> bool:
        return self.first is not None or self._orders.by_hand

    async def _tell_confirmed(self) -> None:
        if self.first is None:
            return
        policy = (await self._decide.spec())[1].policy
        verdict, wait = self.first.verdict, policy.persistence(self.first.verdict)
        self._book.enter(Phase.ANNOUNCING, "people are told that it is confirmed")
        await self._case.tell(
            "confirmed",
            Severity.NOTICE,
            f"{self._case.server} is {verdict}: {self.first.why}",
            next_step=f"restart when it has been so for {brief(wait)}, unless it recovers",
        )

    async def _announce(self, facts: Facts) -> None:
        number = self._case.incident.restarts + 1
        said = f"restart {number} of this incident{facts.in_words}"
        await self._case.tell(
            "restarting" if number == 1 else f"restarting-{number}",
            Severity.NOTICE,
            f"{self._case.server} is being restarted ({said})",
            next_step="a cooldown, then the restart is verified",
        )

    async def _act(self, facts: Facts) -> Decision | None:
        """Take budget, restart, verify. None where it did not come to an end: look again."""
        key = await self._take(facts)
        if key is None:
            return None
        if self._orders.stop:
            await self._taking.give_back(facts, key, "cancelled before the command")
            raise Interrupted
        if expired(facts.asked, facts.policy.reading_max_age):
            await self._taking.give_back(facts, key, "what was read went stale before the command")
            return None
        if self.slots.is_lost:
            await self._taking.give_back(facts, key, "restarts were blocked before the command")
            return None
        self._orders.committed = True
        # Beside the command, not before it: nothing may age the facts that it rests on.
        telling = asyncio.create_task(self._announce(facts))
        self._decide.strangers.sent()
        try:
            act = self._parts if in_parts(facts.step.action) else self._cure
            done = await act.restart(facts, key)
        except NotSent as problem:
            self._orders.committed = False
            self._decide.strangers.not_sent()
            await self._taking.give_back(facts, key, f"nothing was sent: {problem.kind}")
            return self._not_sent(problem)
        finally:
            await telling
        if isinstance(done, NoEffect):
            self._proved_harmless = done.proved
            # What can't be ended is not tried again: only a person can help.
            outcome = Outcome.HANDED_OVER if done.final else Outcome.RESTART_FAILED
            return Decision.end(outcome, done.why)
        return await self._verify(facts, done)

    async def _take(self, facts: Facts) -> str | None:
        """Take one restart, the last thing before the command; escalate where there is none."""
        incident = self._case.incident
        self._attempts += 1
        key = f"{incident.id}/{workflow.info().run_id[:8]}/{self._attempts}"
        took = await self._taking.take(facts, key)
        if took.granted:
            self._case.answer_restart("accepted: the restart is under way")
            return key
        if took.cooling_until is not None:
            await self._taking.cool(took.cooling_until)
            return None
        self._case.answer_restart(f"refused: {took.why}")
        self._orders.restart_now = None
        if self._book.verdict not in ACTIONABLE:
            raise Ended(Decision.end(Outcome.BUDGET_EXHAUSTED, took.why))
        title, detail = refused(took)
        await self._case.tell(
            str(Outcome.BUDGET_EXHAUSTED),
            Severity.PAGE,
            f"{self._case.server}: {title}",
            detail=detail,
            next_step="a person has to act; steady keeps looking and closes on recovery",
        )
        await self._escalate(Outcome.BUDGET_EXHAUSTED)
        return None

    def _not_sent(self, problem: NotSent) -> Decision | None:
        if problem.kind in _LOOK_AGAIN:
            self._book.note(f"not sent: {problem}")
            return None
        self._proved_harmless = True
        return Decision.end(Outcome.RESTART_FAILED, str(problem))

    async def _verify(self, facts: Facts, done: Restarted) -> Decision | None:
        incident = self._case.incident
        incident = incident.model_copy(update={"restarts": incident.restarts + 1})
        self._book.incident = incident
        self._book.restarted_at = done.at
        self._orders.restarted()
        self._decide.strangers.restarted(done.after)
        await self._draining.restarted()
        ok, why = await self._cure.verify(facts, done)
        self._orders.committed = False
        if ok:
            return Decision.end(Outcome.RESOLVED, why)
        await self._draining.release_others()
        if done.after is not None:
            self._decide.waited_for(done.after)
        self._book.incident = incident.model_copy(update={"rung": incident.rung + 1})
        stronger = facts.next_step(incident.rung + 1)
        await self._not_recovered(why, stronger)
        if stronger is not None:
            await self._decide.first_look()
        if self._orders.no_more:
            await self._escalate(Outcome.ESCALATED)
        return None

    async def _not_recovered(self, why: str, stronger: Step | None = None) -> None:
        by = f" ({stronger})" if stronger is not None else ""
        await self._case.tell(
            "not_recovered",
            Severity.PAGE,
            f"{self._case.server}: restart did not recover it",
            detail=why,
            next_step=f"the next restart within the budget{by}, or a person",
        )
        self._book.note(f"the restart did not recover it: {why}")

    async def _escalate(self, outcome: Outcome, reads: int = 0) -> None:
        await self._escalation.wait(outcome, reads, self._attempts)

    def _cancelled(self) -> Decision:
        order = self._orders.cancel
        return Decision.end(
            Outcome.CANCELLED, operator.by(order) if order is not None else "cancelled"
        )


_LOOK_AGAIN = frozenset({HostErrorType.SUPERSEDED, "late"})
