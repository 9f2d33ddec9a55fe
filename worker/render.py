"""What commands print: tables and lines for people, JSON for programs."""

import json
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

#: Where the output goes to a file or another program, lines are not folded to a terminal's width.
_UNFOLDED = 240


class _Piped(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line, where it is no failure; Rich would exit with 1."""
        raise BrokenPipeError


def console() -> Console:
    width = None if sys.stdout.isatty() else _UNFOLDED
    return _Piped(width=width, highlight=False, soft_wrap=False)


def table(*columns: str) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


def as_json(document: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n")


def say(line: str) -> None:
    """A line of standard output, never folded."""
    sys.stdout.write(f"{line}\n")


def remark(line: str) -> None:
    """A line beside the answer, on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
