"""Reading a worker's time, in whatever form it publishes: Unix seconds, milliseconds, ISO 8601."""

import math
import re
from datetime import UTC, datetime

from fleet.policy import TimeFormat

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_LONGEST = 64

#: A heartbeat before or after these is no heartbeat: a counter, an uptime, another unit.
_EARLIEST = datetime(2001, 1, 1, tzinfo=UTC)
_LATEST = datetime(2100, 1, 1, tzinfo=UTC)

_REMEDY = "publish Unix seconds, Unix milliseconds or ISO 8601 with an offset"
_PER_SECOND = {"seconds": 1, "milliseconds": 1000}
_TOO_FINE = {"microseconds": 10**6, "nanoseconds": 10**9}


def read_time(value: object, form: TimeFormat) -> datetime:
    """Read a time as UTC. ``auto`` tells seconds from milliseconds by the size of the number.

    A time without an offset is refused, not guessed: in the wrong zone a healthy worker would look
    hours old.

    Raises:
        ValueError: one line that says what is wrong and what to publish.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"is {_kind(value)}, no time: {_REMEDY}")
    if not isinstance(value, str):
        return _from_number(value, form)
    text = value.strip()
    if not text:
        raise ValueError(f"is empty: {_REMEDY}")
    if len(text) > _LONGEST:
        raise ValueError(f"has {len(text)} characters, more than a time has: {_REMEDY}")
    if form != "iso8601" and _NUMBER.fullmatch(text):
        return _from_number(float(text), form)
    return _from_text(text, form)


def _from_number(number: float, form: TimeFormat) -> datetime:
    if form == "iso8601":
        raise ValueError('is a number where the source has time = "iso8601": set time = "auto"')
    # An int of any length comes in from JSON; as a float it may not fit.
    if abs(number) > 10**30 or not math.isfinite(number):
        raise ValueError(f"is no finite number in the range of a time: {_REMEDY}")
    for unit in _PER_SECOND if form == "auto" else (form,):
        if _fits(number, _PER_SECOND[unit]):
            return datetime.fromtimestamp(number / _PER_SECOND[unit], UTC)
    raise ValueError(f"is {number:.17g}, which {_no_time(number, form)}")


def _no_time(number: float, form: TimeFormat) -> str:
    for unit, per_second in _TOO_FINE.items():
        if _fits(number, per_second):
            return f"looks like {unit}: {_REMEDY}"
    for unit, per_second in _PER_SECOND.items():
        if unit != form and _fits(number, per_second):
            return f'looks like {unit}, but the source has time = "{form}": set time = "{unit}"'
    return f"is no time from 2001 to 2099 (an uptime or a counter?): {_REMEDY}"


def _fits(number: float, per_second: int) -> bool:
    return _EARLIEST.timestamp() <= number / per_second < _LATEST.timestamp()


def _from_text(text: str, form: TimeFormat) -> datetime:
    shown = "".join(c if c.isprintable() else "?" for c in text[:40])
    if form in _PER_SECOND:
        raise ValueError(f"is {shown!r}, no number of {form}: {_REMEDY}")
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ValueError(f"is {shown!r}, no time: {_REMEDY}") from None
    if moment.tzinfo is None:
        raise ValueError(f"is {shown!r}, without an offset: append Z where the worker writes UTC")
    if not _EARLIEST.year <= moment.year < _LATEST.year:
        raise ValueError(f"is {shown!r}, no time from 2001 to 2099: {_REMEDY}")
    return moment.astimezone(UTC)


def _kind(value: object) -> str:
    names = {bool: "true or false", type(None): "null", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)
