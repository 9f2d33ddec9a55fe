"""A restart in parts: stop, wait until the GPU memory is free, start. Each may be gone on with."""

from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.alerts import Severity
    from fleet.contracts.host import (
        Effect,
        GpuReport,
        GpuRequest,
        HostErrorType,
        HostState,
        RestartOrder,
        RestartResult,
    )
    from fleet.contracts.remediation import Phase
    from fleet.durations import brief
    from fleet.gpu_memory import GpuMemory, in_words
    from fleet.parts import by_hand, gpu_memory, is_stopped
    from workflows.case import LEAST, Case
    from workflows.cure import Facts, NoEffect, Restarted
    from workflows.hands import HostTrouble, NotSent

_LOOK_EVERY = timedelta(seconds=5)
_MOST_LOOKS = 40
#: How often a stop is gone on with whose end was not seen.
_STOPS = 3
#: What steady stopped it must start again: so long it tries where the host can't be reached.
_START_WITHIN = timedelta(hours=1)
_START_AGAIN = timedelta(seconds=15)
#: How often a start that fails on the host is tried.
_FAILED_STARTS = 3


class Parts:
    """Only the first stop can prove that nothing was sent; after it the server is ours to start."""

    def __init__(self, case: Case) -> None:
        self._case, self._book = case, case.book

    async def restart(self, facts: Facts, key: str) -> Restarted | NoEffect:
        """Stop, wait where that is configured, start.

        Raises:
            NotSent: it is proved that nothing left for the host.
        """
        if facts.in_words:
            number = self._case.incident.restarts + 1
            self._book.note(f"restart {number} of this incident{facts.in_words}")
        order = RestartOrder(
            server=self._case.server, expected=facts.host, key=key, rung=self._case.incident.rung
        )
        failed = await self._stop(facts, order)
        memory = gpu_memory(facts.step.action)
        if failed is None and memory is not None:
            failed = await self._wait_for_memory(facts, memory)
        return failed if failed is not None else await self._start(facts, order)

    # --- stop ------------------------------------------------------------------------------------

    async def _stop(self, facts: Facts, order: RestartOrder) -> NoEffect | None:
        self._book.enter(Phase.RESTARTING, f"{facts.step} is stopped, then started")
        why = ""
        for number in range(_STOPS):
            try:
                result = await self._case.hands.stop(
                    order.model_copy(update={"begun": number > 0}), facts.step
                )
            except NotSent as problem:
                if number == 0:
                    raise
                result = RestartResult(effect=Effect.UNKNOWN, detail=str(problem)[:500])
            why = f": {result.detail}" if result.detail else ""
            self._book.note(f"stop command: {result.effect}{why}")
            if result.effect is Effect.DONE:
                return None
            host = await self._settled(result)
            if host is not None and is_stopped(host):
                self._book.note("the host shows it stopped")
                return None
            if result.hung or result.effect is Effect.FAILED:
                return _not_stopped(facts, host, result)
        return NoEffect(f"unknown whether it was stopped{why}", proved=False, final=True)

    async def _settled(self, result: RestartResult) -> HostState | None:
        """What the host shows in the end; of a command that hangs it is waited for longer."""
        until = workflow.now() + result.settle_within
        self._book.enter(Phase.SETTLING, "the host is asked what still runs there", until)
        host = None
        while True:
            host = await self._look("was it stopped?", closely=result.hung) or host
            wait = host is None or (result.hung and not is_stopped(host))
            if not wait or workflow.now() >= until:
                return host
            pause = max(_LOOK_EVERY, result.settle_within / _MOST_LOOKS)
            await workflow.sleep(pause, summary="before the host is asked again")

    # --- wait ------------------------------------------------------------------------------------

    async def _wait_for_memory(self, facts: Facts, memory: GpuMemory) -> NoEffect | None:
        """Wait until the old process holds no GPU memory; without that it is not started."""
        until = workflow.now() + memory.within
        pids = sorted({each.pid for each in facts.host.gpu})
        if facts.host.gpu:
            self._book.note(f"held before the stop: {in_words(facts.host.gpu)}")
        self._book.enter(Phase.FREEING, "start it when the GPU memory is free", until)
        said = "nobody could be asked who holds it"
        while True:
            report = await self._report(pids)
            if report is not None and not report.holders and not report.lacking:
                self._book.note("the GPU memory is free")
                return None
            said = _held(report) if report is not None else said
            left = until - workflow.now()
            if left <= timedelta(0):
                break
            pause = min(max(_LOOK_EVERY, memory.within / _MOST_LOOKS), max(left, LEAST))
            await workflow.sleep(pause, summary="before the GPU memory is looked at again")
        return NoEffect(
            f"it was stopped and is not started: after {brief(memory.within)} GPU memory is still"
            f" held: {said}. End what holds it, or reset the GPU; then start it on the host:"
            f" {by_hand(facts.step.action)}",
            proved=False,
            final=True,
        )

    async def _report(self, pids: list[int]) -> GpuReport | None:
        request = GpuRequest(server=self._case.server, rung=self._case.incident.rung, pids=pids)
        try:
            return await self._case.hands.gpu(request)
        except HostTrouble as problem:
            self._book.note(f"the GPUs could not be asked: {problem}")
            return None

    # --- start -----------------------------------------------------------------------------------

    async def _start(self, facts: Facts, order: RestartOrder) -> Restarted | NoEffect:
        until = workflow.now() + _START_WITHIN
        self._book.enter(Phase.RESTARTING, f"{facts.step} is started again")
        failures = 0
        while True:
            try:
                result = await self._case.hands.start(order, facts.step)
            except NotSent as problem:
                if problem.kind in _NEVER:
                    return _not_started(facts, str(problem))
                result = RestartResult(effect=Effect.UNKNOWN, detail=str(problem)[:500])
            said = f": {result.detail}" if result.detail else ""
            self._book.note(f"start command: {result.effect}{said}")
            if result.effect is Effect.DONE:
                return Restarted(workflow.now(), await self._look("what runs after the start"))
            failures += result.effect is Effect.FAILED
            if failures >= _FAILED_STARTS or workflow.now() >= until:
                return _not_started(facts, result.detail)
            await self._tell_down(facts, result.detail, until)
            await workflow.sleep(_START_AGAIN, summary="before the start is tried again")

    async def _tell_down(self, facts: Facts, why: str, until: datetime) -> None:
        """A server that steady stopped and can't start yet is told at once, and once."""
        self._book.enter(Phase.RESTARTING, f"start it again ({why})"[:300], until)
        await self._case.tell(
            "not_started",
            Severity.PAGE,
            f"{self._case.server} was stopped and could not be started yet",
            detail=why,
            next_step=f"the start is tried until {until:%H:%M:%S} UTC; by hand, on the host:"
            f" {by_hand(facts.step.action)}",
        )

    async def _look(self, why: str, *, closely: bool = False) -> HostState | None:
        try:
            return await self._case.hands.inspect(why, self._case.incident.rung, closely=closely)
        except HostTrouble as problem:
            self._book.note(f"the host could not be asked: {problem}")
            return None


