"""The restart itself: at most once in effect, settled by the host's word, verified at the end."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.config import ServerSpec
    from fleet.contracts.fleet import PresentPolicy
    from fleet.contracts.host import Effect, HostState, HostStatus, RestartOrder, RestartResult
    from fleet.contracts.remediation import Phase
    from fleet.durations import brief
    from fleet.findings import Finding
    from fleet.ladder import Step
    from fleet.policy import Policy
    from fleet.readings import Reading, ReadStatus
    from fleet.remediation import is_old_record, verified
    from fleet.verdicts import Verdict
    from workflows.case import LEAST, Case, poll
    from workflows.hands import HostTrouble

_LOOK_EVERY = timedelta(seconds=5)
#: So often is a host asked at most what became of a command.
_MOST_LOOKS = 40


@dataclass(frozen=True)
class Facts:
    """All that the last recheck saw, and when (Temporal's clock) it began to look."""

    asked: datetime
    present: PresentPolicy
    spec: ServerSpec
    step: Step
    reading: Reading
    host: HostState

    @property
    def policy(self) -> Policy:
        """The server's policy, with the times that the step has for itself."""
        return self.step.action.policy(self.spec.policy)

    def next_step(self, rung: int) -> Step | None:
        """The step that comes after so many restarts that did not help, where it is another."""
        following = self.spec.step(rung)
        return following if following != self.step else None

    @property
    def in_words(self) -> str:
        """Which step of several it is, and whom it takes along; empty where there is just one."""
        also = self.step.action.also_restarts
        along = f", which restarts {', '.join(also)} as well" if also else ""
        return f": {self.step}{along}" if self.spec.ladder or also else ""


@dataclass(frozen=True)
class Restarted:
    at: datetime
    after: HostState | None


@dataclass(frozen=True)
class NoEffect:
    """The command was sent and the old process still runs, or nobody can tell.

    ``proved``: it surely had no effect. ``final``: another try would come to the same.
    """

    why: str
    proved: bool
    final: bool = False


class Cure:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._book = case.book

    async def restart(self, facts: Facts, key: str) -> Restarted | NoEffect:
        """Send the command once and find out what came of it.

        Raises:
            NotSent: it is proved that nothing left for the host.
        """
        number = self._case.incident.restarts + 1
        if facts.in_words:
            self._book.note(f"restart {number} of this incident{facts.in_words}")
        self._book.enter(Phase.RESTARTING, "the command is on its way to the host")
        order = RestartOrder(
            server=self._case.server, expected=facts.host, key=key, rung=self._case.incident.rung
        )
        result = await self._case.hands.restart(order, facts.step)
        said = f": {result.detail}" if result.detail else ""
        self._book.note(f"restart command: {result.effect}{said}")
        if result.effect is Effect.DONE and not result.later:
            return Restarted(workflow.now(), await self._look("what runs after the restart"))
        return await self._settle(facts.host, result)

    async def _settle(self, before: HostState, result: RestartResult) -> Restarted | NoEffect:
        """Let the host decide what a lost or failed command did: by its words, not by our clock."""
        until = workflow.now() + result.settle_within
        self._book.enter(Phase.SETTLING, "the host is asked what runs there now", until)
        host = None
        while True:
            host = await self._look("did the command take effect?", closely=result.hung) or host
            if host is not None and _took_effect(before, host):
                self._book.note("the host shows a new process: the restart took effect")
                return Restarted(workflow.now(), host)
            if result.effect is Effect.FAILED and host is not None and not result.hung:
                break
            if workflow.now() >= until or not before.identity:
                break
            pause = max(_LOOK_EVERY, result.settle_within / _MOST_LOOKS)
            await workflow.sleep(pause, summary="before the host is asked again")
        return _no_effect(before, host, result)

    async def verify(self, facts: Facts, done: Restarted) -> tuple[bool, str]:
        """Cool down, then ask for a new process that is healthy.

        Until the cooldown is over nothing that the server shows means anything: the old record may
        say ``processing`` with an old heartbeat for as long as the new process loads.
        """
        policy = facts.policy
        cooled = done.at + policy.cooldown
        self._book.enter(
            Phase.COOLING,
            "looks whether it helped; what it shows until then starts nothing",
            cooled,
        )
        await self._firm(cooled, "cooldown after the restart")
        look_at = done.at + policy.verify_after
        load_end = done.at + policy.load_limit
        self._case.forget()
        while True:
            self._book.enter(Phase.VERIFYING, "is it a new process, and healthy?", look_at)
            await self._firm(look_at, "before the restart is verified")
            reading, finding = await self._case.judge(policy, "did the restart help?", settle=True)
            host = await self._look("is it the new process?")
            ok, why = self._judge(facts, done, host, finding)
            if ok or workflow.now() >= load_end or not _may_yet_load(reading, finding, host, facts):
                return ok, why
            self._book.note(f"not yet: {why}; it may load until {load_end:%H:%M:%S}")
            look_at = min(workflow.now() + poll(policy), load_end)

    def _judge(
        self, facts: Facts, done: Restarted, host: HostState | None, finding: Finding
    ) -> tuple[bool, str]:
        if host is None:
            return False, "the host could not be asked whether the process is new"
        if finding.verdict is Verdict.LOADING:
            return False, "it is still loading"
        return verified(facts.host, done.after, host, finding)

    async def _look(self, why: str, *, closely: bool = False) -> HostState | None:
        try:
            return await self._case.hands.inspect(why, self._case.incident.rung, closely=closely)
        except HostTrouble as problem:
            self._book.note(f"the host could not be asked: {problem}")
            return None

    async def _firm(self, until: datetime, summary: str) -> None:
        while (left := until - workflow.now()) > timedelta(0):
            await workflow.sleep(max(left, LEAST), summary=f"{summary} ({brief(left)})")


def _took_effect(before: HostState, now: HostState) -> bool:
    return (
        now.status is HostStatus.RUNNING
        and bool(before.identity)
        and now.same_object(before)
        and not now.same_process(before)
    )


def _no_effect(before: HostState, host: HostState | None, result: RestartResult) -> NoEffect:
    said = f" ({result.detail})" if result.detail else ""
    if host is None:
        return NoEffect(
            f"unknown what the command did: the host can't be asked{said}", proved=False
        )
    if host.status not in (HostStatus.RUNNING, HostStatus.UNKNOWN):
        return NoEffect(f"after the command the host shows it {host.status}{said}", proved=False)
    if host.same_process(before) and result.hung:
        why = host.hindrance or "the host does not say why"
        return NoEffect(
            f"it could not be ended, and the old process runs on: {why}{said}",
            proved=False,
            final=True,
        )
    if host.same_process(before):
        proved = result.effect is Effect.FAILED
        return NoEffect(f"the command did not restart it{said}", proved=proved)
    return NoEffect(f"unknown what the command did{said}", proved=False)


def _may_yet_load(reading: Reading, finding: Finding, host: HostState | None, facts: Facts) -> bool:
    """Whether to wait within the load limit: nothing has spoken against the cure yet."""
    if host is None or reading.status is not ReadStatus.OK:
        return True
    if host.status is HostStatus.RESTARTING:
        return True
    if host.same_process(facts.host) or host.status not in (HostStatus.RUNNING, HostStatus.UNKNOWN):
        return False
    return finding.verdict is Verdict.LOADING or is_old_record(reading, facts.reading.heartbeat)
