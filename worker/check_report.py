"""What a check says: one line for a person, one object for a program, and an exit code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.engines.reading import EngineReading, EngineState
from fleet.verdicts import Verdict
from worker.commands.exits import Exit

_WELL = (Verdict.HEALTHY, Verdict.BUSY, Verdict.IDLE, Verdict.ASLEEP, Verdict.LOADING)
#: ``error`` of an engine is its own word that it died.
_PROVED = (Verdict.STUCK, Verdict.UNRESPONSIVE, Verdict.ERROR)
_PROVES_NOTHING = (
    *(Verdict.MISSING, Verdict.UNREADABLE, Verdict.UNPROVEN, Verdict.DEGRADED, Verdict.OVERDUE),
    *(Verdict.SUSPECT, Verdict.RESTARTED),
    # No engine is given these; they are of heartbeat records.
    *(Verdict.HUNG, Verdict.SILENT, Verdict.STALLED, Verdict.SKEWED),
)

EXITS: dict[Verdict, Exit] = {
    **dict.fromkeys(_WELL, Exit.DONE),
    **dict.fromkeys(_PROVED, Exit.NO),
    **dict.fromkeys(_PROVES_NOTHING, Exit.UNREACHED),
}


def exit_of(verdict: Verdict, *, liveness: bool) -> Exit:
    """``liveness``: for what restarts on a failure, so that only what is proved may be one."""
    code = EXITS[verdict]
    return Exit.DONE if liveness and code is not Exit.NO else code


@dataclass(frozen=True)
class Report:
    """``moved`` has, by engine, the witnesses that moved during the check. ``seconds`` it took."""

    verdict: Verdict
    why: str
    engine: EngineReading | None
    moved: Mapping[str, Sequence[str]]
    requests_sent: int
    readings: int
    seconds: float

    def line(self) -> str:
        moved = sorted({name for names in self.moved.values() for name in names})
        parts = [f"moved: {', '.join(moved)}"] if moved else []
        sent = many(self.requests_sent, "request") if self.requests_sent else "no request"
        parts.append(f"{many(self.readings, 'reading')} in {self.seconds:.1f} s, {sent} sent")
        return printable(f"{self.verdict}: {self.why} [{'; '.join(parts)}]")

    def document(self) -> dict[str, Any]:
        return {
            "verdict": str(self.verdict),
            "why": printable(self.why),
            "engine": self.engine.profile if self.engine is not None else None,
            "engines": [self._engine(each) for each in self._engines],
            "requests_sent": self.requests_sent,
            "readings": self.readings,
            "seconds": round(self.seconds, 2),
        }

    @property
    def _engines(self) -> tuple[EngineState, ...]:
        return self.engine.engines if self.engine is not None else ()

    def _engine(self, state: EngineState) -> dict[str, Any]:
        return {
            "label": state.label,
            "running": state.running,
            "waiting": state.waiting,
            "steps": state.steps,
            "asleep": state.asleep,
            "witnesses": dict(state.witnesses),
            "moved": list(self.moved.get(state.label, ())),
        }


def many(count: int, noun: str) -> str:
    """As in ``fleet.details``, which is not loaded here: it knows of every message."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def moved(before: EngineReading | None, now: EngineReading | None) -> dict[str, set[str]]:
    """By engine, the witnesses that differ between two looks."""
    if before is None or now is None:
        return {}
    then = {each.label: each.witnesses for each in before.engines}
    return {
        each.label: {
            name for name, value in each.witnesses.items() if then[each.label].get(name) != value
        }
        for each in now.engines
        if each.label in then
    }


def printable(text: str) -> str:
    """A server's own words are shown, and must not steer a terminal."""
    return "".join(each if each.isprintable() else " " for each in text)
