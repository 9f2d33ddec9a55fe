"""Numbers in a few characters that need no escape in JSON, for what a sweep leaves for the next."""

import math

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUE = {digit: value for value, digit in enumerate(_DIGITS)}
_BITS = 6
#: Steps between one power of two and the next.
_STEPS = 2048


def written(number: int, width: int) -> str:
    """``width`` characters; a number that has no room is the highest one that has."""
    number, text = min(number, (1 << _BITS * width) - 1), ""
    for _ in range(width):
        number, text = number >> _BITS, _DIGITS[number & 63] + text
    return text


def read(text: str) -> int:
    number = 0
    for digit in text:
        number = number << _BITS | _VALUE[digit]
    return number


def size(value: float | None) -> int:
    """A number in 18 bits that never grows where the value falls; 0 only where there is none."""
    if value is None:
        return 0
    part, power = math.frexp(1 + max(0.0, value))
    return min(power * _STEPS + int((part - 0.5) * 2 * _STEPS), (1 << 18) - 1)
