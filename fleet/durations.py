"""Durations as people write them: ``"120s"``, ``"3m"``, ``"1h30m"``, ``"24h"``, ``"7d"``."""

import re
from datetime import timedelta

from fleet.refusal import refusal

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TOKEN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_TOKEN.pattern})+", re.ASCII)
HOW = 'write a number and a unit (ms, s, m, h, d) in quotes, like "120s" or "3m"'
_LONGEST = timedelta(days=366)


def parse(text: str) -> timedelta:
    """Read a duration.

    Raises:
        ValueError: the text is no sequence of number and unit (ms, s, m, h, d), has one unit twice,
            or is over a year. What is finer than a millisecond is rounded, so that ``show`` gives
            it back unchanged.
    """
    compact = text.strip()
    if not _WHOLE.fullmatch(compact):
        raise refusal(f"{text!r} is no duration", HOW)
    parts = _TOKEN.findall(compact)
    if len({unit for _, unit in parts}) < len(parts):
        raise refusal(f"{text!r} has a unit twice", "write each unit once")
    seconds = sum(float(n) * _UNITS[unit] for n, unit in parts)
    if seconds > _LONGEST.total_seconds():
        raise refusal(f"{text!r} is longer than a year", "choose at most 366d")
    return timedelta(milliseconds=round(seconds * 1000))


def show(span: timedelta) -> str:
    """Write a duration in its largest units, for people and for ``fleet.toml``: ``"1h30m"``."""
    milliseconds = round(span / timedelta(milliseconds=1))
    if milliseconds == 0:
        return "0s"
    sign, milliseconds = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)


def brief(span: timedelta) -> str:
    """Write a duration for a table cell or sentence, in its two largest units from a second up."""
    text = show(timedelta(seconds=max(0, round(span.total_seconds()))))
    return "".join(re.findall(r"\d+[a-z]+", text)[:2]) or "0s"


def bounded(span: timedelta, shortest: str, longest: str) -> timedelta:
    """The span, if it lies within bounds, both included, written as people write them.

    Raises:
        ValueError: it does not.
    """
    if not parse(shortest) <= span <= parse(longest):
        raise refusal(f"{show(span)} is out of range", f"choose from {shortest} to {longest}")
    return span
