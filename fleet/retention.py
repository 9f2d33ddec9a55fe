"""Which bundles of evidence go: the oldest, where they are too old or too much."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Kept:
    """A bundle on the disk. ``incident`` is its incident's folder."""

    incident: str
    name: str
    at: datetime
    size: int


@dataclass(frozen=True)
class Limits:
    """``span`` is how old a bundle may become, ``size`` how many bytes all of them may have."""

    span: timedelta
    size: int


#: Younger than this a bundle may still be written, by whichever worker.
UNTOUCHED = timedelta(minutes=15)


def leaving(
    bundles: Iterable[Kept],
    limits: Limits,
    now: datetime,
    is_open: Callable[[str], bool] = lambda _incident: False,
) -> list[Kept]:
    """The bundles that go, the oldest first.

    Of an incident that ``is_open`` the newest one stays, whatever the limits say.
    """
    oldest_first = sorted(bundles, key=lambda each: (each.at, each.incident))
    newest = {each.incident: each for each in oldest_first}
    total = sum(each.size for each in oldest_first)
    gone: list[Kept] = []
    for each in oldest_first:
        if now - each.at <= limits.span and total <= limits.size:
            break
        if now - each.at < UNTOUCHED:
            continue
        if newest[each.incident] is each and is_open(each.incident):
            continue
        gone.append(each)
        total -= each.size
    return gone
