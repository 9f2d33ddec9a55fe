"""Whether the process on the host is the one that this incident knows, or somebody else's."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

with workflow.unsafe.imports_passed_through():
    from fleet import foreign
    from fleet.config import ServerSpec
    from fleet.contracts.fleet import PresentPolicy
    from fleet.contracts.guard import Sight, StartRequest, StartResult
    from fleet.contracts.host import HostState, HostStatus
    from workflows.case import Case

#: Histories of before have no such step.
_PATCH = "foreign-starts"


class Strangers:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._before = ""

    def first_seen(self, host: HostState) -> None:
        """The run, or an earlier one of the incident, may know which process it saw last."""
        self._case.process = (
            self._case.process or self._case.incident.process or foreign.process_of(host)
        )

    def sent(self) -> None:
        """From now on another restart is the newest, whose process nobody has seen yet."""
        self._before, self._case.ours = self._case.ours, ""

    def not_sent(self) -> None:
        self._case.ours = self._before

    def restarted(self, after: HostState | None) -> None:
        """Steady's restart took effect; ``after`` is what the host showed then, where it did.

        A container that a reboot has yet to start still shows the start of before.
        """
        if after is None or after.status is not HostStatus.RUNNING:
            return
        process = foreign.process_of(after)
        if process and process != self._case.process:
            self._case.process = self._case.ours = process

    async def are_at_work(self, host: HostState, present: PresentPolicy, spec: ServerSpec) -> bool:
        """Whether somebody else started this process; then it is booked, and people are told."""
        process = foreign.process_of(host)
        if host.status is not HostStatus.RUNNING or not process:
            return False
        before, self._case.process = self._case.process, process
        if not before or before == process or not workflow.patched(_PATCH):
            return False
        result = await self._booked(process, before, present, spec)
        if result.take is None:
            return False
        self._case.book.note("another process than before: steady did not order that start")
        await self._tell(result)
        return True

    async def _booked(
        self, process: str, before: str, present: PresentPolicy, spec: ServerSpec
    ) -> StartResult:
        now, pause = workflow.now(), present.pause
        request = StartRequest(
            server=self._case.server,
            machine=present.machine or "",
            sight=Sight.HOST,
            process=process,
            ours=self._case.ours if before == self._case.ours else "",
            cooldown=spec.policy.cooldown,
            quiet=(pause is not None and pause.until > now) or spec.policy.expected_off,
            why="the host shows another process than before",
        )
        try:
            return await self._case.hands.started(request)
        except ActivityError as problem:
            self._case.book.note(f"the guard could not be told of a new process: {problem.cause}")
            return StartResult()

    async def _tell(self, result: StartResult) -> None:
        message = foreign.alert(self._case.server, result)
        if message is None:
            return
        try:
            await self._case.tell_all(message)
        except FailureError as problem:
            self._case.book.note(f"people could not be told: {problem}")
