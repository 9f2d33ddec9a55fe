"""Stops and starts what is restarted in parts: each member by a command of its own, in order.

Both may be done again, which is what lets a workflow go on wherever it was: a stop is bound to the
very processes that were to be stopped, and a start leaves alone what runs.
"""

from collections.abc import Callable, Sequence

from activities.inspection import inspect, look
from activities.places import Place
from activities.processes import processes
from activities.ssh import Limits, LostTrackError
from activities.ssh_trust import NotSentError
from fleet.actions import Restart, named
from fleet.contracts.host import (
    Effect,
    GpuHolder,
    GpuReport,
    HostErrorType,
    HostState,
    HostStatus,
    RestartOrder,
    RestartResult,
)
from fleet.gpu_memory import GpuMemory, apps_argv, gpus_argv, held_by, holders, lacking
from fleet.host_replies import ReplyError, could_not_be_killed
from fleet.hosts import MARGIN, Argv
from fleet.parts import members, of_member, start_argv, stop_argv, stop_time

_KEEP = 16 * 1024
_STARTED = frozenset({HostStatus.RUNNING})
_STOPPED = frozenset({HostStatus.STOPPED, HostStatus.GONE})


async def stop(here: Place, order: RestartOrder, last_look: Callable[[], None]) -> RestartResult:
    """Stop the members in the reverse order, each only as the process that was expected.

    Raises:
        NotSentError: nothing left for the host.
    """
    asked = [*enumerate(members(here.action))]
    acts = _Acts(here, order, last_look)
    result = await acts.each([(at, member, stop_argv(member)) for at, member in reversed(asked)])
    return result.model_copy(update={"settle_within": stop_time(here.action) + MARGIN})


async def start(here: Place, order: RestartOrder) -> RestartResult:
    """Start the members in order; what runs already is left as it is.

    Raises:
        NotSentError: nothing left for the host.
    """
    acts = _Acts(here, order, lambda: None, starts=True)
    asked = enumerate(members(here.action))
    return await acts.each([(at, member, start_argv(member)) for at, member in asked])


class _Acts:
    """Commands for members, one after the other, until one does not end well."""

    def __init__(
        self,
        here: Place,
        order: RestartOrder,
        last_look: Callable[[], None],
        *,
        starts: bool = False,
    ) -> None:
        self._here, self._order, self._last_look, self._starts = here, order, last_look, starts
        self._sent = False

    async def each(self, asked: Sequence[tuple[int, Restart, Argv]]) -> RestartResult:
        for at, member, argv in asked:
            try:
                failed = await self._one(at, member, argv)
            except NotSentError as problem:
                if not self._sent:
                    raise
                return RestartResult(effect=Effect.UNKNOWN, detail=str(problem)[:500])
            except LostTrackError as problem:
                return RestartResult(
                    effect=Effect.UNKNOWN, detail=str(problem)[:500], hung=problem.endless
                )
            if failed is not None:
                return failed
        return RestartResult(effect=Effect.DONE)

    async def _one(self, at: int, member: Restart, argv: Argv) -> RestartResult | None:
        now = await inspect(self._here.shell, member)
        reason = self._forbids(now, at)
        if reason:
            raise NotSentError(HostErrorType.SUPERSEDED, f"{named(member)}: {reason}")
        if now.status in (_STARTED if self._starts else _STOPPED):
            return None
        limits = Limits(seconds=(member.stop_timeout + MARGIN).total_seconds(), keep=_KEEP)
        completed = await self._here.shell.act(argv, limits, self._leaves)
        if completed.status == 0:
            return None
        return RestartResult(
            effect=Effect.UNKNOWN if completed.status is None else Effect.FAILED,
            detail=f"{named(member)}: status {completed.status}: {completed.reply.tail(350)}",
            hung=could_not_be_killed(completed.reply),
        )

    def _forbids(self, now: HostState, at: int) -> str | None:
        identity, started = of_member(self._order.expected, at)
        if not identity or now.identity != identity:
            return "it was replaced by another one"
        anew = now.status is HostStatus.RUNNING and now.started != started
        return (
            f"it was started anew meanwhile: {now.started}" if anew and not self._starts else None
        )

    def _leaves(self) -> None:
        if not self._sent:
            self._last_look()
        self._sent = True


# --- memory of GPUs ------------------------------------------------------------------------------


async def held(here: Place, memory: GpuMemory) -> list[GpuHolder]:
    """What the server's processes hold of the GPUs' memory now.

    Raises:
        NotSentError: the host can't say.
    """
    pids = [pid for each in members(here.action) for pid in await processes(here.shell, each)]
    return held_by(await _holders(here, memory), pids)


async def still_held(here: Place, memory: GpuMemory, pids: Sequence[int]) -> GpuReport:
    """What of these processes' memory is still held, and where too little is free.

    Raises:
        NotSentError: the host can't say.
    """
    found = await _holders(here, memory)
    short = await _lacking(here, memory) if memory.wanted else []
    # Where memory is short whoever holds any is of interest.
    return GpuReport(holders=(found if short else held_by(found, pids))[:50], lacking=short[:20])


async def _holders(here: Place, memory: GpuMemory) -> list[GpuHolder]:
    reply = await look(here.shell, apps_argv(memory))
    try:
        return holders(reply)
    except ReplyError as problem:
        raise NotSentError(problem.kind, str(problem)) from None


async def _lacking(here: Place, memory: GpuMemory) -> list[str]:
    reply = await look(here.shell, gpus_argv(memory))
    try:
        return lacking(memory, reply)
    except ReplyError as problem:
        raise NotSentError(problem.kind, str(problem)) from None
