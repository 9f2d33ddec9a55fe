"""What a profile of an engine says: which series of its page mean what. Profiles are data."""

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property


@dataclass(frozen=True)
class Series:
    """One thing that a page says, under the first of its ``names`` that is there.

    ``where`` are labels, each with the values that it may have; a label that is missing is empty.
    The same series twice, as tensor-parallel ranks write it, is one: the highest value counts. Of
    the labels in ``added`` each value is a part, and the parts are added up. The series in ``less``
    are taken off, and what is left is never below zero.
    """

    names: tuple[str, ...]
    where: tuple[tuple[str, ...], ...] = ()
    added: tuple[str, ...] = ()
    less: tuple[str, ...] = ()


@dataclass(frozen=True)
class Witness:
    """A series that moves only while the engine works, called ``name`` in readings.

    One that ``counts`` falls only where the engine was started anew. One that is written more
    rarely than the others, when a request ends say, has a ``window`` of its own: where a page has
    nothing better, so long must it stand still before that says anything.
    """

    name: str
    series: Series
    counts: bool = True
    window: timedelta = timedelta(0)


@dataclass(frozen=True)
class Profile:
    """How one engine is read.

    ``engine_labels`` tell the engines of one page apart; each is judged by itself. ``in_flight``
    and ``waiting`` are added up for each of them. ``open`` are requests at the front end, or calls
    that have not returned, of the whole page: they count where the engines' own gauges, which are
    written after a step, all show nothing. ``steps`` is shown to people.

    ``started`` is whatever changes when the process is started anew, best first: its start, stamps
    of creation, a marker of the engine's own. ``start_header`` is a header of the page's answer
    that does the same. ``counters`` are no progress, and like the witnesses that count say by a
    fall that the engine was started anew.

    ``queue_by_steps``: nothing but the end of a step writes its gauges. Then a queue of another
    length is the work of a step, also while every other witness stands still; but only where
    requests run, since an engine that admits nobody counts who waits all the same.

    ``by_ends``: nothing on its page is written before a request ends. Where all that run are long,
    and the server is full, no answer proves as little as without counters.

    ``batch`` is the most tokens of prompts that one step of the engine's own default reads. With
    the counters ``prompt`` and ``prompt_time`` it says how long such a step may take.

    ``asleep_at`` is a small page, and the key of it that is true where its model is put away: asked
    first, since a look at the metrics would load it. ``awake`` is 0 where the engine sleeps;
    ``paused`` are requests that somebody holds back, and where none runs beside them the engine is
    paused. ``window`` is how long all of its witnesses may stand still while it works, since they
    are written less often than every step.

    ``ranks``: a request can name the engine of the page that is meant. Where it can't, an idle
    server is asked as a whole. Not every version takes that name: those do of which every line of
    ``ranks_since`` has one on the page.

    ``path`` is where the page lies under the base URL; without ``metrics`` there is none at all.
    ``marks`` begin lines of its page and of no other engine's. A profile with ``among`` is one of
    those: whichever the page is recognised as.
    """

    name: str
    engine_labels: tuple[str, ...] = ()
    in_flight: tuple[Series, ...] = ()
    waiting: tuple[Series, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    steps: Series | None = None
    started: Series | None = None
    awake: Series | None = None
    paused: Series | None = None
    open: tuple[Series, ...] = ()
    counters: tuple[Witness, ...] = ()
    queue_by_steps: bool = False
    by_ends: bool = False
    batch: int = 0
    asleep_at: tuple[str, str] | None = None
    window: timedelta = timedelta(0)
    ranks: bool = False
    ranks_since: tuple[tuple[str, ...], ...] = ()
    path: str = "/metrics"
    metrics: bool = True
    start_header: str | None = None
    marks: tuple[str, ...] = ()
    among: tuple["Profile", ...] = ()

    def window_of(self, witnesses: frozenset[str]) -> timedelta:
        """How long these witnesses must stand still before that says anything."""
        own = [each.window for each in self.witnesses if each.name in witnesses]
        return max(self.window, min(own, default=timedelta(0)))

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that is looked for on a page; the rest of it is not read."""
        alone = (self.steps, self.started, self.awake, self.paused)
        lists = (*self.in_flight, *self.waiting, *self.open)
        moving = (each.series for each in (*self.witnesses, *self.counters))
        series = [each for each in (*alone, *lists, *moving) if each is not None]
        said = {name for each in series for name in (*each.names, *each.less)}
        return frozenset(said.union(*self.ranks_since))

    @cached_property
    def counting(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of what never falls while the engine runs: of each engine, and of the page."""
        own = tuple(each.name for each in self.witnesses if each.counts)
        return own, tuple(each.name for each in self.counters)

    @property
    def falling(self) -> tuple[Witness, ...]:
        """What never falls while the engine runs."""
        return (*(each for each in self.witnesses if each.counts), *self.counters)


def named(prefixes: tuple[str, ...], *stems: str) -> tuple[str, ...]:
    """The names of one series, under each of the prefixes that it is exported with."""
    return tuple(prefix + stem for stem in stems for prefix in prefixes)
