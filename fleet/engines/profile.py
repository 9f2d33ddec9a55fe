"""What a profile of an engine says: which series of its page mean what. Profiles are data."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Series:
    """One thing that a page says, under the first of its ``names`` that is there.

    ``where`` are labels that it must carry. The same series twice, as tensor-parallel ranks write
    it, is one: the highest value counts.
    """

    names: tuple[str, ...]
    where: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Witness:
    """A series that moves only while the engine works, called ``name`` in readings."""

    name: str
    series: Series


@dataclass(frozen=True)
class Profile:
    """How one engine is read.

    ``engine_labels`` tell the engines of one page apart; each is judged by itself. ``in_flight``
    and ``waiting`` are added up for each of them. ``steps`` counts work since the start: where it
    falls, the engine was restarted. ``started`` is of the whole process and carries no labels.
    ``awake`` is 0 where the engine sleeps. Witnesses that are written less often than every step
    need a longer ``window`` between two looks before anything is said to stand still.
    """

    name: str
    engine_labels: tuple[str, ...]
    in_flight: tuple[Series, ...]
    waiting: tuple[Series, ...]
    witnesses: tuple[Witness, ...]
    steps: Series
    started: Series
    awake: Series | None = None
    window: timedelta = timedelta(0)
