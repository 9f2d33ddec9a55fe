"""A person's word to a remediation, however it was typed.

Signals come from the ``steady`` CLI, from the ``temporal`` CLI and from a form in the Temporal UI.
The last two take whatever is written into them, so a request is read leniently: a misread
``cancel`` that still cancels beats a strict one that is dropped, or that fails the workflow's task
for ever because it came with one argument too many.
"""

from datetime import timedelta
from typing import Any

from fleet.contracts.remediation import OperatorRequest
from fleet.durations import parse, show

LONGEST_SNOOZE = timedelta(days=7)


class NotUnderstood(ValueError):
    """The request lacks what its signal needs; the text says what to send."""


def read_request(words: tuple[Any, ...]) -> OperatorRequest:
    """Read who and why from the arguments of a signal: a mapping, a plain text or nothing.

    A text that is a duration is no reason: it says for how long to snooze.
    """
    raw = words[0] if words else None
    if isinstance(raw, str):
        return OperatorRequest(who="a person", why="" if _is_span(raw) else raw[:300])
    if not isinstance(raw, dict):
        return OperatorRequest(who="a person")
    return OperatorRequest(
        who=str(raw.get("who") or "a person")[:80],
        why=str(raw.get("why") or "")[:300],
        id=str(raw.get("id") or "")[:64],
    )


def read_span(words: tuple[Any, ...]) -> timedelta:
    """Read for how long to snooze, from ``"30m"`` or ``{"for": "30m"}`` (also ``"span"``).

    Raises:
        NotUnderstood: there is no duration, or it is negative or longer than a week.
    """
    raw = words[0] if words else None
    text = raw
    if isinstance(raw, dict):
        text = raw.get("span") or raw.get("for")
    try:
        span = parse(text) if isinstance(text, str) else None
    except ValueError as problem:
        raise NotUnderstood(str(problem)) from problem
    if span is None or span <= timedelta(0):
        raise NotUnderstood('say for how long: {"for": "30m"}')
    if span > LONGEST_SNOOZE:
        raise NotUnderstood(f"{show(span)} is longer than a snooze may be ({show(LONGEST_SNOOZE)})")
    return span


def _is_span(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def by(request: OperatorRequest) -> str:
    """Who and why, for a timeline."""
    return f"by {request.who}" + (f": {request.why}" if request.why else "")
