"""What a remediation knows of an engine: its last look, what was proved of it, and how it is asked.

An engine is asked only when nothing of it has moved, and then once. Requests go through the
workflow ``ask/<server>``, so that no probe of the same server runs beside them.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import (
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
)

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.engine import AskRequest
    from fleet.contracts.names import ask_id
    from fleet.engine_sources import EngineSource
    from fleet.engines.proof import is_open
    from fleet.engines.proving import Ask, Known, Pause, settle
    from fleet.findings import Finding
    from fleet.patience import Patience
    from fleet.readings import Reading
    from fleet.verdicts import Verdict
    from workflows.ask import ASK_WITHIN, AskEngine
    from workflows.book import Book
    from workflows.hands import Hands, Interrupted
    from workflows.orders import Orders

#: So often it is tried to ask where another request is under way.
_TRIES = 12
_BETWEEN = timedelta(seconds=10)


class Engines(Known):
    """What is known of an engine, kept in the incident's book, and how more is got to know."""

    def __init__(self, server: str, book: Book, orders: Orders, hands: Hands) -> None:
        super().__init__()
        self._server, self._book, self._orders, self._hands = server, book, orders, hands

    def judge(self, reading: Reading, policy: Patience) -> Finding:
        finding = super().judge(reading, policy)
        self._book.read(reading, str(finding.verdict))
        return finding

    def heard(self, reading: Reading, policy: Patience) -> Finding:
        finding = super().heard(reading, policy)
        self._book.note(f"asked: {finding.why}")
        return finding

    async def settle(self, reading: Reading, policy: Patience, why: str) -> tuple[Reading, Finding]:
        """Judge a look, and where it proves nothing look and ask until it is known.

        Raises:
            Interrupted: a person cancelled meanwhile.
        """
        came, story = None, settle(self, reading, policy)
        while True:
            try:
                step = story.send(came)
            except StopIteration as end:
                return end.value or await self._settle_once_more(policy, why)
            if isinstance(step, Pause):
                came = None
                await self._pause(step.span, "does a witness move?")
            elif isinstance(step, Ask):
                came = await self.ask(suspected=step.suspected, ranks=step.ranks)
            else:
                came = await self._hands.read(why)

    async def _settle_once_more(self, policy: Patience, why: str) -> tuple[Reading, Finding]:
        """After a request of which nothing is known: a worker that died says nothing of a server.

        That request may be at the engine until its deadline, so no other is sent before.
        """
        spec = (await self._hands.present()).spec
        source = spec.source if spec is not None else None
        span = max(source.deadline, _BETWEEN) if isinstance(source, EngineSource) else _BETWEEN
        await self._pause(span, "a request got lost: it may still be there")
        last, reading = self.last, await self._hands.read(why)
        finding = self.judge(reading, policy)
        if not is_open(reading, finding, last):
            return reading, finding
        asked = await self.ask(suspected=finding.verdict is not Verdict.IDLE, ranks=self.doubted)
        if asked is not None and asked.engine is not None:
            return asked, self.heard(asked, policy)
        why_not = f"it could not be asked; {finding.why}"
        return reading, Finding(verdict=Verdict.UNPROVEN, why=why_not)

    async def ask(self, *, suspected: bool, ranks: tuple[str, ...] = ()) -> Reading | None:
        """Send one short request, if nothing has moved since the last look; none where it is not
        known what came of it.
        """
        for _ in range(_TRIES):
            try:
                return await self._in_its_turn(
                    AskRequest(
                        server=self._server, since=self.last, suspected=suspected, ranks=ranks
                    )
                )
            except WorkflowAlreadyStartedError:
                await self._pause(_BETWEEN, "another request to it is under way")
        self._book.note("not asked: another request to it never ended")
        return None

    async def _in_its_turn(self, request: AskRequest) -> Reading | None:
        """
        Raises:
            WorkflowAlreadyStartedError: somebody else asks it just now.
            Interrupted: a person cancelled meanwhile; the request is given up.
        """
        handle = await workflow.start_child_workflow(
            AskEngine.run,
            request,
            id=ask_id(self._server),
            execution_timeout=ASK_WITHIN + timedelta(minutes=2),
            static_summary=f"one short request to {self._server}",
        )
        await workflow.wait_condition(lambda: handle.done() or self._orders.stop)
        if not handle.done():
            handle.cancel()
        try:
            return await handle
        except ChildWorkflowError as problem:
            if self._orders.stop:
                raise Interrupted from problem
            self._book.note("it is not known what came of a request: the worker went away")
            return None

    async def _pause(self, span: timedelta, why: str) -> None:
        until = workflow.now() + span
        while (left := until - workflow.now()) > timedelta(0):
            try:
                await workflow.wait_condition(
                    lambda: self._orders.stop, timeout=left, timeout_summary=why
                )
            except TimeoutError:
                continue
            raise Interrupted
