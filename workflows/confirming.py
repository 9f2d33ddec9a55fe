"""A suspicion, before anything is opened or told: two waits, readings, and at the end a request."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.remediation import Outcome, Phase
    from fleet.contracts.sweep import Observation
    from fleet.engines import proving
    from fleet.engines.proving import WAITS, Ask, Conclusion, ForPeople, NotSo, Pause
    from fleet.policy import Policy
    from fleet.readings import Reading
    from fleet.remediation import Decision
    from workflows.case import Case
    from workflows.decide import Ended


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
        came, story = None, proving.confirm(self._engines, doubt, policy)
        while True:
            try:
                step = story.send(came)
            except StopIteration as end:
                return _concluded(first, end.value)
            if isinstance(step, Pause):
                came = None
                if await self._waited(step):
                    return first, None
            else:
                came = await self._seen(step)

    async def _seen(self, step: proving.Look | Ask) -> Reading | None:
        if not isinstance(step, Ask):
            return await self._case.hands.read("has a witness moved?")
        self._book.enter(Phase.CONFIRMING, "one short request is sent, and its page read meanwhile")
        return await self._engines.ask(suspected=step.suspected, ranks=step.ranks)

    async def _policy(self) -> Policy:
        present = await self._case.hands.present()
        if present.spec is None:
            raise Ended(Decision.end(Outcome.REMOVED, "the server is no longer in the fleet"))
        if present.pause is not None and present.pause.until > workflow.now():
            until = f"{present.pause.until:%H:%M:%S}"
            raise Ended(Decision.end(Outcome.PAUSED, f"paused until {until}"))
        return present.spec.policy

    async def _waited(self, pause: Pause) -> bool:
        """Wait; true where a person ordered a restart meanwhile, who needs no proof."""
        orders, until = self._case.orders, workflow.now() + pause.span
        step = f"look again: has a witness moved? ({pause.number} of {WAITS})"
        self._book.enter(Phase.CONFIRMING, step, until)
        await self._case.sleep(until, "does a witness of progress move?", lambda: orders.by_hand)
        return orders.by_hand


def _concluded(first: Observation, said: Conclusion) -> tuple[Observation, Decision | None]:
    if isinstance(said, NotSo):
        raise _not_confirmed(said.why)
    if isinstance(said, ForPeople):
        return first, Decision.end(Outcome.HANDED_OVER, said.why)
    known = {"verdict": said.verdict, "why": said.why, "reading": said.reading}
    return first.model_copy(update=known), None


def _not_confirmed(why: str) -> Ended:
    return Ended(Decision.end(Outcome.NOT_CONFIRMED, why))
