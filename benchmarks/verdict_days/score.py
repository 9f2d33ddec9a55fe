"""Every check on the same days, and what became of it."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.verdict_days import checks
from benchmarks.verdict_days.days import HOUR, Day
from benchmarks.verdict_days.eyes import is_known
from benchmarks.verdict_days.server import Truth
from benchmarks.verdict_days.steady import Steady
from benchmarks.verdict_days.world import World


class Check(Protocol):
    def start(self, world: World) -> None:
        """Begin to watch the world's server."""


STEADY = "steady"
CHECKS: Mapping[str, Check | None] = {
    "chat request, 45 s, five failures": checks.CHAT_45,
    "chat request, 10 s, one failure": checks.CHAT_10,
    "/health, Kubernetes defaults": checks.HEALTH,
    "output tokens as progress, 120 s": checks.OUTPUT_TOKENS,
    "step counter alone, 120 s": checks.STEP_COUNTER,
    "a count of 500s": checks.ERRORS,
    STEADY: None,
}


@dataclass
class Score:
    """What a check did. ``days`` are server-days; seconds run from the fault to the order."""

    days: float = 0.0
    hangs: int = 0
    false_restarts: int = 0
    missed_hangs: int = 0
    requests: int = 0
    requests_to_busy: int = 0
    despite_progress: int = 0
    detected: list[float] = field(default_factory=list)
    proved: list[float] = field(default_factory=list)

    def add(self, truth: Truth, hours: float) -> None:
        self.days += hours / 24
        self.hangs += truth.hangs
        self.false_restarts += truth.false_restarts
        self.missed_hangs += truth.missed
        self.requests += truth.requests
        self.requests_to_busy += truth.to_busy
        self.despite_progress += truth.despite_progress
        self.detected += truth.detected
        self.proved += truth.proved

    def join(self, other: "Score") -> None:
        self.days += other.days
        self.hangs += other.hangs
        self.false_restarts += other.false_restarts
        self.missed_hangs += other.missed_hangs
        self.requests += other.requests
        self.requests_to_busy += other.requests_to_busy
        self.despite_progress += other.despite_progress
        self.detected += other.detected
        self.proved += other.proved

    def span(self) -> str:
        """The middle and the longest time from a fault to the order, in seconds."""
        if not self.detected:
            return "-"
        return f"{_middle(self.detected)} (at most {max(self.detected):.0f})"

    def brief(self) -> str:
        """What went wrong, in a few characters."""
        wrong = [f"{self.false_restarts} false"] if self.false_restarts else []
        wrong += [f"{self.missed_hangs} missed"] if self.missed_hangs else []
        return ", ".join(wrong) or (f"{_middle(self.detected)} s" if self.detected else "-")

    def figures(self) -> dict[str, object]:
        figures: dict[str, object] = {
            "server_days": round(self.days, 1),
            "hangs": self.hangs,
            "false_restarts": self.false_restarts,
            "missed_hangs": self.missed_hangs,
            "requests_sent": self.requests,
            "requests_to_busy": self.requests_to_busy,
            "seconds_to_detect": _middle(self.detected),
            "seconds_to_detect_most": round(max(self.detected)) if self.detected else None,
        }
        if self.proved:
            figures["seconds_to_proof"] = _middle(self.proved)
        if self.proved or self.despite_progress:
            figures["requests_despite_progress"] = self.despite_progress
        return figures


def _middle(spans: list[float]) -> int | None:
    return round(statistics.median(spans)) if spans else None


def live(day: Day, name: str) -> Truth:
    """One day under one check."""
    world = World(day.build, day.script)
    check = CHECKS[name] or Steady(day.load_limit)
    check.start(world)
    world.run(day.hours * HOUR)
    return world.server.truth


def is_judged(day: Day) -> bool:
    """Whether steady has a profile for the day's engine."""
    return is_known(day.build.kind)


def compare(days: Iterable[Day]) -> dict[str, dict[str, Score]]:
    """Scores by check and by group of days."""
    scores: dict[str, dict[str, Score]] = {name: {} for name in CHECKS}
    for day in days:
        for name, groups in scores.items():
            groups.setdefault(day.group, Score()).add(live(day, name), day.hours)
    return scores


def total(groups: Mapping[str, Score]) -> Score:
    """One score for all groups of a check."""
    whole = Score()
    for each in groups.values():
        whole.join(each)
    return whole


def merge(parts: Iterable[Mapping[str, Mapping[str, Score]]]) -> dict[str, dict[str, Score]]:
    """The scores of several shares of all days together."""
    whole: dict[str, dict[str, Score]] = {name: {} for name in CHECKS}
    for part in parts:
        for name, groups in part.items():
            for group, score in groups.items():
                whole[name].setdefault(group, Score()).join(score)
    return whole
