"""One check of an engine of which nothing is known yet: what to wait for, read and ask.

The rules are those of a remediation (``proving``). Only the beginning is different, since nobody
has looked before.
"""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fleet.engines.asking import at_rest
from fleet.engines.judge import find
from fleet.engines.proof import is_open
from fleet.engines.proving import WAITS, Ask, Known, Look, Pause, Step, settle
from fleet.engines.reading import Came, EngineReading, Page
from fleet.engines.sighting import Sighting, compare
from fleet.findings import Finding
from fleet.patience import Patience
from fleet.readings import Reading
from fleet.verdicts import Verdict

#: What a page says of its start is a time of day only from here to the present; else it is opaque.
_EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Checked:
    """What a check came to, and the last look that it rests on."""

    verdict: Verdict
    why: str
    reading: Reading


Checking = Generator[Step, Reading | None, Checked]


class Watched(Known):
    """Keeps the last finding too, for where nobody may be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[Reading, Finding, str] | None = None

    def judge(self, reading: Reading, policy: Patience) -> Finding:
        last = self.last
        finding = super().judge(reading, policy)
        unasked = "; it was not asked" if is_open(reading, finding, last) else ""
        self.found = (reading, finding, unasked)
        return finding

    def heard(self, reading: Reading, policy: Patience) -> Finding:
        answer = reading.engine.answer if reading.engine is not None else None
        worked = self.last is not None and self.last.in_flight
        is_stale = worked and answer is not None and answer.came is Came.GIVEN
        finding = super().heard(reading, policy)
        self.found = (reading, finding, "; its gauges are stale" if is_stale else "")
        return finding


def check(policy: Patience) -> Checking:
    """From the first look to a verdict. Sent none for an ``Ask``, it goes by what it has seen."""
    known = Watched()
    reading = _seen((yield Look()))
    if _page(reading) is Page.SLOW:
        # One page may be late for many reasons.
        yield Pause(policy.confirm_wait, 1)
        reading = _seen((yield Look()))
    first, finding = reading.engine, known.judge(reading, policy)
    if not is_open(reading, finding, None):
        return _checked(known, policy)
    for number in range(1, WAITS + 1):
        yield Pause(policy.confirm_wait, number)
        reading = _seen((yield Look()))
        if number == WAITS or not _has_just_begun(reading, known.last):
            break
        known.judge(reading, policy)
    yield from settle(known, reading, policy)
    yield from _idle_beside(known, first, policy)
    return _checked(known, policy)


def _idle_beside(
    known: Watched, first: EngineReading | None, policy: Patience
) -> Generator[Step, Reading | None, None]:
    """Of a server at work, the idle ranks that nothing moved in since the first look, where a
    request can name them: one that froze while idle shows nothing else.
    """
    assert known.found is not None, "it was looked at"
    reading, finding, _ = known.found
    engine = reading.engine
    if finding.verdict is not Verdict.BUSY or engine is None or first is None:
        return
    if not (engine.in_flight and at_rest(engine, compare(engine, Sighting.of(first)))):
        return
    asked = yield Ask(suspected=False)
    answer = asked.engine.answer if asked is not None and asked.engine is not None else None
    if asked is not None and answer is not None and answer.came in (Came.NONE, Came.ELSEWHERE):
        known.heard(asked, policy)


def _seen(reading: Reading | None) -> Reading:
    assert reading is not None, "a look gives a reading"
    return reading


def _page(reading: Reading) -> Page | None:
    return reading.engine.page if reading.engine is not None else None


def _has_just_begun(reading: Reading, last: EngineReading | None) -> bool:
    """Whether work came in since the last look of which nothing has moved yet: no proof of life."""
    engine = reading.engine
    if engine is None or last is None or not engine.in_flight or last.in_flight:
        return False
    change = compare(engine, Sighting.of(last))
    return change.known and not change.moved


def _checked(known: Watched, policy: Patience) -> Checked:
    assert known.found is not None, "it was looked at"
    reading, finding, remark = known.found
    if finding.verdict is Verdict.LOADING:
        finding, remark = _loading(reading, finding, policy)
    return Checked(finding.verdict, f"{finding.why}{remark}", reading)


def _loading(reading: Reading, finding: Finding, policy: Patience) -> tuple[Finding, str]:
    """Measured by the start that the server itself names: nobody knows since when it was seen."""
    started = reading.engine.started if reading.engine is not None else None
    since = _time_of_day(started, reading.at)
    if since is None:
        return finding, "; since when it does not say, so no limit applies"
    return find(reading, None, policy, since), ""


def _time_of_day(started: str | None, now: datetime) -> datetime | None:
    try:
        at = datetime.fromtimestamp(float(started or ""), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return at if _EARLIEST <= at <= now + timedelta(minutes=1) else None
