"""What was seen of a server, before anything is concluded from it."""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from fleet.durations import brief
from fleet.engines.reading import EngineReading


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


class Reading(BaseModel):
    """One look at a server: its heartbeat record, or the page of its engine, which has ``engine``.

    ``at`` is the observer's clock; ``heartbeat`` is the worker's. ``process`` is whatever names the
    worker's process in its record (a start time, a PID), opaque. ``progress`` is opaque too: only a
    change of it means something.
    """

    model_config = ConfigDict(frozen=True)

    server: str
    at: AwareDatetime
    status: ReadStatus = ReadStatus.OK
    state: WorkState = WorkState.OTHER
    word: str = Field(default="", max_length=40)
    heartbeat: AwareDatetime | None = None
    progress: str | None = Field(default=None, max_length=64)
    job: str | None = Field(default=None, max_length=80)
    process: str | None = Field(default=None, max_length=64)
    detail: str = Field(default="", max_length=300)
    engine: EngineReading | None = None

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
