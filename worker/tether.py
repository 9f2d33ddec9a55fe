"""``python -m worker.tether PARENT ARGV…``: become ARGV, and die when the parent does.

A child in a session of its own does not hear the terminal's Ctrl-C, so that we stop it in order.
Linux's parent-death signal stops it where we were killed and could not; it survives ``exec``. On
other systems an orphan is ended by the next run, by its PID file.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, argv = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # The parent may have died before the signal was armed.
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(argv[0], argv)  # noqa: S606  # no shell is the point


if __name__ == "__main__":
    main()
