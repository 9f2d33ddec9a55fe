"""What is done on the machine behind a server: look, restart at most once, collect evidence."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.bundle import Bundle
from activities.evidence import Collection, Target, deadline
from activities.pages import keep_pages
from activities.parts import held, start, still_held, stop
from activities.places import Place, Site, place
from activities.pulse import pulse
from activities.retention import Retention
from activities.ssh import Completed, Limits, LostTrackError, connected
from activities.ssh_trust import NotSentError
from fleet.actions import RebootRestart
from fleet.config import ServerSpec
from fleet.contracts.fleet import PresentPolicy
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
from fleet.evidence import pages
from fleet.host_replies import could_not_be_killed
from fleet.hosts import must_not_restart, restart_timeout, settle_time
from fleet.parts import gpu_memory

#: Seconds. What the host said longer ago than this, before the command leaves, is asked anew.
FRESH_FOR = 10.0

_EVIDENCE_WITHIN = 60.0
_PASSING = frozenset({HostErrorType.UNREACHABLE, HostErrorType.NO_POLICY})
_KEEP = 16 * 1024


class PresentPolicies(Protocol):
    """Who knows what is in force for a server at this moment."""

    async def present(self, server: str) -> PresentPolicy: ...


class HostActivities:
    """Each ``ApplicationError`` with a ``HostErrorType`` as its type proves that nothing was sent.

    ``state_dir`` is where evidence is kept, and ``retention`` ends what is too old or too much.
    """

    def __init__(
        self, policies: PresentPolicies, state_dir: Path, retention: Retention | None = None
    ) -> None:
        self._policies = policies
        self._state_dir = state_dir
        self._retention = retention

    @activity.defn
    async def inspect_host(self, request: HostRequest) -> HostState:
        """What the host shows of the server's process. Only looks, so it may be retried."""
        with _refusals(retry=True):
            async with pulse():
                target = await self._target(request.server, request.rung)
                async with place(target) as here:
                    state = await here.answer(request)
                    memory = gpu_memory(target.step.action)
                    if request.before_restart and memory is not None:
                        return state.model_copy(update={"gpu": await held(here, memory)})
                    return state

    @activity.defn
    async def restart_server(self, order: RestartOrder) -> RestartResult:
        """Restart the server, if the host still shows exactly the process that was expected.

        The host is asked over the same connection right before the command leaves, and its own
        words are compared: this is what makes a restart happen at most once for each decision,
        whatever died before. A second attempt can't know what the first one did, so it does
        nothing and says *unknown*.
        """
        if activity.info().attempt > 1:
            return RestartResult(
                effect=Effect.UNKNOWN, detail="an earlier attempt may have sent the command"
            )
        return await self._depart(order, _Departure.restart)

    @activity.defn
    async def stop_server(self, order: RestartOrder) -> RestartResult:
        """Stop what is restarted in parts, if the host still shows exactly what was expected.

        A stop that had begun before goes on where it was: it is bound to the same processes.
        """
        if activity.info().attempt > 1:
            return RestartResult(
                effect=Effect.UNKNOWN, detail="an earlier attempt may have sent the command"
            )
        return await self._depart(order, _Departure.stop)

    @activity.defn
    async def start_server(self, order: RestartOrder) -> RestartResult:
        """Start again what was stopped; what runs already is left alone, so it may be retried."""
        with _refusals(retry=True):
            async with pulse():
                target = await self._target(order.server, order.rung)
                async with place(target) as here:
                    return await start(here, order)

    @activity.defn
    async def gpu_holders(self, request: GpuRequest) -> GpuReport:
        """Who still holds the GPU memory that must be free before the start. Only looks."""
        with _refusals(retry=True):
            async with pulse():
                target = await self._target(request.server, request.rung)
                memory = gpu_memory(target.step.action)
                if memory is None:
                    return GpuReport()
                async with place(target) as here:
                    return await still_held(here, memory, request.pids)

    async def _depart(
        self,
        order: RestartOrder,
        act: "Callable[[_Departure, Place, RestartOrder], Awaitable[RestartResult]]",
    ) -> RestartResult:
        departure = _Departure()
        with _refusals(retry=False):
            try:
                async with pulse():
                    target = await self._target(order.server, order.rung)
                    async with place(target) as here:
                        return await act(departure, here, order)
            except asyncio.CancelledError:
                if departure.left:
                    raise
                raise NotSentError(
                    HostErrorType.SUPERSEDED, "steady was told to stop before the command left"
                ) from None

    @activity.defn
    async def collect_evidence(self, request: EvidenceRequest) -> Evidence:
        """Keep logs and state before a restart; trouble with the host is listed as missing."""
        bundle = Bundle(self._state_dir, request.incident, datetime.now(UTC))
        async with pulse():
            try:
                async with asyncio.timeout(_EVIDENCE_WITHIN):
                    spec = await self._spec(request.server)
                    async with asyncio.TaskGroup() as group:
                        group.create_task(keep_pages(pages(spec.source), bundle))
                        group.create_task(_visit(spec, bundle))
            except NotSentError as problem:
                bundle.lack("everything", str(problem))
            except TimeoutError:
                bundle.lack("the rest", f"no time left after {_EVIDENCE_WITHIN:g} s")
            if self._retention is not None:
                await self._retention.tidy(request.incident)
        return bundle.evidence()

    async def _target(self, server: str, rung: int = 0) -> Site:
        spec = await self._spec(server)
        first, step = spec.step(0), spec.step(rung)
        if first is None or step is None:
            raise NotSentError(HostErrorType.NO_ACTION, f"{server} has no restart configured")
        return Site(first, step)

    async def _spec(self, server: str) -> ServerSpec:
        try:
            spec = (await self._policies.present(server)).spec
        except ApplicationError as problem:
            raise NotSentError(HostErrorType.NO_POLICY, problem.message) from problem
        if spec is None:
            raise NotSentError(HostErrorType.REMOVED, f"{server} is not in the fleet any more")
        return spec


