"""Bounds on what is kept of what others say."""

from collections.abc import Sized


def check_lengths(kept: object, **most: int) -> None:
    """
    Raises:
        ValueError: an attribute is longer than it may be; nothing of it is repeated.
    """
    for name, longest in most.items():
        value: Sized | None = getattr(kept, name)
        if value is not None and len(value) > longest:
            raise ValueError(f"{name} of {type(kept).__name__} is longer than {longest}")
