"""Thresholds, limits and modes: how patient steady is with a server, and what it may do to it."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from fleet.duration_fields import Duration, within
from fleet.durations import parse, show
from fleet.gpu_faults import DEFAULT_STATES, DEFAULT_XIDS, GpuState
from fleet.refusal import Refusal, raise_all, refusal
from fleet.verdicts import Verdict

#: What stands in the fleet file may be a secret put in the wrong place, so errors never show it.
STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

_LONGEST_DAY = timedelta(hours=25)

#: So many looks in a row may be asked for at most before a bad verdict is confirmed.
MOST_OBSERVATIONS = 20

#: A wait of no length would turn a safeguard off without saying so.
Positive = Annotated[Duration, within("1ms", "366d")]

Delays = Annotated[tuple[Duration, ...], Field(min_length=1, max_length=20)]

XidCode = Annotated[int, Field(ge=1, le=9999, strict=True)]


def off(value: object) -> object:
    return None if value == "off" else value


#: TOML has no null, so ``"off"`` is how a file switches such a threshold off.
Switchable = Annotated[Positive | None, BeforeValidator(off)]


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

    limit: int = Field(default=3, ge=0, le=100, strict=True)
    window: Annotated[Duration, within("1s", "7d")] = parse("24h")


class HostBudget(RollingBudget):
    """The same over all servers of one machine: twice what a single one may have, by default."""

    limit: int = Field(default=6, ge=0, le=100, strict=True)


class DailyBudget(BaseModel):
    """At most ``limit`` restarts in a calendar day of the time zone ``per_day_in``."""

    model_config = STRICT

    limit: int = Field(default=3, ge=0, le=100, strict=True)
    per_day_in: str

    @field_validator("per_day_in")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as problem:
            raise refusal(
                f"{zone!r} is no time zone", 'write an IANA name, like "Europe/Berlin"'
            ) from problem
        return zone


def _sort_of_budget(value: Any) -> str:
    daily = "per_day_in" in value if isinstance(value, Mapping) else hasattr(value, "per_day_in")
    return "daily" if daily else "rolling"


Budget = Annotated[
    Annotated[RollingBudget, Tag("rolling")] | Annotated[DailyBudget, Tag("daily")],
    Discriminator(_sort_of_budget),
]


class Thresholds(BaseModel):
    """Every threshold with its default, each good by itself; ``Policy`` asks if they fit together.

    A fleet file sets any of them for all servers in ``[defaults]`` and for one in its ``policy``.
    """

    model_config = STRICT

    mode: Mode = Mode.ACT
    expected_off: bool = False
    restart_unproven: bool = Field(default=False, strict=True)

    stale_after: Positive = parse("120s")
    observations: int = Field(default=2, ge=2, le=MOST_OBSERVATIONS, strict=True)
    skew_tolerance: Duration = parse("30s")
    stalled_after: Switchable = parse("30m")
    reading_max_age: Positive = parse("60s")
    load_limit: Positive = parse("15m")
    confirm_wait: Positive = parse("15s")

    persist_hung: Duration = parse("3m")
    persist_error: Duration = parse("30m")
    blind_limit: Positive = parse("60m")

    cooldown: Positive = parse("10m")
    verify_after: Positive = parse("10m")
    budget: Budget = Field(default=RollingBudget(), examples=['{ limit = 3, window = "24h" }'])
    retry_delays: Delays = (parse("0s"), parse("5m"), parse("15m"), parse("15m"))
    approval_timeout: Positive = parse("24h")
    escalated_reads: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=20)] = (
        parse("5m"),
        parse("15m"),
        parse("60m"),
    )

    remind_after: Switchable = parse("24h")
    unattended_after: Positive = parse("1h")

    incurable_xids: Annotated[tuple[XidCode, ...], Field(max_length=200)] = DEFAULT_XIDS
    incurable_gpu_states: Annotated[tuple[GpuState, ...], Field(max_length=20)] = DEFAULT_STATES


class Policy(Thresholds):
    """The thresholds of one server, which fit together."""

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        raise_all("Policy", [*self._idle_budget(), *self._idle_load_limit()])
        return self

    def _idle_budget(self) -> Iterator[Refusal]:
        """A budget that never refuses anything guards nothing."""
        spacing = max(self.cooldown, self.verify_after)
        rolling = isinstance(self.budget, RollingBudget)
        window = self.budget.window if isinstance(self.budget, RollingBudget) else _LONGEST_DAY
        if self.budget.limit > 0 and spacing * self.budget.limit >= window:
            stretch = f"the window of {show(window)}" if rolling else "a day"
            yield Refusal(
                ("budget", "limit"),
                f"{self.budget.limit} can never be reached, since restarts are at least"
                f" {show(spacing)} apart (cooldown, verify_after) and no more than that fit into"
                f" {stretch}",
                "make the limit smaller" + (" or the window longer" if rolling else ""),
            )

    def _idle_load_limit(self) -> Iterator[Refusal]:
        if self.load_limit < self.cooldown:
            yield Refusal(
                ("load_limit",),
                f"{show(self.load_limit)} can never be reached, since nothing is judged within the"
                f" cooldown of {show(self.cooldown)}",
                f'make it at least "{show(self.cooldown)}"',
            )

    def persistence(self, verdict: Verdict) -> timedelta:
        """How long an actionable verdict must hold, from its first observation, before the act."""
        return self.persist_error if verdict is Verdict.ERROR else self.persist_hung

    @property
    def quiet_after_doubt(self) -> timedelta:
        """How long a server is left alone after a suspicion of it was not confirmed."""
        return 20 * self.confirm_wait

    @property
    def tries(self) -> int:
        """How many restarts that could not be carried out an incident may see."""
        return len(self.retry_delays) + 1


def _fraction(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise refusal(
            f"{value!r} is no share" if isinstance(value, int | float) else "is no share",
            "write a fraction between 0 and 1, like 0.4 for 40 %",
        )
    return value


Share = Annotated[float, BeforeValidator(_fraction)]


class Storm(BaseModel):
    """What holds restarts back in the whole fleet, whatever each server's own budget allows.

    ``restarts_at_once`` is none where it follows from the size of the fleet. ``share`` of a shard
    is a fraction: where more than that, and at least ``at_least`` servers, turned bad within
    ``window``, what looks at them is the suspect.
    """

    model_config = STRICT

    restarts_at_once: int | None = Field(default=None, ge=1, le=1000, strict=True)
    share: Share = 0.4
    at_least: int = Field(default=3, ge=2, le=2000, strict=True)
    window: Positive = parse("10m")
    cooldown: Positive = parse("10m")
    page_after: Positive = parse("30m")

    def at_once(self, servers: int) -> int:
        """How many restarts may run side by side in a fleet of so many servers."""
        return self.restarts_at_once or default_at_once(servers)


def default_at_once(servers: int) -> int:
    """One for a fleet of up to five servers, else a fifth of them, rounded up."""
    return max(1, -(-servers // 5))


def normal(overrides: Mapping[str, object]) -> dict[str, object]:
    """Overrides in one spelling (``"180s"`` is ``"3m"``), so that equal ones compare equal.

    Raises:
        ValidationError: a key is unknown, or a value is no good for it; each at its path.
    """
    thresholds = Thresholds.model_validate(overrides)
    return thresholds.model_dump(mode="json", exclude_unset=True)


def merged(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides over defaults, key by key; a budget of the other sort drops what it can't use."""
    budget = {**defaults.get("budget", {}), **overrides.get("budget", {})}
    if "window" in overrides.get("budget", {}):
        budget.pop("per_day_in", None)
    elif "per_day_in" in budget:
        budget.pop("window", None)
    return {**defaults, **overrides} | ({"budget": budget} if budget else {})


#: What reads a heartbeat's time: seen in the number itself, or fixed by the operator.
TimeFormat = Literal["auto", "seconds", "milliseconds", "iso8601"]
