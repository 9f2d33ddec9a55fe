"""Where the program ``steady`` begins."""

import gc
import os
import sys
from contextlib import suppress

from worker.commands.exits import Exit
from worker.endings import ending


def main() -> None:
    """Run a command, and end the process ourselves.

    The interpreter's own exit is now and then aborted by threads of the Temporal SDK that still run
    (SIGABRT, sdk-python#300), and with it the exit code, on which scripts depend.
    """
    code: object = Exit.DONE
    try:
        _run(sys.argv[1:])
    except SystemExit as end:
        code = end.code
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run(arguments: list[str]) -> None:
    """A health check starts anew every time, so it loads the one command that it is."""
    if arguments[:1] == ["check"]:
        # What is loaded here is no garbage, and looking at it again and again takes a twentieth.
        gc.set_threshold(100_000)
        _check(arguments[1:])
    else:
        from worker.cli import app  # noqa: PLC0415

        app()


def _check(arguments: list[str]) -> None:
    from worker.check import run  # noqa: PLC0415

    try:
        sys.exit(run(arguments))
    except Exception as problem:  # noqa: BLE001 - it ends with it, as every command does
        said, code = ending(problem)
        sys.stderr.write(said)
        sys.exit(code)
