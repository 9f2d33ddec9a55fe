"""Stops one thread of a process and leaves the others running, as a call that never returns does.

A signal stops the process as a whole. So it is done as a debugger does it, on Linux, and from one
thread of ours alone: whoever stopped it is the only one who can let it go.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
#: Wait for threads too.
_WALL = 0x40000000


@contextmanager
def stopped(thread: int) -> Iterator[None]:
    """Stand still from here to the end of the block. The process must outlive it."""
    _ptrace(_SEIZE, thread)
    try:
        _ptrace(_INTERRUPT, thread)
        os.waitpid(thread, _WALL)
        yield
    finally:
        _ptrace(_DETACH, thread)


def busiest(pid: int, before: dict[int, int]) -> int:
    """The thread that has used the most CPU time since ``before``."""
    now = cpu_times(pid)
    return max(now, key=lambda thread: now[thread] - before.get(thread, 0))


def cpu_times(pid: int) -> dict[int, int]:
    """By thread, in ticks."""
    found = {}
    for entry in Path(f"/proc/{pid}/task").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(entry.name)] = int(fields[11]) + int(fields[12])
    return found


def _ptrace(request: int, thread: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    call.restype = ctypes.c_long
    if call(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {thread}")
