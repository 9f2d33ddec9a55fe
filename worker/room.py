"""How much of a snapshot a terminal has room for."""

from dataclasses import dataclass

from worker.snapshot import Snapshot

_CLOSED, _ALERTS, _SERVERS, _PROBLEMS = 8, 5, 60, 3
#: Less than this of a part says nothing.
_FEW = 3
#: The lines of a table that are no row: an empty one before it, its head, a rule.
_FRAME = 3

#: Narrower than this a table keeps to what matters most.
NARROW = 100


@dataclass(frozen=True)
class Room:
    """How many rows of each part are shown, in a terminal so many columns wide."""

    width: int
    servers: int
    open: int
    closed: int
    alerts: int = 0
    #: Whether a row is cut to one line, not folded.
    one_line: bool = False

    @property
    def narrow(self) -> bool:
        return self.width < NARROW


def everything(seen: Snapshot, width: int) -> Room:
    """All rows, for what is printed once."""
    return Room(width, len(seen.servers), len(seen.open), len(seen.closed))


def fitted(seen: Snapshot, alerts: int, width: int, height: int) -> Room:
    """The rows that fit a terminal, where each is one line: servers and open incidents first."""
    left = height - _fixed(seen, alerts)
    later = min(_FEW, alerts) + min(_FEW, len(seen.closed)) + min(_FEW, len(seen.open))
    servers = _rows(len(seen.servers), max(_FEW, left - later), _SERVERS)
    left -= servers + (servers < len(seen.servers))
    opened = _rows(len(seen.open), max(_FEW, left), _SERVERS)
    left -= opened + (opened < len(seen.open))
    told = min(alerts, _ALERTS, max(0, left - min(_FEW, len(seen.closed))))
    closed = min(len(seen.closed), _CLOSED, max(0, left - told))
    return Room(width, servers, opened, closed, told, one_line=True)


def _fixed(seen: Snapshot, alerts: int) -> int:
    head = 2 + (seen.fleet_pause is not None) + bool(seen.blocked_by)
    incidents = _FRAME if seen.open or seen.closed else 0
    told = 2 if alerts else 0
    foot = 2 + min(_PROBLEMS, len(seen.problems))
    return head + _FRAME + incidents + told + foot


def _rows(count: int, room: int, most: int) -> int:
    """All of them, or so many that a line is left to say how many there are more."""
    room = min(room, most)
    return count if count <= room else max(1, room - 1)