async def _visit(spec: ServerSpec, bundle: Bundle) -> None:
    """Collect what the host shows; that it can't be visited is noted, and not raised."""
    if spec.restart is None or spec.host is None:
        bundle.lack("the host", "none is configured")
        return
    until = deadline()
    try:
        async with connected(spec.host) as shell:
            target = Target(spec.restart, spec.host, spec.policy)
            await Collection(shell, target, bundle, until).run()
    except NotSentError as problem:
        bundle.lack("everything", str(problem))


class _Departure:
    """The one moment in which a restart command leaves for the host."""

    def __init__(self) -> None:
        self.left = False
        self._asked = 0.0

    async def stop(self, here: Place, order: RestartOrder) -> RestartResult:
        self._asked = time.monotonic()
        reason = (
            None
            if order.begun
            else must_not_restart(here.action, order.expected, await here.look())
        )
        if reason:
            raise NotSentError(HostErrorType.SUPERSEDED, reason)
        return await stop(here, order, self._last_look)

    async def restart(self, here: Place, order: RestartOrder) -> RestartResult:
        self._asked = time.monotonic()
        reason = must_not_restart(here.action, order.expected, await here.look())
        if reason:
            raise NotSentError(HostErrorType.SUPERSEDED, reason)
        command = await here.command()
        limits = Limits(seconds=restart_timeout(here.action).total_seconds(), keep=_KEEP)
        try:
            completed = await here.shell.act(command, limits, self._last_look)
        except LostTrackError as problem:
            result = RestartResult(
                effect=Effect.UNKNOWN, detail=str(problem)[:500], hung=problem.endless
            )
        else:
            result = _result(completed)
        later = isinstance(here.action, RebootRestart)
        return result.model_copy(update={"settle_within": settle_time(here.action), "later": later})

    def _last_look(self) -> None:
        """A worker that was frozen in between must not act on what the host said before."""
        if time.monotonic() - self._asked > FRESH_FOR:
            raise NotSentError(
                HostErrorType.UNREACHABLE, "what the host said went stale before the command left"
            )
        self.left = True


def _result(completed: Completed) -> RestartResult:
    said = completed.reply.tail(400)
    match completed.status:
        case 0:
            return RestartResult(effect=Effect.DONE)
        case None:
            return RestartResult(
                effect=Effect.UNKNOWN, detail=f"the command was killed on the host: {said}"
            )
        case status:
            return RestartResult(
                effect=Effect.FAILED,
                detail=f"the command ended with status {status}: {said}",
                hung=could_not_be_killed(completed.reply),
            )


@contextmanager
def _refusals(*, retry: bool) -> Iterator[None]:
    """Turn what stood in the way into the error that a workflow understands."""
    try:
        yield
    except NotSentError as problem:
        raise ApplicationError(
            str(problem),
            type=problem.kind,
            non_retryable=not (retry and problem.kind in _PASSING),
        ) from None
