"""Which readings are kept to be judged again by ``steady replay``, and how they are held. Pure.

A server that shows the same for hours is one reading: what it shows is repeated in full by knowing
when it began and what came next. So a bad fleet costs as much as it
changes, and a good one nothing.
"""

import base64
import json
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from fleet.contracts.record import Kept, Look
from fleet.findings import Finding
from fleet.judge import AT_REST, FRESH_INTERVALS, Memory
from fleet.readings import Reading, ReadStatus
from fleet.verdicts import GOOD, Verdict

#: A shard's record in one payload: at most so many readings, which pack into well under a megabyte.
MOST_LOOKS = 20_000
#: Temporal refuses payloads of over 2 MB.
_MOST_PACKED = 1_500_000
#: A server whose last reading was bad is kept for longer than asked, and not for ever.
_LONGEST = 4

#: Stands for the state of a server whose engine was read, which no record of a worker names.
ENGINE = "engine"

#: Changes between these are a fleet's daily work, and no threshold judges them.
_PLAIN = frozenset({Verdict.HEALTHY, Verdict.BUSY, Verdict.IDLE})

_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ms(at: datetime | None) -> int:
    return 0 if at is None else (at - _EPOCH) // _MS


def moment(at: int) -> datetime:
    return _EPOCH + at * _MS


def worth_keeping(
    finding: Finding, before: Memory | None, after: Memory, interval: timedelta
) -> bool:
    """Whether a reading says something that the server's last kept one does not: it is bad, or the
    verdict changed; and it is no mere repetition. ``after`` is what is known of the server with it.
    """
    is_bad = finding.verdict not in GOOD
    if before is None:
        return is_bad
    was = before.pending or before.verdict
    if _after_a_gap(before, after, interval):
        return is_bad or was not in GOOD
    if finding.verdict is not was:
        return not {finding.verdict, was} <= _PLAIN
    return is_bad and _is_another(finding, before, after)


def look(
    reading: Reading, finding: Finding, before: Memory | None, after: Memory, interval: timedelta
) -> Look:
    """A reading as it is kept; ``after`` is what is known of the server with it."""
    stands = before is not None and before.beat == reading.heartbeat
    gap = before is None or _after_a_gap(before, after, interval)
    return Look(
        server=reading.server,
        at=ms(reading.at),
        every=interval // _MS,
        found=str(finding.verdict),
        status=str(reading.status),
        state=_state(reading),
        beat=ms(reading.heartbeat),
        moves=not stands and finding.verdict not in AT_REST,
        progress=after.progress or "",
        process=after.process or "",
        moved=ms(after.moved),
        loading=ms(after.loading),
        before=ms(before.at if before is not None else None) if gap else -1,
    )


def _state(reading: Reading) -> str:
    if reading.engine is not None:
        return ENGINE
    return str(reading.state) if reading.status is ReadStatus.OK else ""


def _after_a_gap(before: Memory, after: Memory, interval: timedelta) -> bool:
    return not timedelta(0) < after.at - before.at <= interval * FRESH_INTERVALS


def _is_another(finding: Finding, before: Memory, after: Memory) -> bool:
    moved = finding.verdict in AT_REST and after.beat != before.beat
    return moved or after.process != before.process


class Record:
    """The readings of a shard, bounded by age and number; the oldest go first, and are counted."""

    def __init__(self, kept: Kept | None = None) -> None:
        kept = kept or Kept()
        self._looks = unpacked(kept.looks)
        self._newest = {each.server: each.at for each in self._looks}
        self.since, self.keep_for = kept.since, kept.keep_for
        self.dropped, self.dropped_until = kept.dropped, kept.dropped_until

    @property
    def count(self) -> int:
        return len(self._looks)

    def add(self, looks: Iterable[Look], keep_for: timedelta, now: datetime) -> None:
        """Add what a sweep saw. What was sent twice is kept once."""
        self.since = self.since or now
        self.keep_for = keep_for
        for each in looks:
            if each.at > self._newest.get(each.server, 0):
                self._looks.append(each)
                self._newest[each.server] = each.at
        if len(self._looks) > MOST_LOOKS:
            self.forget(now)
            self._drop(len(self._looks) - MOST_LOOKS * 9 // 10)

    def forget(self, now: datetime) -> None:
        """Let go of what is too old to matter: what a server showed at the horizon is still of use
        while it shows it.
        """
        if self.keep_for is None:
            return
        horizon, end = ms(now - self.keep_for), ms(now - _LONGEST * self.keep_for)
        following: dict[str, int] = {}
        left: list[Look] = []
        for each in reversed(self._looks):
            until = following.get(each.server)
            following[each.server] = each.at
            still = until is None and each.found not in GOOD and each.at > end
            if each.at > horizon or still or (until is not None and until > horizon):
                left.append(each)
        self._looks = left[::-1]
        self._newest = {each.server: each.at for each in self._looks}

    def kept(self) -> Kept:
        """All of it, in one payload that Temporal takes; this record itself stays as it is."""
        looks, gone = self._looks, 0
        text = packed(looks)
        while len(text) > _MOST_PACKED:
            gone += len(looks) // 5 + 1
            looks = self._looks[gone:]
            text = packed(looks)
        until = moment(self._looks[gone - 1].at) if gone else self.dropped_until
        return Kept(
            looks=text,
            count=len(looks),
            since=self.since,
            dropped=self.dropped + gone,
            dropped_until=until,
            keep_for=self.keep_for,
        )

    def _drop(self, count: int) -> None:
        if count <= 0:
            return
        gone, self._looks = self._looks[:count], self._looks[count:]
        self.dropped += len(gone)
        self.dropped_until = moment(gone[-1].at)


def packed(looks: Iterable[Look]) -> str:
    """Readings as text: JSON rows, compressed, since they repeat each other in most fields."""
    rows = json.dumps([list(each) for each in looks], separators=(",", ":"))
    return base64.b64encode(zlib.compress(rows.encode(), 6)).decode()


def unpacked(text: str) -> list[Look]:
    """Readings of a record. Fields that a newer version of steady added are left out.

    Raises:
        ValueError: it is no record.
    """
    if not text:
        return []
    try:
        rows = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
        return [Look(*row[: len(Look._fields)]) for row in rows]
    except (zlib.error, TypeError) as problem:
        raise ValueError(f"these are no kept readings: {problem}") from problem
