"""How a command that failed ends: one line, and an exit code."""

import os

from worker.commands.exits import Exit, Stop
from worker.errors import SettingError, SetupError
from worker.problems import FleetFileError


def ending(problem: Exception) -> tuple[str, Exit]:
    """The line for standard error, and the code.

    Raises:
        Exception: the problem, where it is a fault of ours and a traceback was asked for.
    """
    if isinstance(problem, BrokenPipeError):
        # Whoever read the output, `head` say, has had enough of it.
        return "", Exit.DONE
    if isinstance(problem, Stop):
        return f"{problem}\n", problem.code
    if isinstance(problem, FleetFileError | SettingError):
        return f"{problem}\n", Exit.WRONG_INPUT
    if isinstance(problem, SetupError):
        return f"{problem}\n", Exit.UNREACHED
    if os.environ.get("STEADY_TRACEBACK"):
        raise problem
    said = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
    return f"a fault in steady: {said} (STEADY_TRACEBACK=1 shows where)\n", Exit.BUG
