"""The state folder: one ``steady up`` at a time owns it, and it remembers the ports."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from worker.errors import SettingError, SetupError

_LOCK = "lock"
_PORTS = "ports.json"
_TEMPORAL = "temporal.json"
_VALKEY = "valkey.json"


def made(state_dir: Path) -> None:
    """Make the folder, for this user alone, and see that it can be written.

    Raises:
        SettingError: it can't.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=state_dir):
            pass
    except OSError as problem:
        is_other = state_dir.exists() and not state_dir.is_dir()
        why = "it is no folder" if is_other else (problem.strerror or "failed").lower()
        raise SettingError(
            f"the state folder {state_dir} can't be used ({why}):"
            " set STEADY_STATE_DIR to one that can be written"
        ) from problem


@contextmanager
def owned(state_dir: Path) -> Iterator[Path]:
    """Own the folder for the length of the block, whatever ends us: the lock is the kernel's.

    Raises:
        SettingError: it can't be made or written.
        SetupError: another process owns it, which the message names.
    """
    made(state_dir)
    with (state_dir / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            lock.seek(0)
            raise SetupError(
                f"steady already runs on {state_dir} (PID {lock.read().strip() or 'unknown'}):"
                " stop it, or set STEADY_STATE_DIR to another folder"
            ) from busy
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield state_dir.resolve()


def _is_unlocked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_left(state_dir: Path) -> bool:
    """Whether a ``steady up`` has owned the folder, and none does now."""
    try:
        with (state_dir / _LOCK).open() as lock:
            return _is_unlocked(lock)
    except OSError:
        return False


def port_for(state_dir: Path, name: str, preferred: int | None) -> int:
    """The port of the last run if it is free, else ``preferred``, else any; it is remembered."""
    known = _remembered(state_dir)
    for port in (known.get(name), preferred):
        if port is not None and port not in _others(known, name) and is_free(port):
            break
    else:
        port = _any_free()
    known[name] = port
    (state_dir / _PORTS).write_text(json.dumps(known))
    return port


def _remembered(state_dir: Path) -> dict[str, int]:
    try:
        known = json.loads((state_dir / _PORTS).read_text())
        return {str(name): int(port) for name, port in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _others(known: dict[str, int], name: str) -> set[int]:
    return {port for other, port in known.items() if other != name}


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: what lingers of a closed connection does not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _any_free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class TemporalAddress:
    """Where an embedded Temporal listens, and where its UI does."""

    address: str
    ui_url: str


def note_temporal(state_dir: Path, where: TemporalAddress | None) -> None:
    """Note where this folder's Temporal is, for the other commands; none: it is gone."""
    _note(state_dir / _TEMPORAL, asdict(where) if where is not None else None)


def noted_temporal(state_dir: Path) -> TemporalAddress | None:
    """Where the Temporal of this folder's ``steady up`` is, if one runs."""
    try:
        return TemporalAddress(**_noted(state_dir, _TEMPORAL))
    except TypeError:
        return None


def note_store(state_dir: Path, url: str | None) -> None:
    """Note where this folder's Valkey is, for other workers; none: it is gone."""
    _note(state_dir / _VALKEY, {"url": url} if url is not None else None)


def noted_store(state_dir: Path) -> str | None:
    """The URL of the Valkey of this folder's ``steady up``, if one runs."""
    return _noted(state_dir, _VALKEY).get("url")


def _note(file: Path, said: dict[str, str] | None) -> None:
    if said is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(json.dumps(said))


def _noted(state_dir: Path, name: str) -> dict[str, str]:
    """What was noted there, if its owner still lives: a killed one could not take it back."""
    try:
        with (state_dir / _LOCK).open() as lock:
            if _is_unlocked(lock):
                return {}
        said = json.loads((state_dir / name).read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
