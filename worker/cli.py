"""The command line. What a command needs is imported when it runs, so that ``--help`` is quick."""

import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from worker.commands import (
    apply,
    audit,
    budget,
    drill,
    incident,
    incidents,
    init,
    operator,
    pause,
    replay,
    scan,
    serve,
    status,
    storm,
    validate,
)
from worker.commands.exits import MEANING, Exit, Stop
from worker.errors import SettingError, SetupError
from worker.problems import FleetFileError

_CODES = "\n\n".join(f"{int(code)}  {meaning}" for code, meaning in MEANING.items())
_EPILOG = f"""\
**Begin with** `steady demo`, a demonstration that ends by itself, or `steady up`, which starts
everything that is needed and shows it live. For machines of your own: `steady init HOST` writes a
`fleet.toml` to start from (`fleet.example.toml` explains every key), `steady validate fleet.toml`,
`steady up`.

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


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"steady {version('steady')}\n")
        raise typer.Exit


@app.callback()
def _steady(
    _version_wanted: Annotated[
        bool,
        typer.Option(
            "--version", help="The version, and no more.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None: ...


_RUN, _FLEET, _LOOK, _ACT = "Run", "The fleet file", "Look", "Say a word"

app.command("up", rich_help_panel=_RUN)(serve.up)
app.command("worker", rich_help_panel=_RUN)(serve.worker)
app.command("gateway", rich_help_panel=_RUN)(serve.gateway)
app.command("demo", rich_help_panel=_RUN)(serve.demo)
app.command("init", rich_help_panel=_FLEET)(init.init)
app.command("validate", rich_help_panel=_FLEET)(validate.validate)
app.command("apply", rich_help_panel=_FLEET)(apply.apply)
app.command("audit", rich_help_panel=_FLEET)(audit.audit)
app.command("ssh-scan", rich_help_panel=_FLEET)(scan.ssh_scan)
app.command("status", rich_help_panel=_LOOK)(status.status)
app.command("incidents", rich_help_panel=_LOOK)(incidents.incidents)
app.command("replay", rich_help_panel=_LOOK)(replay.replay)
app.add_typer(incident.app, name="incident", rich_help_panel=_LOOK)
app.command("storm", rich_help_panel=_LOOK)(storm.storm)
app.command("cancel", rich_help_panel=_ACT)(operator.cancel)
app.command("snooze", rich_help_panel=_ACT)(operator.snooze)
app.command("approve", rich_help_panel=_ACT)(operator.approve)
app.command("restart", rich_help_panel=_ACT)(operator.restart)
app.command("drill", rich_help_panel=_ACT)(drill.drill)
app.add_typer(budget.app, name="budget", rich_help_panel=_ACT)
app.command("pause", rich_help_panel=_ACT)(pause.pause)
app.command("resume", rich_help_panel=_ACT)(pause.resume)


def main() -> None:
    """Run a command, and end the process ourselves.

    The interpreter's own exit is now and then aborted by threads of the Temporal SDK that still run
    (SIGABRT, sdk-python#300), and with it the exit code, on which scripts depend.
    """
    code: object = Exit.DONE
    try:
        app()
    except SystemExit as end:
        code = end.code
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
