"""Reads a kernel log: the lines that an incident of a GPU server may turn on, and NVIDIA's Xids."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

#: So many lines of interest are kept, the newest.
MOST_LINES = 2000

_LONGEST_LINE = 2000
_TELLING = re.compile(
    r"NVRM|\bS?Xid\b|nvidia|nvlink|nvswitch|amdgpu|EDAC|\bAER\b|pcieport|PCIe Bus Error"
    r"|\bMCE\b|\bmce:|[Mm]achine [Cc]heck|Hardware Error|Memory failure"
    r"|[Oo]ut of memory|oom[-_](?:kill|reaper)|Killed process|page allocation failure"
    r"|hung_task|blocked for more than|soft lockup|hard LOCKUP|segfault|I/O error"
    r"|thermal|throttl"
)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)(?=\s)", re.ASCII
)
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<gpu>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})[^)\n]{0,80}\):"
    r" {1,4}(?P<code>\d{1,4})\b,?(?P<said>.{0,300})",
    re.ASCII,
)


@dataclass(frozen=True)
class Xid:
    """One error that NVIDIA's driver reported. ``at`` is none where the line has no clear time.

    ``gpu`` is the PCI address without its function, as in ``0000:3b:00``.
    """

    code: int
    gpu: str
    at: datetime | None
    said: str = ""


def telling(text: str) -> list[str]:
    """The lines of interest, the newest last; their number and length are bounded."""
    found = [line[:_LONGEST_LINE] for line in text.splitlines() if _TELLING.search(line)]
    return found[-MOST_LINES:]


def has_times(text: str) -> bool:
    """Whether any line begins with a time that can be understood."""
    return any(_time(line) is not None for line in text.splitlines())


def xids(lines: Iterable[str]) -> Iterator[Xid]:
    for line in lines:
        found = _XID.search(line)
        if found is not None:
            gpu = address(found["gpu"])
            yield Xid(int(found["code"]), gpu, _time(line), found["said"].strip())


def address(text: str) -> str:
    """A PCI address in one spelling: ``00000000:3B:00.0`` is ``0000:3b:00``."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]:>04}:{rest.partition('.')[0]}"


def _time(line: str) -> datetime | None:
    """ISO 8601 with its offset, as `journalctl -o short-iso` and `dmesg --time-format iso` do."""
    found = _TIME.match(line)
    if found is None:
        return None
    whole, fraction, zone = found.groups()
    zone = "+00:00" if zone == "Z" else f"{zone[:3]}:{zone[-2:]}"
    try:
        moment = datetime.fromisoformat(f"{whole}.{(fraction or '0')[:6]:<06}{zone}")
    except ValueError:
        return None
    return moment.astimezone(UTC)
