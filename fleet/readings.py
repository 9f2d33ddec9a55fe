"""What was seen of a server, before anything is concluded from it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.durations import brief
from fleet.engines.reading import EngineReading
from fleet.limits import check_lengths


class ReadStatus(StrEnum):
    OK = "ok"
    MISSING = "missing"
    UNREADABLE = "unreadable"


class WorkState(StrEnum):
    """The worker's own word for what it does, mapped to the few that matter here."""

    PROCESSING = "processing"
    IDLE = "idle"
    ERROR = "error"
    LOADING = "loading"
    OTHER = "other"


@dataclass(frozen=True)
class Reading:
    """One look at a server: its heartbeat record, or the page of its engine, which has ``engine``.

    ``at`` is the observer's clock; ``heartbeat`` is the worker's. ``process`` is whatever names the
    worker's process in its record (a start time, a PID), opaque. ``progress`` is opaque too: only a
    change of it means something.
    """

    server: str
    at: datetime
    status: ReadStatus = ReadStatus.OK
    state: WorkState = WorkState.OTHER
    word: str = ""
    heartbeat: datetime | None = None
    progress: str | None = None
    job: str | None = None
    process: str | None = None
    detail: str = ""
    engine: EngineReading | None = None

    def __post_init__(self) -> None:
        check_lengths(self, word=40, progress=64, job=80, process=64, detail=300)
        for at in (self.at, self.heartbeat):
            if at is not None and at.tzinfo is None:
                raise ValueError("a time of a reading has no time zone")

    def age(self) -> float | None:
        """Seconds between the heartbeat (the worker's clock) and the reading (the observer's)."""
        return None if self.heartbeat is None else (self.at - self.heartbeat).total_seconds()

    def brief(self) -> str:
        """The reading in one phrase, for timelines and alerts."""
        if self.status is not ReadStatus.OK:
            return f"{self.status}: {self.detail}" if self.detail else str(self.status)
        if self.engine is not None:
            return self.engine.numbers() or self.detail
        job = f", job {self.job}" if self.job else ""
        return f"state {self.word or self.state}, {_beat(self.age())}{job}"


def _beat(age: float | None) -> str:
    if age is None:
        return "no heartbeat"
    span = brief(timedelta(seconds=abs(age)))
    return f"heartbeat {span} old" if age > -1 else f"heartbeat {span} in the future"


def missing(server: str, at: datetime, detail: str) -> Reading:
    return Reading(server=server, at=at, status=ReadStatus.MISSING, detail=detail[:300])


def unreadable(server: str, at: datetime, detail: str) -> Reading:
    return Reading(server=server, at=at, status=ReadStatus.UNREADABLE, detail=detail[:300])
