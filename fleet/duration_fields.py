"""Durations as fields of models: written as text, bounded where that is said."""

from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from fleet.durations import HOW, bounded, parse, show
from fleet.refusal import refusal


def _coerce(value: Any) -> Any:
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, timedelta):
        return value
    raise refusal(f"{value!r} is no duration", HOW)


Duration = Annotated[timedelta, BeforeValidator(_coerce), PlainSerializer(show, return_type=str)]


def within(shortest: str, longest: str) -> AfterValidator:
    """Bounds for a ``Duration``, both included, written as people write them."""
    parse(shortest), parse(longest)
    return AfterValidator(lambda span: bounded(span, shortest, longest))
