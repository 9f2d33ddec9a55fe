"""Thresholds as somebody types them to try them out: ``persist=1m``, ``budget.limit=2``. Pure."""

import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from fleet.policy import Policy, RollingBudget, Thresholds, merged

#: What a replay can show the effect of.
KEYS = (
    *("stale_after", "observations", "skew_tolerance", "stalled_after", "load_limit"),
    *("persist_hung", "persist_error", "cooldown", "budget"),
)
SHORT = {"persist": "persist_hung"}
_IN_BUDGET = (*RollingBudget.model_fields, "per_day_in")


class NoSuchChange(ValueError):
    """What was typed changes nothing that can be replayed; the text says what would."""


def changes(typed: Iterable[str]) -> dict[str, Any]:
    """The overrides that some ``KEY=VALUE`` come to; of two for one key the later counts.

    Raises:
        NoSuchChange: a key is unknown, or one that a replay can't show, or there is no value.
    """
    found: dict[str, Any] = {}
    for text in typed:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise NoSuchChange(f"{text!r} is no change: write KEY=VALUE, like persist=1m")
        name, dot, inner = SHORT.get(key, key).partition(".")
        _check(key, name, inner if dot else None)
        if inner:
            found["budget"] = {**found.get("budget", {}), inner: _value(value)}
        else:
            found[name] = _value(value)
    return found


def applied(overrides: dict[str, Any], tried: dict[str, Any]) -> Policy:
    """The policy of one server with some changes.

    Raises:
        NoSuchChange: a value is no good, or does not fit to the server's others.
    """
    if not isinstance(tried.get("budget", {}), dict):
        raise NoSuchChange('budget: write budget.limit=2, or budget={ limit = 2, window = "24h" }')
    try:
        return Policy.model_validate(merged(overrides, tried))
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        at = ".".join(str(part) for part in error["loc"] if part not in ("rolling", "daily"))
        context = error.get("ctx", {})
        said = context.get("message", error["msg"].lower())
        remedy = f" — {context['remedy']}" if context.get("remedy") else ""
        raise NoSuchChange(f"{at}: {said}{remedy}") from problem


def _check(typed: str, name: str, inner: str | None) -> None:
    known = ", ".join(KEYS)
    if name in KEYS:
        if inner is None or (name == "budget" and inner in _IN_BUDGET):
            return
        raise NoSuchChange(f"there is no {typed!r}; a budget has {', '.join(_IN_BUDGET)}")
    if name in Thresholds.model_fields:
        raise NoSuchChange(f"{typed!r} changes nothing that a replay shows; these do: {known}")
    close = get_close_matches(name, [*KEYS, *SHORT], n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {known}"
    raise NoSuchChange(f"there is no threshold {typed!r}: {hint}")


def _value(text: str) -> Any:
    """A value as a fleet file would have it; durations and words need no quotes here."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
