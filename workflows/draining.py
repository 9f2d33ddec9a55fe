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
    from fleet.routed import (
        LONGEST,
        drained_with,
        lasting,
        restart_takes,
        stays_drained,
        wait,
    )
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
_NOTHING = "drained: the gateway sends {whom} nothing more"
_SPARINGLY = "drained still: the gateway sends {whom} only what no other backend is left for"
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
        servers = drained_with(where, self._case.server, facts.step) if where is not None else []
        if where is None or not servers:
            return False
        if self._outlasts(needed, servers) or self._was_asked_just_now:
            return False
        where = self._together(where, servers)
        patience = wait(where, self._book.verdict)
        others = where.wait if self._others(where) else timedelta(0)
        ends = workflow.now() + max(patience, others) + _BESIDE
        step = f"the gateway sends {self._named(where.backends)} nothing more"
        self._book.enter(Phase.DRAINING, step, ends)
        await self._drain(where, lasting(facts.step, facts.policy), patience, others)
        if not self._outlasts(needed, servers):
            self._not_before = workflow.now() + _NOT_AGAIN_FOR
        return True

    def _together(self, where: Gateways, servers: list[str]) -> Gateways:
        """The gateways, with all that is to be drained there and what is from an earlier step."""
        before = self._case.drained.backends if self._case.drained is not None else []
        return where.model_copy(update={"backends": list(dict.fromkeys((*servers, *before)))})

    def _others(self, where: Gateways) -> list[str]:
        return [each for each in where.backends if each != self._case.server]

    def _outlasts(self, needed: timedelta, servers: list[str]) -> bool:
        if self._until is None or self._is_last_resort:
            return False
        drained = self._case.drained.backends if self._case.drained is not None else []
        if drained and not set(servers) <= set(drained):
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
        """Let a server that is drained stay so until it is looked at again. What a restart took
        along does not wait for it.
        """
        await self.release_others()
        if self._case.drained is not None:
            left = min(until - workflow.now() + _SPARE, LONGEST)
            await self._drain(self._case.drained, left, timedelta(0))

    async def end(self, decision: Decision) -> None:
        """Send to it again; what is as bad as it was stays drained for a little longer."""
        where = self._case.drained
        if where is None:
            return
        if stays_drained(decision):
            await self.release_others()
            if self._case.drained is not None:
                await self._shorten(self._case.drained)
            return
        patience = _UNDRAIN if self._until is not None else ONCE
        if await self._undrain(where, where.backends, patience):
            self._case.drained = None

    async def release_others(self) -> None:
        """Send again to what the restart took along: whether it works, its own incidents say."""
        where = self._case.drained
        others = self._others(where) if where is not None else []
        if where is None or not others or not await self._undrain(where, others, ONCE):
            return
        left = [each for each in where.backends if each not in others]
        kept = where.model_copy(update={"backends": left})
        self._case.drained = kept if left else None

    async def _undrain(self, where: Gateways, servers: list[str], retry: RetryPolicy) -> bool:
        request = UndrainRequest(
            server=self._case.server,
            servers=servers,
            lease=self._case.incident.id,
            gateways=where,
        )
        try:
            await workflow.execute_activity_method(
                GatewayActivities.undrain_server,
                request,
                start_to_close_timeout=_BESIDE,
                retry_policy=retry,
                summary=f"the gateway sends to {self._named(servers)} again",
            )
        except ActivityError as problem:
            ends = f", at {self._until:%H:%M:%S} UTC" if self._until is not None else ""
            self._book.note(f"not undrained, it ends by itself{ends}: {said(problem)}")
            return False
        self._book.note(f"undrained: the gateway sends to {self._named(servers)} again")
        return True

    def _named(self, servers: list[str]) -> str:
        """In words, of its own story: a server is "it"."""
        own = ["it"] if not servers or self._case.server in servers else []
        return ", ".join([*own, *(each for each in servers if each != self._case.server)])

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
        self,
        where: Gateways,
        span: timedelta,
        patience: timedelta,
        others: timedelta = timedelta(0),
        *,
        last_resort: bool = False,
    ) -> None:
        """``others`` is the patience with what those have in flight that are taken along."""
        # Before it is asked: one that was given up may have been done.
        self._case.drained, asked = where, workflow.now()
        request = self._request(where, span, patience, last_resort=last_resort)
        try:
            result = await self._case.hands.do(
                GatewayActivities.drain_server,
                request.model_copy(update={"wait_others": others}),
                summary=f"the gateway sends {self._named(where.backends)} nothing more",
                bound=max(patience, others) + _BESIDE,
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
            servers=where.backends,
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
            whom = self._named(self._case.drained.backends if self._case.drained else [])
            lines.append((_SPARINGLY if last_resort else f"{_NOTHING}{left}").format(whom=whom))
        if lines != self._noted:
            self._noted = lines
            for line in lines:
                self._book.note(line)
