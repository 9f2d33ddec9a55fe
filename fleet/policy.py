"""Thresholds, limits and modes: how patient steady is with a server, and what it may do to it."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fleet.durations import Duration, show
from fleet.verdicts import Verdict

STRICT = ConfigDict(extra="forbid", frozen=True)


def _seconds(n: int) -> timedelta:
    return timedelta(seconds=n)


def _minutes(n: int) -> timedelta:
    return timedelta(minutes=n)


class Mode(StrEnum):
    """How far a remediation may go by itself.

    ``act`` restarts; ``approve`` waits for a person's signal; ``dry_run`` does everything but the
    command; ``alert_only`` tells and never prepares.
    """

    ACT = "act"
    APPROVE = "approve"
    DRY_RUN = "dry_run"
    ALERT_ONLY = "alert_only"


class RollingBudget(BaseModel):
    """At most ``limit`` restarts in any stretch of ``window``, over every path that restarts."""

    model_config = STRICT

    limit: int = Field(default=3, ge=0, le=100)
    window: Duration = timedelta(hours=24)

    @field_validator("window")
    @classmethod
    def _bounded(cls, window: timedelta) -> timedelta:
        if not _minutes(1) / 60 <= window <= timedelta(days=7):
            raise ValueError(f"{show(window)} is out of range: choose from 1s to 7d")
        return window


class DailyBudget(BaseModel):
    """At most ``limit`` restarts in a calendar day of the time zone ``per_day_in``."""

    model_config = STRICT

    limit: int = Field(default=3, ge=0, le=100)
    per_day_in: str

    @field_validator("per_day_in")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as problem:
            raise ValueError(
                f"{zone!r} is no time zone: write an IANA name, like Europe/Berlin"
            ) from problem
        return zone


Budget = RollingBudget | DailyBudget


class Policy(BaseModel):
    """The thresholds of one server; each has a default, and each can be set for all or for one."""

    model_config = STRICT

    mode: Mode = Mode.ACT
    expected_off: bool = False

    stale_after: Duration = _seconds(120)
    observations: Annotated[int, Field(ge=2, le=20)] = 2
    skew_tolerance: Duration = _seconds(30)
    stalled_after: Duration | None = _minutes(30)
    reading_max_age: Duration = _seconds(60)
    load_limit: Duration = _minutes(15)

    persist_hung: Duration = _minutes(3)
    persist_error: Duration = _minutes(30)
    blind_limit: Duration = _minutes(60)

    cooldown: Duration = _minutes(10)
    verify_after: Duration = _minutes(10)
    budget: Budget = RollingBudget()
    retry_delays: Annotated[tuple[Duration, ...], Field(min_length=1, max_length=20)] = (
        _seconds(0),
        _minutes(5),
        _minutes(15),
        _minutes(15),
    )
    approval_timeout: Duration = timedelta(hours=24)
    escalated_reads: Annotated[tuple[Duration, ...], Field(min_length=1, max_length=20)] = (
        _minutes(5),
        _minutes(15),
        _minutes(60),
    )

    @model_validator(mode="after")
    def _reachable(self) -> "Policy":
        spacing = max(self.cooldown, self.verify_after)
        if (
            isinstance(self.budget, RollingBudget)
            and self.budget.limit > 0
            and spacing * self.budget.limit >= self.budget.window
        ):
            raise ValueError(
                f"budget.limit {self.budget.limit} can never be reached: restarts are at least"
                f" {show(spacing)} apart (cooldown, verify_after), so no more than that fit into"
                f" the window of {show(self.budget.window)}; make the window longer or the limit"
                " smaller"
            )
        if self.load_limit < self.cooldown:
            raise ValueError(
                f"load_limit {show(self.load_limit)} can never be reached: nothing is judged within"
                f" the cooldown of {show(self.cooldown)}; make load_limit at least that long"
            )
        if self.persist_error < self.persist_hung:
            raise ValueError(
                f"persist_error {show(self.persist_error)} is shorter than persist_hung"
                f" {show(self.persist_hung)}: a worker that still speaks gets more patience"
                " than one that does not"
            )
        for name in ("stale_after", "reading_max_age", "cooldown", "verify_after", "load_limit"):
            if getattr(self, name) <= timedelta(0):
                raise ValueError(f"{name} must be longer than 0s")
        return self

    def persistence(self, verdict: Verdict) -> timedelta:
        """How long an actionable verdict must hold, from its first observation, before the act."""
        return self.persist_error if verdict is Verdict.ERROR else self.persist_hung

    @property
    def tries(self) -> int:
        """How many restarts that could not be carried out an incident may see."""
        return len(self.retry_delays) + 1


#: What reads a heartbeat's time: seen in the number itself, or fixed by the operator.
TimeFormat = Literal["auto", "seconds", "milliseconds", "iso8601"]
