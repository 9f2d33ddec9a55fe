"""Exit codes, and how a command ends early: one line on standard error, and a code."""

from enum import IntEnum


class Exit(IntEnum):
    """The codes of every command; they are part of the interface."""

    DONE = 0
    NO = 1
    WRONG_INPUT = 2
    UNREACHED = 3
    BUG = 4


#: For ``--help``; in the order of the codes.
MEANING = {
    Exit.DONE: "done; the answer is yes",
    Exit.NO: "the answer is no: too late, nothing to cancel, no owner of a verdict, a stuck engine",
    Exit.WRONG_INPUT: "wrong usage, a setting or fleet file with mistakes; nothing was changed",
    Exit.UNREACHED: "Temporal, a worker or a host was not reached; nothing is proved of an engine",
    Exit.BUG: "a fault in steady itself",
}


class Stop(Exception):
    """Ends a command. The message is one line and names the remedy."""

    def __init__(self, message: str, code: Exit = Exit.NO) -> None:
        super().__init__(message)
        self.code = code
