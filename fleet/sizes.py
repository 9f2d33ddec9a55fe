"""Sizes as people write them: ``"64KiB"``, ``"1MiB"``, ``"2GiB"``, ``"500B"``."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from fleet.refusal import refusal

_UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_WHOLE = re.compile(r"(\d{1,9})\s*(B|KiB|MiB|GiB)", re.ASCII)
_HOW = 'write a whole number and a unit (B, KiB, MiB, GiB) in quotes, like "64KiB"'


def parse_size(text: str) -> int:
    """Read a size into bytes.

    Raises:
        ValueError: the text is no whole number with a unit.
    """
    found = _WHOLE.fullmatch(text.strip())
    if not found:
        raise refusal(f"{text!r} is no size", _HOW)
    return int(found[1]) * _UNITS[found[2]]


def show_size(count: int) -> str:
    """Write bytes in the largest unit that leaves a whole number: ``"1MiB"``."""
    unit = next(unit for unit in reversed(_UNITS) if count % _UNITS[unit] == 0)
    return f"{count // _UNITS[unit]}{unit}" if count else "0B"


def _coerce(value: Any) -> Any:
    if isinstance(value, str):
        return parse_size(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise refusal(f"{value!r} is no size", _HOW)


Size = Annotated[
    int, BeforeValidator(_coerce), PlainSerializer(show_size, return_type=str, when_used="json")
]


def size_within(smallest: str, largest: str) -> AfterValidator:
    """Bounds for a ``Size``, both included, written as people write them."""
    low, high = parse_size(smallest), parse_size(largest)

    def check(count: int) -> int:
        if not low <= count <= high:
            remedy = f"choose from {smallest} to {largest}"
            raise refusal(f"{show_size(count)} is out of range", remedy)
        return count

    return AfterValidator(check)
