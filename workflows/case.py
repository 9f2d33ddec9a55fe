"""What every step of a remediation shares: the book, the orders, the hands, waiting and telling."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from fleet.alerts import action
    from fleet.contracts.alerts import AlertMessage, Severity
    from fleet.contracts.guard import Incident
    from fleet.contracts.names import incident_id
    from fleet.contracts.remediation import RemediationInput
    from fleet.findings import Finding
    from fleet.judge import still_bad
    from fleet.policy import Policy
    from fleet.readings import Reading
    from workflows.alerting import raise_alert
    from workflows.book import Book
    from workflows.engines import Engines
    from workflows.hands import Hands, Interrupted
    from workflows.orders import Orders

#: The shortest timer that is worth its events.
LEAST = timedelta(milliseconds=50)


class Case:
    def __init__(self, request: RemediationInput, book: Book, orders: Orders, hands: Hands) -> None:
        self.request, self.book, self.orders, self.hands = request, book, orders, hands
        self.server = request.server
        self.engines = Engines(request.server, book, orders, hands)
        self.beat: datetime | None = book.incident.beat if book.incident else None
        self.stand_back: Callable[[], Awaitable[None]] = _hold_nothing
        self.keep_drained: Callable[[datetime], Awaitable[None]] = _drain_nothing
        #: Where the server is drained for this incident.
        self.drained = request.carried.drained if request.carried else None
        #: The last process that the host showed, and the one that steady itself started, by name.
        self.process = self.ours = ""
        #: The last one that was in force when it was asked for.
        self.policy: Policy | None = None
        self._carried = request.carried is not None
        self._causes: set[str] = set()

    @property
    def incident(self) -> Incident:
        """The open incident; before the guard has opened it, one that only names things."""
        if self.book.incident is not None:
            return self.book.incident
        began = workflow.info().start_time
        return Incident(
            id=incident_id(self.server, began), server=self.server, first_observed=began
        )

    def forget(self) -> None:
        """What a process showed that is gone proves nothing against the new one."""
        self.beat = None
        self.engines.forget()

    @property
    def causes(self) -> list[str]:
        """What people were told in this run."""
        return sorted(self._causes)

    @property
    def _was_told(self) -> bool:
        """Whether people have heard of this incident, in this run or an earlier one."""
        return self._carried or bool(self._causes or self.incident.told)

    def check(self) -> None:
        """Raises Interrupted where a person cancelled and there is still something to cancel."""
        if self.orders.stop:
            raise Interrupted

    async def sleep(
        self, until: datetime, summary: str, wake: Callable[[], bool] | None = None
    ) -> None:
        """Wait until a moment; less long where ``wake`` turns true or a person cancels.

        A timer may fire a fraction early. Whoever looped on that would spin, so it is waited out.
        A slot that others may wait for is given back first.
        """

        def roused() -> bool:
            return self.orders.stop or (wake is not None and wake())

        if not roused() and until > workflow.now():
            await self.stand_back()
        while not roused() and (left := until - workflow.now()) > timedelta(0):
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    roused, timeout=max(left, LEAST), timeout_summary=summary[:190]
                )
        self.check()

    async def judge(
        self, policy: Policy, why: str, *, settle: bool = False
    ) -> tuple[Reading, Finding]:
        """Take a fresh reading and judge it against the last one that this case saw.

        ``settle``: an engine whose page leaves open if it works is watched, and asked.
        """
        reading = await self.hands.read(why)
        if reading.engine is not None and settle and not self.orders.by_hand:
            return await self.engines.settle(reading, policy, why)
        if reading.engine is not None:
            return reading, self.engines.judge(reading, policy)
        finding = still_bad(reading, self.beat, policy)
        if reading.heartbeat is not None:
            self.beat = reading.heartbeat
        self.book.read(reading, str(finding.verdict))
        return reading, finding

    def answer_restart(self, text: str) -> None:
        if self.orders.restart_now is not None:
            self.book.answer(self.orders.restart_now.id, text)

    async def tell(
        self, cause: str, severity: Severity, title: str, *, detail: str = "", next_step: str = ""
    ) -> None:
        """Alert people, once a cause an incident, without waiting for the delivery.

        An alert that can't even be started is noted; it never stops a remediation.
        """
        incident, book = self.incident, self.book
        if cause in self._causes:
            # A second start would only be refused, and stand in the history as a failure.
            return
        try:
            told = await raise_alert(
                AlertMessage(
                    server=self.server,
                    incident=incident.id,
                    cause=cause,
                    severity=severity,
                    action=action(cause, told=self._was_told),
                    paged=bool(book.pages or incident.told),
                    title=title,
                    verdict=book.verdict,
                    since=incident.first_observed,
                    job=book.job,
                    next_step=next_step[:300],
                    detail=detail[:1000],
                    workflow_id=workflow.info().workflow_id,
                )
            )
        except FailureError as problem:
            book.note(f"people could not be told ({cause}): {problem}")
            return
        self._causes.add(cause)
        if not told:
            return
        book.note(f"{severity}: {title}")
        if severity is Severity.PAGE:
            book.pages = [*book.pages, cause]

    async def tell_all(self, message: AlertMessage) -> None:
        """Alert people of what is no part of the incident, under a name of its own.

        Raises:
            FailureError: the alert could not be started.
        """
        message = message.model_copy(update={"workflow_id": workflow.info().workflow_id})
        if await raise_alert(message):
            self.book.note(f"{message.severity}: {message.title}")


async def _hold_nothing() -> None:
    pass


async def _drain_nothing(_: datetime) -> None:
    pass


def poll(policy: Policy) -> timedelta:
    """The wait between two looks at something that may change by itself."""
    return max(timedelta(seconds=1), policy.reading_max_age / 2)
