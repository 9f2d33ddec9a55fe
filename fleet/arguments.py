"""A command in a fleet file: a list of arguments, which no shell ever splits or expands."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from fleet.refusal import refusal


def _list_not_text(value: object) -> object:
    if isinstance(value, str):
        raise refusal(
            "a command is a list, since a text would be split by a shell",
            'write ["program", "argument"]',
        )
    return value


Argument = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
Arguments = Annotated[tuple[Argument, ...], BeforeValidator(_list_not_text)]
