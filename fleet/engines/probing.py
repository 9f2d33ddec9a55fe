"""Which engines a probe asks: those that are idle, and have not moved since the last one."""

from fleet.contracts.engine import AskRequest
from fleet.contracts.sweep import SweepReadings, SweepResult
from fleet.engines.asking import at_rest
from fleet.engines.reading import Page
from fleet.engines.sighting import Sighting, compare
from fleet.judge import Memory
from fleet.readings import Reading


def whom(seen: SweepReadings, before: SweepResult | None) -> list[AskRequest]:
    """A request for each engine that is to be asked."""
    known = before.servers if before is not None else {}
    return [
        AskRequest(server=reading.server, since=reading.engine)
        for reading in seen.readings
        if _shows_nothing(reading, known.get(reading.server))
    ]


def _shows_nothing(reading: Reading, before: Memory | None) -> bool:
    engine = reading.engine
    if engine is None or engine.asleep:
        return False
    if engine.page is not Page.OK:
        return engine.page is Page.LISTED
    last = Sighting.decode(before.engine) if before is not None else None
    return bool(at_rest(engine, compare(engine, last)))


def carried(result: SweepResult, before: SweepResult | None, kept: list[str]) -> SweepResult:
    """The result with what was known of the servers that this probe left alone."""
    known = before.servers if before is not None else {}
    left = {name: known[name] for name in kept if name in known and name not in result.servers}
    return result.model_copy(update={"servers": {**left, **result.servers}})
