"""``steady check`` among the other commands; what is typed after it is read in ``worker.check``."""

from typing import Any

import typer

from worker.check_arguments import SUMMARY

#: Everything is handed on as it was typed, ``--help`` too.
UNREAD: dict[str, Any] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}


def check(context: typer.Context) -> None:
    from worker.check import run

    raise typer.Exit(run(context.args))


check.__doc__ = SUMMARY
