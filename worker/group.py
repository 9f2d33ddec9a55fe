"""The command line without its commands: how each of them ends, and what is said of all."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from worker.commands.exits import MEANING
from worker.endings import ending

_CODES = "\n\n".join(f"{int(code)}  {meaning}" for code, meaning in MEANING.items())
_EPILOG = f"""\
**Begin with** `steady demo`, a demonstration that ends by itself, or `steady up`, which starts
everything that is needed and shows it live. For machines of your own: `steady init HOST` writes a
`fleet.toml` to start from (`fleet.example.toml` explains every key), `steady validate fleet.toml`,
`steady up`. For one engine and nothing else: `steady check URL`.

**Where Temporal is**: `TEMPORAL_ADDRESS` (and the other `TEMPORAL_*` variables), else the `steady
up` of this folder, else 127.0.0.1:7233.

**Exit codes**

{_CODES}
"""


class _Steady(TyperGroup):
    """Ends every failure with one line on standard error and its exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, TyperException):
            raise
        except Exception as problem:  # noqa: BLE001 - every failure ends in a line and a code
            said, code = ending(problem)
            sys.stderr.write(said)
            raise typer.Exit(code) from None


def new_app() -> typer.Typer:
    """The command line, still without a command."""
    app = typer.Typer(
        cls=_Steady,
        name="steady",
        help=(
            "Keeps self-hosted inference serving: tells a hung server from a busy one, restarts the"
            " hung one over SSH once, and says what came of it."
        ),
        epilog=_EPILOG,
        rich_markup_mode="markdown",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_steady)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and seldom asked for

        sys.stdout.write(f"steady {version('steady')}\n")
        raise typer.Exit


def _steady(
    _version_wanted: Annotated[
        bool,
        typer.Option(
            "--version", help="The version, and no more.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None: ...
