"""The file in which a gateway keeps what was set, and the lock that makes it one process's own."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import structlog
from pydantic import ValidationError

from gateway.kept import Kept
from worker.errors import SettingError, SetupError
from worker.state import made

_FILE = "gateway.json"
_LOCK = "gateway.lock"
#: Of what is kept; a file that is larger is none of ours.
_LARGEST = 16 * 1024 * 1024

_log = structlog.get_logger(__name__)


class StateFile:
    """Written whole or not at all: beside it first, synced, then renamed."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE

    def read(self) -> Kept:
        """What was kept; nothing where there is no file. One that can't be read is told, and put
        aside under another name, for a person.

        Raises:
            SettingError: it can be neither read nor put aside.
        """
        try:
            with self._file.open("rb") as file:
                raw = file.read(_LARGEST + 1)
            if len(raw) > _LARGEST:
                return self._put_aside("it is too large")
            return Kept.model_validate_json(raw)
        except FileNotFoundError:
            return Kept()
        except OSError as problem:
            return self._put_aside(str(problem.strerror or problem).lower())
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            return self._put_aside(f"{where}: {first['msg']}" if where else str(first["msg"]))

    def write(self, kept: Kept) -> None:
        """Replace what was kept.

        Raises:
            OSError: it can't be written; what was kept before still is.
        """
        beside = self._file.with_suffix(".new")
        try:
            with os.fdopen(os.open(beside, _NEW, 0o600), "wb") as file:
                file.write(kept.model_dump_json(indent=2).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._file)
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _put_aside(self, why: str) -> Kept:
        aside = self._file.with_name(f"{_FILE}.unreadable-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
        try:
            self._file.rename(aside)
        except OSError as problem:
            said = (problem.strerror or str(problem)).lower()
            raise SettingError(
                f"{self._file} can't be read ({why}) or put aside ({said}):"
                " remove it, or set STEADY_STATE_DIR to another folder"
            ) from problem
        _log.error(
            "what was set through the admin API can't be read; nothing of it is in force",
            file=str(self._file),
            why=why,
            kept_aside=str(aside),
        )
        return Kept()


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def state_file(state_dir: Path) -> Iterator[StateFile]:
    """The file of this process alone, for the length of the block.

    Raises:
        SettingError: the folder can't be made or written.
        SetupError: another gateway keeps its state there.
    """
    made(state_dir)
    with (state_dir / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(
                f"another gateway keeps its state in {state_dir}:"
                " stop it, or set STEADY_STATE_DIR to another folder"
            ) from None
        yield StateFile(state_dir)
