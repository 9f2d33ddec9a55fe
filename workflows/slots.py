"""A slot to restart in: asked of ``storm-guard``, waited for, and given back.

It is held from the grant until the restart is verified, and on to a next one that follows at once.
Whoever has to wait for anything else meanwhile gives it back.
"""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from activities.storms import StormActivities
    from fleet.contracts.fleet import StormTerms
    from fleet.contracts.remediation import Outcome, Phase
    from fleet.contracts.storm import SlotAsk, SlotFree, SlotWord
    from fleet.remediation import Decision
    from workflows.case import Case, poll
    from workflows.cure import Facts
    from workflows.decide import Ended

_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=30),
    maximum_attempts=10,
)
_ONCE = RetryPolicy(maximum_attempts=1)
#: ``storm-guard`` answers at once; one that says nothing so often in a row does not work.
_ANSWER_WITHIN = timedelta(seconds=60)
_ASKS = 5
#: The waits between two looks at a server that waits for a slot, in polls, and the longest.
_LOOKS = (10, 20, 40, 80)
_LONGEST_LOOK = timedelta(hours=1)


class Slots:
    """The slot of one remediation. Without limits in the present policy there is nothing to ask."""

    def __init__(self, case: Case) -> None:
        self._case, self._book, self._orders = case, case.book, case.orders
        self._number = 0
        self._asked = False
        self._word: SlotWord | None = None
        self._fresh = False
        self._noted = ""
        self._looks = 0
        self._waited = False
        case.stand_back = self.give_back

    @property
    def is_held(self) -> bool:
        return self._asked and self._word is not None and self._word.granted

    @property
    def is_lost(self) -> bool:
        """It was granted, and taken back since. A person's order can't be taken back so."""
        if self._orders.by_hand or not self._asked or self._word is None:
            return False
        return not self._word.granted

    def hear(self, words: tuple[Any, ...]) -> None:
        """Take in a word of ``storm-guard``; one for another run or request is none."""
        try:
            word = SlotWord.model_validate(words[0] if words else None)
        except ValidationError:
            self._book.note("slot: not understood; only steady itself sends this signal")
            return
        run = workflow.info().first_execution_run_id
        if not self._asked or (word.run, word.number) != (run, self._number):
            return
        self._word, self._fresh = word, True

    async def obtain(self, facts: Facts) -> bool:
        """Whether the restart may go ahead on these facts; where not, all is to be judged anew.

        Raises:
            Ended: ``storm-guard`` can't be asked, or does not answer.
            Interrupted: a person cancelled.
        """
        terms = facts.present.storm
        if terms is None or self.is_held:
            return True
        if self._orders.by_hand:
            await self._book_by_hand(facts, terms)
            return True
        await self._ask_until_answered(facts, terms)
        if self.is_held:
            self._looks = 0
            return True
        if self._asked:
            await self._wait(facts)
        return False

    def has_waited(self) -> bool:
        """Whether it waited for others since this was asked last."""
        waited, self._waited = self._waited, False
        return waited

    async def give_back(self) -> None:
        """Give back the slot, or the place in the queue. What fails here is freed later."""
        if not self._asked:
            return
        self._asked, self._noted = False, ""
        info = workflow.info()
        free = SlotFree(
            workflow_id=info.workflow_id, run=info.first_execution_run_id, number=self._number
        )
        try:
            await workflow.execute_activity_method(
                StormActivities.release_slot,
                free,
                start_to_close_timeout=timedelta(seconds=15),
                schedule_to_close_timeout=timedelta(minutes=2),
                retry_policy=_RETRY,
                summary="give the slot back, or the place in the queue for one",
            )
        except ActivityError as problem:
            self._book.note(f"the slot could not be given back, it is freed later: {problem.cause}")

    async def _book_by_hand(self, facts: Facts, terms: StormTerms) -> None:
        """A person's order does not wait for others; others wait for it, where that can be told."""
        try:
            await self._ask(facts, terms, _ONCE, timedelta(seconds=15))
        except ActivityError as problem:
            self._book.note(f"storm-guard was not told of this restart: {problem.cause}")

    async def _ask_until_answered(self, facts: Facts, terms: StormTerms) -> None:
        for _ in range(_ASKS):
            self._fresh = False
            try:
                await self._ask(facts, terms, _RETRY, timedelta(minutes=5))
            except ActivityError as problem:
                raise Ended(_unasked(str(problem.cause))) from problem
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: self._fresh or self._orders.by_hand or self._orders.stop,
                    timeout=_ANSWER_WITHIN,
                    timeout_summary="storm-guard's answer",
                )
            self._case.check()
            if self._fresh or self._orders.by_hand:
                return
        raise Ended(_unasked("storm-guard does not answer"))

    async def _ask(
        self, facts: Facts, terms: StormTerms, retry: RetryPolicy, within: timedelta
    ) -> None:
        if not self._asked:
            self._number, self._asked, self._word = self._number + 1, True, None
        info, policy = workflow.info(), facts.policy
        await workflow.execute_activity_method(
            StormActivities.ask_slot,
            SlotAsk(
                server=self._case.server,
                workflow_id=info.workflow_id,
                run=info.first_execution_run_id,
                number=self._number,
                incident=self._case.incident.id,
                takes=max(policy.cooldown, policy.verify_after),
                by_hand=self._orders.by_hand,
                terms=terms,
            ),
            start_to_close_timeout=timedelta(seconds=15),
            schedule_to_close_timeout=within,
            retry_policy=retry,
            summary="ask storm-guard for a slot to restart in",
        )

    async def _wait(self, facts: Facts) -> None:
        """Until a slot is granted, something is heard of the server, or it is due to be read."""
        polls = _LOOKS[min(self._looks, len(_LOOKS) - 1)]
        self._looks += 1
        self._waited = True
        again = workflow.now() + min(poll(facts.policy) * polls, _LONGEST_LOOK)
        while not self.is_held and not self._is_called and workflow.now() < again:
            self._fresh = False
            self._show(again)
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: self._fresh or self._is_called,
                    timeout=again - workflow.now(),
                    timeout_summary=f"waits, {self._blocked()}; then it is read again"[:190],
                )
        self._case.check()

    def _show(self, again: datetime) -> None:
        if self._word is None:
            return
        text = self._blocked()
        if self._word.by != self._noted:
            self._noted = self._word.by
            self._book.note(text)
        self._book.enter(Phase.WAITING, f"{text}; then judged anew", self._word.until or again)

    def _blocked(self) -> str:
        word = self._word
        if word is None:
            return "blocked by storm-guard"
        at = f" until about {word.until:%H:%M:%S} UTC" if word.until is not None else ""
        return f"blocked by {word.by}{at}"

    @property
    def _is_called(self) -> bool:
        return self._orders.changed or self._orders.by_hand or self._orders.stop


def _unasked(why: str) -> Decision:
    return Decision.end(
        Outcome.HANDED_OVER, f"how many others are restarted now can't be asked: {why}"[:300]
    )
