"""Secrets, found where the fleet file says and at the moment that they are used."""

import os
from pathlib import Path

from fleet.engines.place import KeyPlace

_LARGEST = 16 * 1024


class SecretError(Exception):
    """A secret that can't be used. Names the variable or the file, and never what is in it."""


def resolve(ref: KeyPlace) -> str:
    """Read a secret; a file's trailing line ends are no part of it.

    Raises:
        SecretError: it is not set, empty, unreadable, over 16 KiB, or not one line of text.
    """
    if ref.env is not None:
        return _checked(os.environ.get(ref.env, ""), f"the environment variable {ref.env}")
    return _from_file(Path(ref.file or "").expanduser())


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        raise SecretError(f"the secret file {path} can't be read: {why}") from None
    if len(raw) > _LARGEST:
        raise SecretError(f"the secret file {path} is over {_LARGEST // 1024} KiB: no secret is")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "\0"
    return _checked(text.rstrip("\r\n"), f"the secret file {path}")


def _checked(secret: str, where: str) -> str:
    if not secret:
        raise SecretError(f"{where} is not set or empty: the worker needs it")
    if not secret.isprintable():
        raise SecretError(f"{where} holds more than one line of text")
    return secret
