"""The command line without its commands: how each of them ends, and what is said of all."""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from worker.commands.exits import MEANING, Exit, Stop
from worker.errors import SettingError, SetupError
from worker.problems import FleetFileError

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
        except FleetFileError as wrong:
            _end(str(wrong), Exit.WRONG_INPUT)
        except Stop as stop:
            _end(str(stop), stop.code)
        except SettingError as unusable:
            _end(str(unusable), Exit.WRONG_INPUT)
        except SetupError as missing:
            _end(str(missing), Exit.UNREACHED)
        except (typer.Exit, typer.Abort, TyperException):
            raise
        except BrokenPipeError:
            # Whoever read the output, `head` say, has had enough of it.
            raise typer.Exit(Exit.DONE) from None
        except Exception as fault:
            if os.environ.get("STEADY_TRACEBACK"):
                raise
            said = " ".join(f"{type(fault).__name__}: {fault}".split())[:300]
            _end(f"a fault in steady: {said} (STEADY_TRACEBACK=1 shows where)", Exit.BUG)


def _end(message: str, code: Exit) -> None:
    sys.stderr.write(f"{message}\n")
    raise typer.Exit(code)


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
