"""Unix sockets to listen at: for their owner alone, and for one process at a time."""

import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOR_ITS_OWNER = 0o600
#: For another process that binds in the same folder, which takes it milliseconds.
_PATIENCE = 5.0
_LOOK_EVERY = 0.02
#: Whoever listens there takes a connection within milliseconds, or has too many already.
_ANSWERS_WITHIN = 1.0


class Taken(OSError):
    """What lies at the path is not ours to replace. The text says what it is."""


def bind(sock: socket.socket, path: str) -> None:
    """Bind a socket, in place of one that nobody listens at any more.

    A connection is refused until the caller listens, so the mode holds from the first one on.

    Raises:
        Taken: something that lives is there, or something that is no socket.
        OSError: it can't be bound.
    """
    with _alone(Path(path).parent):
        _clear(path)
        sock.bind(path)
        Path(path).chmod(_FOR_ITS_OWNER)


def remove(path: str) -> None:
    """Take away the file of a socket that is closed, unless another has its place by now."""
    with suppress(OSError), _alone(Path(path).parent):
        if not _is_served(path):
            Path(path).unlink()


def _clear(path: str) -> None:
    try:
        mode = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Taken("there is a file that is no socket")
    if _is_served(path):
        raise Taken("another process listens there")
    Path(path).unlink()


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_ANSWERS_WITHIN)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (BlockingIOError, TimeoutError):  # its queue is full
            return True
        return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else binds here meanwhile: of two, one would remove what the other has just made."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(_LOOK_EVERY)
        yield
    finally:
        os.close(held)
