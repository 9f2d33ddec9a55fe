"""Who is sent a short request, and what the looks beside it and after it make of its answer."""

from collections import Counter
from dataclasses import replace

from fleet.contracts.engine import AskRequest
from fleet.engines.profiles import profile_named
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.engines.sighting import Change, Sighting, compare
from fleet.readings import Reading

#: How often a request for one token may itself move a series.
_OWN = 1

#: Of which every version was once believed to take names; readings of then say nothing of it.
_ONCE_NAMED = frozenset({"vllm", "nim/vllm"})

#: Whichever engine of a page takes the request.
_ANY = EngineState()


def whom(
    reading: Reading, request: AskRequest, *, probes: bool
) -> tuple[EngineState, ...] | Reading:
    """The engines to be asked, or the reading with what is known, where none is.

    ``probes``: whether an engine may be asked of which nothing is suspected.
    """
    engine = reading.engine
    if engine is None or engine.page not in (Page.OK, Page.LISTED) or engine.asleep:
        return reading
    if engine.page is Page.LISTED:
        return (_ANY,) if request.suspected or probes else reading
    last = Sighting.of(request.since) if request.since is not None else None
    change = compare(engine, last)
    if change.restarted:
        return reading
    if request.suspected:
        meant = _named(engine, change, request.ranks) if request.ranks else change.still
        return meant or _moves(reading, engine, change) or _by_name(engine, engine.engines)
    resting = at_rest(engine, change)
    if not resting:
        return _moves(reading, engine, change) or reading
    return _by_name(engine, resting) if probes else reading


def at_rest(engine: EngineReading, change: Change) -> tuple[EngineState, ...]:
    """The engines that a probe asks: idle, and not moved since the last one.

    Beside engines that are at work only one that a request is sure to reach by its name: one that
    works is never sent any.
    """
    if engine.in_flight and not is_named(engine):
        return ()
    moved = {each.label for each in change.moved}
    return tuple(
        each
        for each in engine.engines
        if not (each.in_flight or each.asleep or each.label in moved)
        and (not engine.in_flight or each.label.isdecimal())
    )


def is_named(engine: EngineReading) -> bool:
    """Whether a request is sure to reach the engine of several that it names."""
    return engine.profile in _ONCE_NAMED if engine.named is None else engine.named


def left_of(
    engines: tuple[EngineState, ...], before: EngineReading, reading: Reading
) -> tuple[EngineState, ...]:
    """Those of the engines that are still to be asked, after one of them has answered.

    An engine in doubt that has moved meanwhile, by whatever, does not hang, and is asked no more.
    Work may have come in: an idle engine that has moved since is none that froze, and where a name
    may be passed over nobody is asked beside one that works.
    """
    now = reading.engine
    if now is None or now.page is not Page.OK or before.page is not Page.OK:
        return engines
    change = compare(now, Sighting.of(before))
    moved = {each.label for each in change.moved}
    if is_named(before):
        rest = {each.label for each in at_rest(now, change)}
    else:
        came = now.in_flight and not before.in_flight
        rest = set() if came else {each.label for each in engines}
    return tuple(
        each
        for each in engines
        if (each.label not in moved if each.in_flight else each.label in rest)
    )


def _named(
    engine: EngineReading, change: Change, labels: tuple[str, ...]
) -> tuple[EngineState, ...]:
    """The engines that are in doubt, but those that have moved."""
    unmoved = (each for each in engine.engines if each not in change.moved)
    return tuple(each for each in unmoved if each.label in labels)


def _by_name(engine: EngineReading, meant: tuple[EngineState, ...]) -> tuple[EngineState, ...]:
    """Those that are meant where a request can name them, else whichever takes one."""
    is_one = len(engine.engines) == 1
    return meant if is_one or profile_named(engine.profile).ranks else (_ANY,)


def _moves(reading: Reading, engine: EngineReading, change: Change) -> Reading | None:
    moves = _works(engine, change)
    return with_answer(reading, moves) if moves is not None else None


