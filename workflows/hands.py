"""The activities of a remediation with their bounds, and what their failures prove."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutType,
)
from temporalio.exceptions import (
    TimeoutError as ActivityTimeoutError,
)

with workflow.unsafe.imports_passed_through():
    from activities.guards import GuardActivities
    from activities.host import HostActivities
    from activities.policies import PolicyActivities
    from activities.readings import ReadingActivities
    from fleet.contracts.fleet import PresentPolicy
    from fleet.contracts.guard import (
        CloseRequest,
        CloseResult,
        GiveBackRequest,
        OpenRequest,
        OpenResult,
        StartBatch,
        StartRequest,
        StartResult,
        TakeRequest,
        TakeResult,
    )
    from fleet.contracts.host import (
        Effect,
        Evidence,
        EvidenceRequest,
        GpuReport,
        GpuRequest,
        HostErrorType,
        HostRequest,
        HostState,
        RestartOrder,
        RestartResult,
    )
    from fleet.contracts.names import ServerRequest
    from fleet.hosts import settle_time
    from fleet.ladder import Step
    from fleet.parts import stop_time
    from fleet.readings import Reading, unreadable

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
#: An activity method, as it stands on its class.
Method = Callable[[Any, Asked], Awaitable[Answer]]

_HEARTBEAT = timedelta(seconds=20)
_QUICK = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=4,
)
#: The guard must be reached or nothing is booked: patient, yet with an end.
_PATIENT = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=30),
    maximum_attempts=20,
)
ONCE = RetryPolicy(maximum_attempts=1)
#: A restart that no worker has begun within this time was decided on old facts.
_START_WITHIN = timedelta(seconds=30)


class Interrupted(Exception):
    """A cancellation arrived while a step was under way that may still be given up."""


class HostTrouble(Exception):
    """The host could not be asked; nothing was sent to it."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class NotSent(HostTrouble):
    """Proof that a restart command never left: its budget may be given back."""


