"""One hung server, from the report to a stated outcome.

The running workflow ``remediate/<server>`` is the lock of its server. This file is the workflow as
Temporal and people see it: signals, the query, the end. ``workflows/healing.py`` tells the story.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from fleet import operator
    from fleet.contracts.names import REMEDIATION
    from fleet.contracts.remediation import (
        Outcome,
        RemediationInput,
        RemediationSignal,
        RemediationStatus,
    )
    from fleet.contracts.storm import SLOT_SIGNAL
    from fleet.contracts.sweep import Observation
    from fleet.durations import show
    from fleet.verdicts import ACTIONABLE, FOR_REMEDIATION, GOOD
    from workflows.book import Book
    from workflows.hands import Hands
    from workflows.healing import Healing
    from workflows.orders import Orders


@workflow.defn(name=REMEDIATION)
class Remediation:
    """Heals one server. Exceptions never leave it half done: they end as ``internal_error``."""

    @workflow.init
    def __init__(self, request: RemediationInput) -> None:
        self._book = Book(request)
        self._orders = Orders()
        self._hands = Hands(request.server, lambda: self._orders.stop)
        self._healing = Healing(request, self._book, self._orders, self._hands)
        self._heard: set[str] = set()
        self._cancelled_by_temporal = False

    @workflow.run
    async def run(self, request: RemediationInput) -> RemediationStatus:
        """Run the story in a task of its own, so that a cancellation from the Temporal UI is heard
        like the signal and the clean-up is the same.
        """
        del request
        story = asyncio.create_task(self._healing.run())
        while not story.done():
            try:
                await workflow.wait_condition(story.done)
            except asyncio.CancelledError:
                self._cancelled_by_temporal = True
                reason = workflow.cancellation_reason()
                self.cancel({"who": "a cancellation in Temporal", "why": reason or ""})
        await story
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self._cancelled_by_temporal and self._book.outcome is Outcome.CANCELLED:
            raise asyncio.CancelledError
        return self._book.status()

    @workflow.query(description="Where the incident stands, its timeline, and the next step")
    def status(self) -> RemediationStatus:
        return self._book.status()

    @workflow.signal(description="A sweep's confirmed verdict; sent by steady itself")
    def observe(self, *words: Any) -> None:
        try:
            observation = Observation.model_validate(words[0] if words else None)
        except ValidationError:
            self._book.note("observe: not understood; only steady itself sends this signal")
            return
        if observation.key and observation.key in self._heard:
            return
        self._heard.add(observation.key)
        self._book.saw(observation)
        known = self._book.verdict
        if observation.verdict in GOOD or known not in (None, observation.verdict):
            self._orders.changed = True
        if observation.verdict in FOR_REMEDIATION:
            self._healing.first = self._healing.first or observation
            if observation.verdict in ACTIONABLE and self._book.incident is not None:
                self._book.adopt(observation.verdict, observation.since)

    @workflow.signal(name=SLOT_SIGNAL, description="storm-guard's word; sent by steady itself")
    def slot(self, *words: Any) -> None:
        self._healing.slots.hear(words)

    @workflow.signal(description='End the incident: {"who": "...", "why": "..."}')
    def cancel(self, *words: Any) -> None:
        order = operator.read_request(words)
        if self._orders.committed:
            self._orders.no_more = True
            self._book.note(f"cancel {operator.by(order)}: too late, the command was sent")
            self._book.answer(order.id, "too late, the command was sent; no further restart")
            return
        self._book.note(f"cancelled {operator.by(order)}")
        self._orders.cancel = order

    @workflow.signal(description='Restart without waiting: {"who": "...", "why": "..."}')
    def restart_now(self, *words: Any) -> None:
        order = operator.read_request(words)
        if self._orders.committed:
            self._book.note(f"restart_now {operator.by(order)}: a restart is under way already")
            self._book.answer(order.id, "a restart is under way already")
            return
        self._book.note(f"restart_now {operator.by(order)}")
        self._orders.restart_now = order

    @workflow.signal(description='Wait before acting: {"who": "...", "why": "...", "for": "30m"}')
    def snooze(self, *words: Any) -> None:
        order = operator.read_request(words)
        try:
            span = operator.read_span(words)
        except operator.NotUnderstood as problem:
            self._book.note(f"snooze {operator.by(order)} not understood: {problem}")
            self._book.answer(order.id, f"not understood: {problem}")
            return
        if self._orders.committed:
            self._book.note(f"snooze {operator.by(order)}: too late, the command was sent")
            self._book.answer(order.id, "too late, the command was sent")
            return
        until = workflow.now() + span
        self._orders.not_before = until
        self._orders.changed = True
        self._book.note(f"snoozed for {show(span)} {operator.by(order)}")
        self._book.answer(order.id, f"snoozed until {until:%Y-%m-%d %H:%M:%S} UTC")

    @workflow.signal(description='Allow the restart (mode approve): {"who": "...", "why": "..."}')
    def approve(self, *words: Any) -> None:
        order = operator.read_request(words)
        if self._orders.committed:
            self._book.note(
                f"approve {operator.by(order)}: nothing to approve, the command was sent"
            )
            self._book.answer(order.id, "nothing to approve: the command was sent")
            return
        self._orders.approved = order
        self._book.note(f"approved {operator.by(order)}")
        self._book.answer(order.id, "approved")

    @workflow.signal(dynamic=True)
    def unknown(self, name: str, words: Sequence[RawValue]) -> None:
        """Whoever typed it was told that it succeeded; here they see that it did nothing."""
        del words
        known = ", ".join(signal for signal in RemediationSignal if signal != "observe")
        self._book.note(f"{name[:40]}: no such word, nothing was done; there are {known}")
