"""What passes to and from ``record/<shard>``: readings that are kept to be judged again."""

from enum import StrEnum
from typing import NamedTuple

from pydantic import AwareDatetime

from fleet.contracts.names import Message
from fleet.duration_fields import Duration


class Look(NamedTuple):
    """A reading that was kept; until the server's next one, every look showed the same.

    Times are milliseconds since 1970, 0 where there is none. ``found`` is what the reading itself
    said, a verdict; ``state`` is empty where there was no record. ``beat`` is the heartbeat, by the
    worker's clock; it ``moves`` with the looks, or stands still. ``moved`` is when the progress
    marker last changed, ``loading`` when the load was first seen. ``before`` is the look before
    this one where more than some intervals lie between the two, or there was none (0); else it is
    -1. ``every`` is the interval of the sweeps.
    """

    server: str
    at: int
    every: int
    found: str
    status: str
    state: str = ""
    beat: int = 0
    moves: bool = False
    progress: str = ""
    process: str = ""
    moved: int = 0
    loading: int = 0
    before: int = -1


class KeepRequest(Message):
    """What one sweep of a shard adds; ``keep_for`` is how long it is kept."""

    shard: int
    looks: list[Look]
    keep_for: Duration


class Kept(Message):
    """All that ``record/<shard>`` holds, oldest first, packed by ``fleet.recording``.

    ``dropped`` counts what went before its time, for want of room, the last of it at
    ``dropped_until``; ``since`` is when the record began.
    """

    looks: str = ""
    count: int = 0
    since: AwareDatetime | None = None
    dropped: int = 0
    dropped_until: AwareDatetime | None = None
    keep_for: Duration | None = None


class RecordInput(Message):
    """``kept`` is what continue-as-new hands on."""

    shard: int
    kept: Kept | None = None


class RecordSignal(StrEnum):
    KEEP = "keep"


class RecordQuery(StrEnum):
    KEPT = "kept"