class Hands:
    """Each method is one activity. ``stop`` says whether a person wants the story to end."""

    def __init__(self, server: str, stop: Callable[[], bool]) -> None:
        self._server = server
        self._stop = stop

    async def present(self) -> PresentPolicy:
        return await self.do(
            PolicyActivities.present_policy,
            ServerRequest(server=self._server),
            summary="ask the fleet what is in force now: mode, pause, limits",
            retry=_PATIENT,
        )

    async def read(self, why: str) -> Reading:
        """Take a fresh reading. What could not be read is an unreadable reading, not an error."""
        asked = workflow.now()
        try:
            return await self.do(
                ReadingActivities.read_server,
                ServerRequest(server=self._server),
                summary=f"read {self._server}: {why}",
            )
        except ActivityError as problem:
            return unreadable(self._server, asked, f"steady could not read it: {said(problem)}")

    async def inspect(
        self, why: str, rung: int = 0, *, before_restart: bool = False, closely: bool = False
    ) -> HostState:
        """Ask the host what runs there, and what else a restart would hit or why it still lives.

        ``rung`` is the step of the ladder that it is asked for.

        Raises:
            HostTrouble: it can't be asked.
        """
        try:
            return await self.do(
                HostActivities.inspect_host,
                HostRequest(
                    server=self._server,
                    rung=rung,
                    before_restart=before_restart,
                    closely=closely,
                ),
                summary=f"ask the host: {why}",
                bound=timedelta(seconds=60),
            )
        except ActivityError as problem:
            raise HostTrouble(_kind(problem), said(problem)) from problem

    async def evidence(self, incident: str) -> Evidence:
        """Collect logs before they are destroyed; a failure costs nothing and blocks nothing."""
        try:
            return await self.do(
                HostActivities.collect_evidence,
                EvidenceRequest(server=self._server, incident=incident),
                summary="save logs and state of the host before a restart destroys them",
                bound=timedelta(seconds=90),
                retry=ONCE,
            )
        except ActivityError as problem:
            return Evidence(missing=[said(problem)[:200]])

    async def open(self, request: OpenRequest) -> OpenResult:
        return await self._book(
            GuardActivities.open_incident, request, "open the incident, or go on with it"
        )

    async def close(self, request: CloseRequest) -> CloseResult:
        return await self._book(GuardActivities.close_incident, request, "book how it ended")

    async def take(self, request: TakeRequest) -> TakeResult:
        return await self._book(
            GuardActivities.take_budget,
            request,
            f"take one restart from the budget of {self._server}",
        )

    async def started(self, request: StartRequest) -> StartResult:
        """Tell the guard of a process that this incident did not see before."""
        result = await self._book(
            GuardActivities.report_starts, StartBatch(starts=[request]), "who started this process?"
        )
        return result.answers.get(self._server, StartResult())

    async def give_back(self, request: GiveBackRequest) -> None:
        await self._book(
            GuardActivities.give_back, request, f"give the restart back: {request.proof}"[:190]
        )

    async def restart(self, order: RestartOrder, step: Step) -> RestartResult:
        """Send the command, once.

        Raises:
            NotSent: it is proved that nothing left for the host.
        """
        return await self._act(
            HostActivities.restart_server, order, step, restart_bound(step), _order(order, step)
        )

    async def stop(self, order: RestartOrder, step: Step) -> RestartResult:
        """Stop what is restarted in parts.

        Raises:
            NotSent: it is proved that nothing left for the host.
        """
        bound = restart_bound(step) + stop_time(step.action)
        return await self._act(
            HostActivities.stop_server, order, step, bound, f"stop {order.server} ({step})"
        )

    async def start(self, order: RestartOrder, step: Step) -> RestartResult:
        """Start it again; what runs is left alone.

        Raises:
            NotSent: it is proved that nothing left for the host.
        """
        bound = restart_bound(step) + stop_time(step.action)
        return await self._act(
            HostActivities.start_server, order, step, bound, f"start {order.server} ({step})"
        )

    async def gpu(self, request: GpuRequest) -> GpuReport:
        """Ask the host who still holds the GPU memory that must be free.

        Raises:
            HostTrouble: it can't be asked.
        """
        try:
            return await self.do(
                HostActivities.gpu_holders,
                request,
                summary="ask the host who still holds the GPU memory",
                bound=timedelta(seconds=60),
            )
        except ActivityError as problem:
            raise HostTrouble(_kind(problem), said(problem)) from problem

    async def _act(
        self,
        method: "Method[RestartOrder, RestartResult]",
        order: RestartOrder,
        step: Step,
        bound: timedelta,
        summary: str,
    ) -> RestartResult:
        """Run an activity that changes the host, once, and say what its failure proves."""
        try:
            return await workflow.execute_activity_method(
                method,
                order,
                schedule_to_start_timeout=_START_WITHIN,
                start_to_close_timeout=bound,
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=ONCE,
                summary=summary[:190],
            )
        except ActivityError as problem:
            cause = problem.cause
            if isinstance(cause, ApplicationError) and cause.type in set(HostErrorType):
                raise NotSent(str(cause.type), cause.message) from problem
            if (
                isinstance(cause, ActivityTimeoutError)
                and cause.type is TimeoutType.SCHEDULE_TO_START
            ):
                raise NotSent("late", "no worker took the order in time") from problem
            return RestartResult(
                effect=Effect.UNKNOWN,
                detail=said(problem)[:500],
                settle_within=settle_time(step.action),
            )

    async def _book(self, method: "Method[Asked, Answer]", request: Asked, summary: str) -> Answer:
        """Bookings are never interrupted: half a booking is worse than a slow cancel."""
        return await workflow.execute_activity_method(
            method,
            request,
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=_HEARTBEAT,
            retry_policy=_PATIENT,
            summary=summary,
        )

    async def do(
        self,
        method: "Method[Asked, Answer]",
        request: Asked,
        *,
        summary: str,
        bound: timedelta = timedelta(seconds=30),
        retry: RetryPolicy = _QUICK,
    ) -> Answer:
        """Run an activity that may be given up.

        Raises:
            Interrupted: a person cancelled meanwhile; the activity is told to stop.
        """
        handle = workflow.start_activity_method(
            method,
            request,
            start_to_close_timeout=bound,
            heartbeat_timeout=_HEARTBEAT,
            retry_policy=retry,
            summary=summary,
        )
        await workflow.wait_condition(lambda: handle.done() or self._stop())
        if not handle.done():
            handle.add_done_callback(_forget)
            handle.cancel()
            raise Interrupted
        return await handle


def _order(order: RestartOrder, step: Step) -> str:
    return f"restart {order.server} ({step}, {step.action.kind} on {step.action.host})"


def restart_bound(step: Step) -> timedelta:
    """The bound on the whole restart step: longer than the server may take to stop, always."""
    return step.action.stop_timeout + step.host.connect_timeout + timedelta(seconds=120)


def expired(asked: datetime, limit: timedelta) -> bool:
    """Whether what was read at ``asked`` (Temporal's clock) is too old to act on."""
    return workflow.now() - asked > limit


def _forget(given_up: asyncio.Task[Any]) -> None:
    """Take note of how a step that was given up ended, so that nobody misses it."""
    if not given_up.cancelled():
        given_up.exception()


def said(problem: ActivityError) -> str:
    cause = problem.cause
    if isinstance(cause, ApplicationError):
        return cause.message
    if isinstance(cause, ActivityTimeoutError):
        kind = cause.type.name.lower().replace("_", "-") if cause.type is not None else "time"
        return f"no end within its bound ({kind})"
    return str(cause or problem)


def _kind(problem: ActivityError) -> str:
    cause = problem.cause
    return str(cause.type) if isinstance(cause, ApplicationError) and cause.type else "timeout"
