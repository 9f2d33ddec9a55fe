"""Telling people again of what is still bad, and once that it is over.

The first message is the alert itself. Reminders come after the time that the policy names, then
after twice, four times, eight times that: a month holds five. What was told is known by the sweep's
memory, so it survives every restart of steady.
"""

from datetime import datetime, timedelta

from fleet.judge import Memory
from fleet.verdicts import ALERT_ONLY, GOOD, Verdict

#: So many reminders of one verdict at most: with the default, the last comes after 255 days.
MOST = 8


def matter(memory: Memory | None) -> tuple[Verdict, datetime] | None:
    """The bad verdict that a server is under, and since when; also over a gap in the sweeps."""
    if memory is None:
        return None
    if memory.verdict is not None:
        return None if memory.verdict in GOOD else (memory.verdict, memory.since)
    if memory.pending is not None and memory.first is not None:
        return memory.pending, memory.first
    return None


def told(then: Memory | None) -> int:
    """How often people heard of what a server was under; an older steady did not count."""
    if then is None:
        return 0
    was_told = then.verdict in ALERT_ONLY and not then.owed
    return max(then.told, int(was_told))


def carried(now: Memory, then: Memory | None) -> int:
    """How often people heard of the present verdict before this sweep."""
    return told(then) if matter(now) == matter(then) else 0


def due(since: datetime, at: datetime, remind_after: timedelta | None) -> int:
    """How many reminders are due at a moment of what has been bad ``since``."""
    if remind_after is None:
        return 0
    count, span = 0, remind_after
    while count < MOST and at - since >= span:
        count, span = count + 1, 2 * span + remind_after
    return count


def cause(number: int) -> str:
    """The cause of a reminder: each is a message of its own under the incident's key."""
    return "reminder" if number == 1 else f"reminder-{number}"
