"""What passes to and from ``ask/<server>``, the one short request that an engine may be sent."""

from dataclasses import dataclass

from fleet.engines.reading import EngineReading


@dataclass(frozen=True)
class AskRequest:
    """``since`` is the last look: what has moved from it is not asked. ``suspected`` engines are
    asked although their gauges say that work is in flight: of several those in ``ranks``, which
    stood still while others moved, or did not answer while they were idle.
    """

    server: str
    since: EngineReading | None = None
    suspected: bool = False
    ranks: tuple[str, ...] = ()