def _not_stopped(facts: Facts, host: HostState | None, result: RestartResult) -> NoEffect:
    said = f" ({result.detail})" if result.detail else ""
    if host is not None and host.same_process(facts.host):
        if not result.hung:
            return NoEffect(f"the command did not stop it{said}", proved=True)
        why = host.hindrance or "the host does not say why"
        return NoEffect(
            f"it could not be ended, and the old process runs on: {why}{said}",
            proved=False,
            final=True,
        )
    shows = f"the host shows: {host.detail or host.status}" if host is not None else "no answer"
    return NoEffect(
        f"only some of it could be stopped, and it was not started again; {shows}{said}. Start it"
        f" on the host when what runs on has ended: {by_hand(facts.step.action)}",
        proved=False,
        final=True,
    )


def _not_started(facts: Facts, why: str) -> NoEffect:
    return NoEffect(
        f"it was stopped and could not be started again: {why}. Start it on the host:"
        f" {by_hand(facts.step.action)}",
        proved=False,
        final=True,
    )


def _held(report: GpuReport) -> str:
    return "; ".join(filter(None, [in_words(report.holders), *report.lacking]))


#: What no further try mends.
_NEVER = frozenset(
    {
        HostErrorType.SUPERSEDED,
        HostErrorType.REMOVED,
        HostErrorType.NO_ACTION,
        HostErrorType.MISCONFIGURED,
    }
)
