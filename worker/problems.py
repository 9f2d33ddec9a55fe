"""What is wrong with a fleet file, each in one line with the remedy."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One line for a person: where, what, and after the dash what to do about it.

    ``line`` is known only where the file is no TOML. ``key`` is the path of keys as the file
    writes it, and empty where the whole file is meant.
    """

    file: str
    line: int | None
    key: str
    message: str
    remedy: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        said = f"{self.key}: {self.message}" if self.key else self.message
        return f"{place}: {said} — {self.remedy}" if self.remedy else f"{place}: {said}"


class FleetFileError(Exception):
    """A fleet file that can't be used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
