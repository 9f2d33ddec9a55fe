"""How a doubt of an engine is settled: what to wait for, read and ask, without doing any of it.

A story yields its next step and is sent what came of it, so that it runs on Temporal's clock as
well as on any other.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import timedelta

from fleet.engines.judge import find, in_words
from fleet.engines.proof import Proof, is_open, is_shown_alive, judge_again, proof_of
from fleet.engines.reading import Answer, Came, EngineReading, Page
from fleet.engines.sighting import Sighting, compare
from fleet.engines.windows import longest_window
from fleet.findings import Finding
from fleet.patience import Patience
from fleet.readings import Reading
from fleet.verdicts import GOOD, Verdict

#: So often a doubt is looked at again, a wait before each, before the engine is asked.
WAITS = 2

#: What is said of an engine only after it was asked.
_PROVED = frozenset({Verdict.STUCK, Verdict.UNRESPONSIVE, Verdict.ERROR})


@dataclass(frozen=True)
class Pause:
    """Wait for ``span``; it is the wait before look ``number``."""

    span: timedelta
    number: int


@dataclass(frozen=True)
class Look:
    """Read its page; a reading is sent back."""


@dataclass(frozen=True)
class Ask:
    """Send one short request if nothing has moved since the last look.

    The reading after it is sent back, or none where it is not known what came of it. ``ranks``
    names the engines that are in doubt, where that is known.
    """

    suspected: bool
    ranks: tuple[str, ...] = ()


Step = Pause | Look | Ask


@dataclass(frozen=True)
class Proved:
    verdict: Verdict
    why: str
    reading: Reading


@dataclass(frozen=True)
class NotSo:
    """Nothing is to be done: it works, or nobody can tell yet."""

    why: str


@dataclass(frozen=True)
class ForPeople:
    """It is something that a restart is not meant for."""

    why: str


Conclusion = Proved | NotSo | ForPeople
Confirming = Generator[Step, Reading | None, Conclusion]
Settling = Generator[Step, Reading | None, tuple[Reading, Finding] | None]


class Known:
    """What is known of an engine that is in doubt: its last look, and what was proved of it.

    ``doubted`` names its engines that stood still over the last wait, or were proved to.
    """

    def __init__(self) -> None:
        self.last: EngineReading | None = None
        self.proof: Proof | None = None
        self.doubted: tuple[str, ...] = ()

    def forget(self) -> None:
        """What the process before a restart showed proves nothing against the new one."""
        self.last = self.proof = None
        self.doubted = ()

    def judge(self, reading: Reading, policy: Patience) -> Finding:
        """Judge a look by itself: nobody is asked and nothing is waited for."""
        finding = judge_again(reading, self.proof, self.last, policy)
        if finding.verdict not in _PROVED:
            self.proof = None
        if finding.verdict is Verdict.SUSPECT:
            self.doubted = self._still(reading)
        self._keep(reading)
        return finding

    def heard(self, reading: Reading, policy: Patience) -> Finding:
        """Judge the look after a request, with what the request came to."""
        engine = reading.engine
        answer = engine.answer if engine is not None and engine.page is Page.OK else None
        if engine is not None and answer is not None and answer.came is Came.FULL:
            return self._turned_away(reading, engine, answer, policy)
        proof = proof_of(engine, policy, self.last) if engine is not None else None
        before = Sighting.of(self.last) if self.last is not None else None
        finding = find(reading, before, policy)
        self._keep(reading)
        self.proof = proof
        if proof is not None:
            self.doubted = tuple(sorted(proof.labels))
            finding = replace(finding, verdict=proof.verdict)
        return finding

    def _turned_away(
        self, reading: Reading, engine: EngineReading, answer: Answer, policy: Patience
    ) -> Finding:
        """A front end that has enough says nothing of the engine behind it, whose queue is as full
        where it hangs: what was proved holds, and who stands still is for a person to look at.
        """
        unasked = replace(reading, engine=replace(engine, answer=None))
        found = judge_again(unasked, self.proof, self.last, policy)
        self._keep(reading)
        if found.verdict in _PROVED:
            return found
        self.proof = None
        if found.verdict is Verdict.SUSPECT:
            why = f"{in_words(answer)}, and {found.why}"[:300]
            return Finding(verdict=Verdict.UNPROVEN, why=why)
        return find(reading, None, policy)

    def _still(self, reading: Reading) -> tuple[str, ...]:
        before = Sighting.of(self.last) if self.last is not None else None
        still = compare(reading.engine, before).still if reading.engine is not None else ()
        return tuple(each.label for each in still)

    def _keep(self, reading: Reading) -> None:
        if reading.engine is not None and reading.engine.page is Page.OK:
            self.last = reading.engine


def confirm(known: Known, doubt: EngineReading, policy: Patience) -> Confirming:
    """From the look that aroused a doubt to what can be proved of it."""
    unanswered = doubt.answer is not None and doubt.answer.came is Came.NONE
    known.last = doubt
    named = (doubt.answer.rank,) if unanswered and doubt.answer and doubt.answer.rank else ()
    # Both waits together span what the engine's own page needs to show a movement.
    wait = max(policy.confirm_wait, longest_window(doubt) / WAITS)
    for number in range(1, WAITS + 1):
        yield Pause(wait, number)
        reading = yield Look()
        refuted = _refuted(known, _seen(reading), policy, named, unanswered=unanswered)
        if refuted is not None:
            return refuted
    asked = yield Ask(suspected=True, ranks=named or known.doubted)
    if asked is None or asked.engine is None:
        return NotSo("it is not known what came of the request; the next sweep tells")
    return _concluded(doubt, asked, known.heard(asked, policy))


def settle(known: Known, reading: Reading, policy: Patience) -> Settling:
    """From a look of an open incident to what it says; none where a request got lost."""
    last = known.last
    finding = known.judge(reading, policy)
    if not is_open(reading, finding, last):
        return reading, finding
    if reading.engine is not None and reading.engine.in_flight and known.proof is None:
        yield Pause(max(policy.confirm_wait, longest_window(reading.engine)), 1)
        reading = _seen((yield Look()))
        finding = known.judge(reading, policy)
        if finding.verdict is not Verdict.SUSPECT:
            return reading, finding
    asked = yield Ask(suspected=finding.verdict is not Verdict.IDLE, ranks=known.doubted)
    if asked is not None and asked.engine is not None:
        return asked, known.heard(asked, policy)
    is_proved = finding.verdict in (Verdict.UNRESPONSIVE, Verdict.ERROR)
    return (reading, finding) if is_proved else None


def _seen(reading: Reading | None) -> Reading:
    assert reading is not None, "a look gives a reading"
    return reading


def _refuted(
    known: Known, reading: Reading, policy: Patience, named: tuple[str, ...], *, unanswered: bool
) -> NotSo | None:
    """``named`` is the engine of several that gave no answer."""
    is_alive = is_shown_alive(reading, known.last, named)
    finding = known.judge(reading, policy)
    # Of an idle engine among others, their work says nothing.
    rests = (Verdict.IDLE, Verdict.BUSY) if named else (Verdict.IDLE,)
    is_idle = finding.verdict in rests and unanswered and not is_alive
    if finding.verdict is Verdict.SUSPECT or is_idle:
        return None
    return NotSo(f"{finding.verdict}: {finding.why}")


def _concluded(doubt: EngineReading, reading: Reading, finding: Finding) -> Conclusion:
    if finding.verdict in _PROVED:
        return Proved(finding.verdict, finding.why, reading)
    if finding.verdict in GOOD or finding.verdict is Verdict.SUSPECT:
        stale = "; its gauges are stale" if _is_stale(doubt, reading) else ""
        return NotSo(f"{finding.why}{stale}")
    return ForPeople(f"{finding.verdict}: {finding.why}")


def _is_stale(doubt: EngineReading, reading: Reading) -> bool:
    """Whether it said that work was in flight, stood still, and answered all the same."""
    answer = reading.engine.answer if reading.engine is not None else None
    return doubt.in_flight and answer is not None and answer.came is Came.GIVEN
