"""Out of rotation for a restart: the gateways that route to the server send it nothing more.

A gateway that is down holds nothing up. What steady drained ends with the incident, or by itself.
"""

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.gateway import GatewayActivities
    from fleet.contracts.gateway import DrainRequest, DrainResult, Gateways, UndrainRequest
    from fleet.contracts.remediation import Phase
    from fleet.durations import brief
    from fleet.remediation import Decision
    from fleet.routed import LONGEST, lasting, restart_takes, stays_drained, wait
    from workflows.case import Case
    from workflows.cure import Facts
    from workflows.hands import ONCE, said

#: What the activity takes beside its wait.
_BESIDE = timedelta(seconds=30)
#: Where no gateway did it, none is asked again for so long: the act does not wait for them.
_NOT_AGAIN_FOR = timedelta(minutes=5)
#: Beyond the next look at a server for which nothing is left to do.
_SPARE = timedelta(minutes=10)
#: After an end without a recovery: until the next try, or a person.
_AFTERWARDS = timedelta(minutes=15)
_NOTHING = "drained: the gateway sends it nothing more"
_SPARINGLY = "drained still: the gateway sends it only what no other backend is left for"
_UNDRAIN = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=4,
)


class Draining:
    """Its lease has the name of the incident, so that a later run of it renews the same."""

    def __init__(self, case: Case) -> None:
        self._case, self._book = case, case.book
        self._until: datetime | None = None
        self._is_last_resort = False
        self._not_before: datetime | None = None
        self._noted: list[str] = []
        case.keep_drained = self.keep

    async def begin(self, facts: Facts) -> bool:
        """Drain the server for a restart. Whether time was spent on it: then the facts are old."""
        where, needed = facts.present.gateways, restart_takes(facts.step)
        if where is None or self._outlasts(needed) or self._was_asked_just_now:
            return False
        patience = wait(where, self._book.verdict)
        ends = workflow.now() + patience + _BESIDE
        self._book.enter(Phase.DRAINING, "the gateway sends it nothing more", ends)
        await self._drain(where, lasting(facts.step, facts.policy), patience)
        if not self._outlasts(needed):
            self._not_before = workflow.now() + _NOT_AGAIN_FOR
        return True

    def _outlasts(self, needed: timedelta) -> bool:
        if self._until is None or self._is_last_resort:
            return False
        return self._until - workflow.now() > needed

    @property
    def _was_asked_just_now(self) -> bool:
        return self._not_before is not None and workflow.now() < self._not_before

    async def restarted(self) -> None:
        """Whether it works again is known only when it was verified, which takes its time. Until
        then it is sent what no other backend is left for: else who has no other waits for that.
        """
        where, left = self._case.drained, (self._until or workflow.now()) - workflow.now()
        if where is not None and left > timedelta(0):
            await self._drain(where, left, timedelta(0), last_resort=True)

    async def keep(self, until: datetime) -> None:
        """Let a server that is drained stay so until it is looked at again."""
        if self._case.drained is not None:
            left = min(until - workflow.now() + _SPARE, LONGEST)
            await self._drain(self._case.drained, left, timedelta(0))

    async def end(self, decision: Decision) -> None:
        """Send to it again; what is as bad as it was stays drained for a little longer."""
        where = self._case.drained
        if where is None:
            return
        if stays_drained(decision):
            await self._shorten(where)
            return
        request = UndrainRequest(
            server=self._case.server, lease=self._case.incident.id, gateways=where
        )
        try:
            await workflow.execute_activity_method(
                GatewayActivities.undrain_server,
                request,
                start_to_close_timeout=_BESIDE,
                retry_policy=_UNDRAIN if self._until is not None else ONCE,
                summary="the gateway sends to it again",
            )
        except ActivityError as problem:
            ends = f", at {self._until:%H:%M:%S} UTC" if self._until is not None else ""
            self._book.note(f"not undrained, it ends by itself{ends}: {said(problem)}")
            return
        self._case.drained = None
        self._book.note("undrained: the gateway sends to it again")

    async def _shorten(self, where: Gateways) -> None:
        asked, request = workflow.now(), self._request(where, _AFTERWARDS, timedelta(0))
        try:
            result = await workflow.execute_activity_method(
                GatewayActivities.drain_server,
                request,
                start_to_close_timeout=_BESIDE,
                retry_policy=ONCE,
                summary="the gateway sends to it again soon",
            )
        except ActivityError as problem:
            result = DrainResult(failed=[said(problem)])
        self._tell(result, asked + _AFTERWARDS)

    async def _drain(
        self, where: Gateways, span: timedelta, patience: timedelta, *, last_resort: bool = False
    ) -> None:
        # Before it is asked: one that was given up may have been done.
        self._case.drained, asked = where, workflow.now()
        try:
            result = await self._case.hands.do(
                GatewayActivities.drain_server,
                self._request(where, span, patience, last_resort=last_resort),
                summary=f"the gateway sends nothing more to {self._case.server}",
                bound=patience + _BESIDE,
                retry=ONCE,
            )
        except ActivityError as problem:
            result = DrainResult(failed=[said(problem)])
        if result.drained:
            self._is_last_resort = last_resort
        self._tell(result, asked + span, last_resort=last_resort)

    def _request(
        self, where: Gateways, span: timedelta, patience: timedelta, *, last_resort: bool = False
    ) -> DrainRequest:
        return DrainRequest(
            server=self._case.server,
            lease=self._case.incident.id,
            why=f"{self._book.verdict or 'a restart by hand'}: {workflow.info().workflow_id}",
            lasting=span,
            wait=patience,
            last_resort=last_resort,
            gateways=where,
        )

    def _tell(self, result: DrainResult, until: datetime, *, last_resort: bool = False) -> None:
        """Note what came of it; a renewal that went like the last one is no event."""
        failed = "not told of the restart" if last_resort else "not drained"
        lines = [f"{failed}: {each}" for each in result.failed]
        if result.drained:
            self._until = until
            left = f", {result.in_flight} in flight after {brief(result.waited)}"
            lines.append(_SPARINGLY if last_resort else f"{_NOTHING}{left}")
        if lines != self._noted:
            self._noted = lines
            for line in lines:
                self._book.note(line)