def _works(engine: EngineReading, change: Change) -> Answer | None:
    if engine.in_flight:
        return Answer(came=Came.BUSY, detail=engine.numbers()[:200])
    if change.known and len(change.moved) == len(engine.engines):
        return Answer(came=Came.MOVED, detail=engine.numbers()[:200])
    return None


def has_moved(reading: Reading, before: EngineReading, engine: EngineState) -> bool:
    """Whether the engine moved, or was started anew, since the look ``before``."""
    if reading.engine is None or reading.engine.page is not Page.OK:
        return False
    change = compare(reading.engine, Sighting.of(before))
    return bool(change.restarted) or any(each.label == engine.label for each in change.moved)


def rank(before: EngineReading, engine: EngineState) -> str:
    """The name of the engine that is meant, where the page has several."""
    return engine.label if len(before.engines) > 1 else ""


def checked(answer: Answer, reading: Reading, before: EngineReading, engine: EngineState) -> Answer:
    """An answer by which the engine that was meant did not move came from another one.

    Of an idle engine that says nothing where the version may not know that engines have names.
    """
    is_one_of_many = len(before.engines) > 1 and engine != _ANY
    if answer.came is not Came.GIVEN or not is_one_of_many or has_moved(reading, before, engine):
        return answer
    if not engine.in_flight and not is_named(before):
        return answer
    return replace(answer, came=Came.ELSEWHERE)


class Watched:
    """An engine, looked at again and again while it is asked.

    The request itself makes an engine move: its prompt is read in one step, for one token that step
    is followed by the answer, and what is held for it is let go. Not every series is written at the
    same moment, so its own step may be seen in several looks; but in each series only once, and of
    a gauge its way back. What moves in one series for a second time is the work of others.
    """

    def __init__(self, before: EngineReading, engine: EngineState) -> None:
        self._first = self._last = before
        self._engine = engine
        self._moves: Counter[tuple[str, str]] = Counter()
        self._is_sure = False

    def saw(self, reading: Reading) -> None:
        engine = reading.engine
        if engine is None or engine.page is not Page.OK:
            return
        change = compare(engine, Sighting.of(self._last))
        self._is_sure |= bool(change.restarted) or self._is_queue_counted_anew(engine)
        first, last = _witnesses(self._first), _witnesses(self._last)
        is_any = self._engine.label == _ANY.label
        for each in engine.telling if is_any else engine.engines:
            if not is_any and each.label != self._engine.label:
                continue
            for name, value in each.witnesses.items():
                at = (each.label, name)
                self._moves[at] += value not in (last.get(at), first.get(at))
        self._last = engine

    def _is_queue_counted_anew(self, engine: EngineReading) -> bool:
        """Its queue is a witness while requests run: a step of theirs counts who waits, and so the
        very request that was sent. A step of that request's own finds it in the queue no more.
        """
        queues = [
            each.witnesses.get("queue")
            for seen in (self._last, engine)
            for each in seen.engines
            if each.label == self._engine.label
        ]
        match queues:
            case [float() | int() as was, float() | int() as now]:
                return now > was
        return False

    @property
    def others_moved(self) -> bool:
        return self._is_sure or any(moves > _OWN for moves in self._moves.values())

    @property
    def may_be_own(self) -> bool:
        return self._moves.total() > 0 and not self.others_moved


def _witnesses(seen: EngineReading) -> dict[tuple[str, str], float]:
    return {
        (each.label, name): value for each in seen.engines for name, value in each.witnesses.items()
    }


def concluded(reading: Reading, watched: Watched, answer: Answer) -> Reading:
    """The last look with what the requests came to; without, where it shows no page."""
    if reading.engine is None or reading.engine.page not in (Page.OK, Page.LISTED):
        return reading
    if answer.came is Came.NONE and watched.others_moved:
        answer = replace(answer, came=Came.MOVED)
    return with_answer(reading, answer)


def with_answer(reading: Reading, answer: Answer) -> Reading:
    assert reading.engine is not None
    engine = replace(reading.engine, answer=answer)
    return replace(reading, engine=engine)
