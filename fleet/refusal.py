"""How a value is refused: what is wrong, and separately what to do about it.

Both parts travel in pydantic's own errors, so whoever prints them can set them as it likes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError

REFUSED = "refused"


class Refusal(NamedTuple):
    """``at`` is the path of keys to the value, from the model that refuses it."""

    at: tuple[str | int, ...]
    message: str
    remedy: str


def refusal(message: str, remedy: str) -> "PydanticCustomError":
    """A ``ValueError`` to raise in a validator, or anywhere else."""
    from pydantic_core import PydanticCustomError  # noqa: PLC0415 - takes a while, and is seldom needed

    return PydanticCustomError(
        REFUSED, "{message}: {remedy}", {"message": message, "remedy": remedy}
    )


def raise_all(model: str, found: Iterable[Refusal]) -> None:
    """Raise every refusal at its own path in one go; inside a validator, pydantic joins them.

    Raises:
        ValidationError: there is at least one.
    """
    from pydantic_core import InitErrorDetails, ValidationError  # noqa: PLC0415

    details = [
        InitErrorDetails(type=refusal(each.message, each.remedy), loc=each.at, input=None)
        for each in found
    ]
    if details:
        raise ValidationError.from_exception_data(model, details, hide_input=True)
