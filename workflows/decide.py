"""Before the act: wait until it is due, ask who must be asked, look at the last moment."""

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.config import ServerSpec
    from fleet.contracts.alerts import Severity
    from fleet.contracts.fleet import PresentPolicy
    from fleet.contracts.host import HostState
    from fleet.contracts.remediation import Outcome, Phase
    from fleet.durations import brief
    from fleet.findings import Finding
    from fleet.policy import Policy
    from fleet.readings import Reading
    from fleet.remediation import (
        Decision,
        Next,
        Standing,
        by_host,
        by_policy,
        by_reading,
        deadline,
    )
    from fleet.verdicts import Verdict
    from workflows.case import Case, poll
    from workflows.cure import Facts
    from workflows.hands import HostTrouble
    from workflows.strangers import Strangers

#: Nothing was seen of the server, so nothing speaks against what was seen before.
_UNSEEN = frozenset({Verdict.MISSING, Verdict.UNREADABLE})


class Ended(Exception):
    """The incident ends here, with the decision's outcome."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.why)
        self.decision = decision


class Decide:
    def __init__(self, case: Case) -> None:
        self._case, self._book, self._orders = case, case.book, case.orders
        self._seen: HostState | None = None
        self._waited_for = ""
        self.strangers = Strangers(case)
        self._blind_since: datetime | None = None
        self._ask_until: datetime | None = None

    async def first_look(self) -> None:
        """Remember what runs on the host now, so that a replacement is noticed later."""
        try:
            self._seen = await self._case.hands.inspect(
                "what runs there now", self._case.incident.rung
            )
        except HostTrouble as problem:
            self._seen = (
                None  # What an earlier step showed is another object, and none that is new.
            )
            self._book.note(f"the host could not be asked: {problem}")
            return
        self.strangers.first_seen(self._seen)
        self._book.note(f"on the host it is {self._seen.status}, started {_when(self._seen)}")

    async def spec(self) -> tuple[PresentPolicy, ServerSpec]:
        """The present policy. Raises Ended where it, or a person through it, forbids the act."""
        present = await self._case.hands.present()
        if present.spec is not None:
            self._case.policy = present.spec.policy
        decision = by_policy(present, self._standing())
        if decision is not None and decision.next is Next.END:
            raise Ended(decision)
        if present.spec is None:
            raise Ended(Decision.end(Outcome.REMOVED, "the server is no longer in the fleet"))
        return present, present.spec

    async def persist(self) -> Policy:
        """Wait until the verdict has held for long enough, and is still true.

        Raises:
            Ended: it recovered, or the policy or a person says so.
        """
        policy = (await self.spec())[1].policy
        while True:
            due = self._due(policy)
            self._book.enter(
                Phase.PERSISTING, "read again, and act if it is still true", due or workflow.now()
            )
            if due is not None and not self._orders.by_hand:
                await self._case.sleep(
                    due, f"it must last until {due:%H:%M:%S} UTC before a restart", self._woken
                )
            policy = (await self.spec())[1].policy
            self._orders.changed = False
            reading, finding = await self._case.judge(policy, "is it still so?", settle=True)
            decision = by_reading(finding, self._standing())
            if decision is None:
                if self._is_due(reading, finding, policy):
                    return policy
                continue
            if decision.next is Next.END:
                raise Ended(decision)
            await self._blind(decision, finding, policy)

    def _is_due(self, reading: Reading, finding: Finding, policy: Policy) -> bool:
        self._blind_since = None
        if self._orders.by_hand:
            return True
        self._book.adopt(finding.verdict, reading.at)
        due = self._due(policy)
        return due is None or workflow.now() >= due

    async def _blind(self, decision: Decision, finding: Finding, policy: Policy) -> None:
        """What can't be read, or moves, is not acted on; for how long nobody is told is bounded."""
        now = workflow.now()
        self._blind_since = self._blind_since or now
        if finding.verdict not in _UNSEEN:
            self._book.since.clear()
        if now - self._blind_since > policy.blind_limit:
            raise Ended(
                Decision.end(
                    Outcome.HANDED_OVER,
                    f"nothing could be proved for {brief(policy.blind_limit)}: {decision.why}",
                )
            )
        again = now + poll(policy)
        self._book.enter(Phase.PERSISTING, f"look again ({decision.why})", again)
        await self._case.sleep(again, "before it is read again", self._woken)

    async def approval(self, policy: Policy) -> None:
        """Wait for a person's ``approve``; look up now and then whether it is still needed.

        Raises:
            Ended: nobody approved within the policy's ``approval_timeout``.
        """
        self._ask_until = self._ask_until or workflow.now() + policy.approval_timeout
        until = self._ask_until
        self._book.enter(Phase.APPROVING, "ends, unless a person signals approve", until)
        server = self._case.server
        await self._case.tell(
            "approval",
            Severity.PAGE,
            f"{server} needs your approval to be restarted",
            next_step=f"steady approve {server}, or steady cancel {server}",
        )
        self._orders.changed = False
        look = min(until, workflow.now() + poll(policy) * 20)
        await self._case.sleep(
            look, "a person has to approve the restart, or cancel", self._answered
        )
        if workflow.now() >= until and not self._answered():
            raise Ended(
                Decision.end(
                    Outcome.NOT_APPROVED, f"nobody approved within {brief(policy.approval_timeout)}"
                )
            )

    async def recheck(self) -> tuple[Decision, Facts | None]:
        """One look at everything that may have changed: policy, reading, host."""
        self._book.enter(Phase.RECHECKING, "the last look before the command")
        asked = workflow.now()
        present, spec = await self.spec()
        decision = by_policy(present, self._standing())
        if decision is not None:
            return decision, None
        reading, finding = await self._case.judge(spec.policy, "the last look before the command")
        decision = by_reading(finding, self._standing())
        if decision is not None:
            return decision, None
        try:
            host = await self._case.hands.inspect(
                "the last look before the command", self._case.incident.rung, before_restart=True
            )
        except HostTrouble as problem:
            return Decision.end(Outcome.RESTART_FAILED, f"the host: {problem}"), None
        step = spec.step(self._case.incident.rung)
        if step is None:
            raise Ended(Decision.end(Outcome.ALERT_ONLY, "no restart is configured"))
        facts = Facts(asked, present, spec, step, reading, host)
        decision = by_host(host, present, reading, self._standing())
        strange = await self.strangers.are_at_work(host, present, spec)
        if decision is None and strange and not self._orders.by_hand:
            decision = Decision(Next.BOOTING, "somebody else restarted it: it may still be loading")
        return decision or Decision(Next.RESTART, "still true"), facts

    async def booting(self, facts: Facts, why: str) -> None:
        """Give a process that somebody else just started the time that it may load, once."""
        until = workflow.now() + facts.policy.load_limit
        self.waited_for(facts.host)
        self._book.note(why)
        self._book.enter(Phase.PERSISTING, f"look again after it may have loaded ({why})", until)
        await self._case.sleep(until, "it may still be loading", self._woken)

    def waited_for(self, host: HostState) -> None:
        """That process has had its time to load; it is not waited for again."""
        self._waited_for = host.own_start

    async def pause(self, policy: Policy, why: str) -> None:
        self._book.note(f"not now: {why}")
        self._orders.changed = False
        await self._case.sleep(workflow.now() + poll(policy), why, self._woken)

    def _standing(self) -> Standing:
        return Standing(
            now=workflow.now(),
            by_hand=self._orders.by_hand,
            approved=self._orders.approved is not None,
            not_before=self._orders.not_before,
            seen=self._seen,
            waited_for=self._waited_for,
        )

    def _due(self, policy: Policy) -> datetime | None:
        due, snoozed = deadline(self._book.since, policy), self._orders.not_before
        if due is None or snoozed is None:
            return due or snoozed
        return max(due, snoozed)

    def _woken(self) -> bool:
        return self._orders.changed or self._orders.by_hand

    def _answered(self) -> bool:
        return self._orders.approved is not None or self._woken()


def _when(host: HostState) -> str:
    if host.started_at is None:
        return host.started or "at a time that it does not say"
    return f"{host.started_at:%Y-%m-%d %H:%M:%S} UTC"
