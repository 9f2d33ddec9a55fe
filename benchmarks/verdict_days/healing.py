"""A remediation on virtual time: the product's story of a doubt, its decisions and its budget."""

from collections.abc import Generator
from datetime import datetime, timedelta

from benchmarks.verdict_days.eyes import NAME, Asking, Eyes
from benchmarks.verdict_days.world import Process, World
from fleet.contracts.engine import AskRequest
from fleet.contracts.sweep import Observation
from fleet.engines.proving import (
    Ask,
    Conclusion,
    Confirming,
    ForPeople,
    Known,
    NotSo,
    Pause,
    Settling,
    Step,
    confirm,
    settle,
)
from fleet.findings import Finding
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.remediation import Decision, Next, Standing, by_reading, deadline
from fleet.verdicts import GOOD, Verdict

#: Seconds for evidence, the last look at the host and the command, all over SSH.
_SSH = 5.0
#: Nothing was seen of the server, so nothing speaks against what was seen before.
_UNSEEN = frozenset({Verdict.MISSING, Verdict.UNREADABLE})


class Healing:
    """``calmed`` is when a doubt was last not confirmed; ``held``: it is left to people."""

    def __init__(self, world: World, eyes: Eyes, policy: Policy) -> None:
        self._world, self._eyes, self._policy = world, eyes, policy
        self._known = Known()
        self._takes: list[datetime] = []
        self.is_open = self.held = self.roused = False
        self.calmed: datetime | None = None
        self.cooldown: datetime | None = None

    def open(self, first: Observation) -> None:
        self.is_open = True
        self._world.spawn(self._run(first))

    def _run(self, first: Observation) -> Process:
        self._known = Known()
        said = yield from self._confirmed(first)
        if isinstance(said, NotSo):
            self.calmed = self._eyes.now
        elif isinstance(said, ForPeople):
            self.held = True
        else:
            self._note_proof()
            yield from self._heal(said.verdict, first.since)
        self.is_open = False

    def _note_proof(self) -> None:
        server = self._world.server
        if server.hung_since is not None:
            server.truth.proved.append(server.now - server.hung_since)

    def _confirmed(self, first: Observation) -> Generator[float, None, Conclusion]:
        doubt = first.reading.engine
        assert doubt is not None
        story: Confirming = confirm(self._known, doubt, self._policy)
        came: Reading | None = None
        while True:
            try:
                step = story.send(came)
            except StopIteration as end:
                said: Conclusion = end.value
                return said
            came = yield from self._follow(step)

    def _settled(self) -> Generator[float, None, tuple[Reading, Finding]]:
        reading = self._eyes.look()
        story: Settling = settle(self._known, reading, self._policy)
        came: Reading | None = None
        while True:
            try:
                step = story.send(came)
            except StopIteration as end:
                why = "it could not be asked"
                unproven = reading, Finding(verdict=Verdict.UNPROVEN, why=why)
                settled: tuple[Reading, Finding] = end.value or unproven
                return settled
            came = yield from self._follow(step)

    def _follow(self, step: Step) -> Asking:
        if isinstance(step, Pause):
            yield step.span.total_seconds()
            return None
        if not isinstance(step, Ask):
            return self._eyes.look()
        for _ in range(12):
            if not self._eyes.asking:
                since = self._known.last
                request = AskRequest(
                    server=NAME, since=since, suspected=step.suspected, ranks=step.ranks
                )
                return (yield from self._eyes.ask(request))
            yield 10.0
        return None

    def _heal(self, verdict: Verdict, since: datetime) -> Process:
        clocks = {verdict: since}
        while True:
            end = yield from self._persist(clocks)
            if end is None:
                yield _SSH
                finding = self._known.judge(self._eyes.look(), self._policy)
                end = by_reading(finding, self._standing())
            if end is not None and end.next is Next.END:
                return
            if end is not None:
                yield from self._sleep(self._poll)
                continue
            if not self._may_restart():
                self.held = True
                return
            if (yield from self._restart()):
                return

    def _persist(self, clocks: dict[Verdict, datetime]) -> Generator[float, None, Decision | None]:
        """Until it has lasted for long enough; a decision where it has not."""
        blind: datetime | None = None
        while True:
            due = deadline(clocks, self._policy)
            if due is not None:
                yield from self._sleep(due - self._eyes.now)
            self.roused = False
            reading, finding = yield from self._settled()
            decision = by_reading(finding, self._standing())
            if decision is None:
                blind = None
                known = clocks.get(finding.verdict, reading.at)
                clocks.clear()
                clocks[finding.verdict] = known
                if self._eyes.now >= (deadline(clocks, self._policy) or self._eyes.now):
                    return None
                continue
            if decision.next is Next.END:
                return decision
            blind = blind or self._eyes.now
            if finding.verdict not in _UNSEEN:
                clocks.clear()
            if self._eyes.now - blind > self._policy.blind_limit:
                self.held = True
                return Decision(Next.END, "nothing could be proved")
            yield from self._sleep(self._poll)

    def _restart(self) -> Generator[float, None, bool]:
        """Restart, cool down, verify: whether it helped."""
        self._takes.append(self._eyes.now)
        self._world.server.order_restart()
        at = self._eyes.restarted_at = self._eyes.now
        self.cooldown = at + self._policy.cooldown
        self._known.forget()
        yield max(self._policy.cooldown, self._policy.verify_after).total_seconds()
        while True:
            _, finding = yield from self._settled()
            if finding.verdict in GOOD and finding.verdict is not Verdict.LOADING:
                return True
            if self._eyes.now >= at + self._policy.load_limit:
                return False
            yield self._poll.total_seconds()

    def _may_restart(self) -> bool:
        day = timedelta(hours=24)
        recent = [at for at in self._takes if self._eyes.now - at < day]
        return len(recent) < self._policy.budget.limit

    def _standing(self) -> Standing:
        return Standing(
            now=self._eyes.now,
            by_hand=False,
            approved=False,
            not_before=None,
            seen=None,
            waited_for="",
        )

    @property
    def _poll(self) -> timedelta:
        return max(timedelta(seconds=1), self._policy.reading_max_age / 2)

    def _sleep(self, span: timedelta) -> Process:
        """Sleep; less long where a sweep sees that it is well."""
        until = self._eyes.now + span
        while self._eyes.now < until and not self.roused:
            yield min(10.0, (until - self._eyes.now).total_seconds())
