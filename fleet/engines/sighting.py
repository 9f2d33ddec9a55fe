"""The last look at a server's engines, in so few characters that a whole shard's fit one payload.

Of what moves only a digest is kept: it is asked whether it is the same, and never by how much it
moved. What never falls while the engine runs is kept as a number, since it is asked whether it
fell: the step counter in full, every other counter to a part in two thousand.
"""

import base64
import hashlib
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self

from fleet.engines import codes
from fleet.engines.profiles import profile_named
from fleet.engines.reading import EngineReading, EngineState
from fleet.engines.windows import longest_window

#: Characters of a digest: two looks that differ pass for the same once in 16 million, or once in
#: 260,000 where a page has so many engines that longer ones would not fit.
_WIDE, _NARROW, _MANY = 4, 3, 8

_MOST_STEPS = (1 << 63) - 1
#: Counters that are kept for each engine; of more, only their totals over the page.
_MOST_COUNTERS = 24
#: Characters of a counter, and of how long an engine had stood still, in ticks.
_COUNTER, _STOOD, _TICK = 3, 2, timedelta(milliseconds=50)

_TEXT = re.compile(
    r"([\w-]{0,4})\.([0-9a-f]*)\.([0-9a-f]+)\.([0-9a-f]+)\.([\w-]*)(?:\.([\w-]*)\.([\w-]*))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Sighting:
    """``busy`` has a bit for each engine that had work in flight, in the order of ``marks``.

    ``counters`` are what never falls, by its ``size``, in an order that follows from the profile.
    ``stood`` is for how many ticks each engine had stood still already; empty where its page needs
    no window.
    """

    started: str
    steps: int | None
    busy: int
    marks: tuple[str, ...]
    counters: tuple[int, ...] = ()
    stood: tuple[int, ...] = ()

    @classmethod
    def of(cls, reading: EngineReading) -> Self:
        engines = reading.engines
        width = _width(len(engines))
        counted = [engine.steps for engine in engines if engine.steps is not None]
        return cls(
            started=_digest(reading.started)[:_WIDE] if reading.started is not None else "",
            steps=max(0, min(int(sum(counted)), _MOST_STEPS)) if counted else None,
            busy=sum([1 << at for at, engine in enumerate(engines) if _works(engine)]),
            marks=tuple([_digest(_essence(engine))[:width] for engine in engines]),
            counters=tuple([codes.size(value) for value in _counted(reading)]),
        )

    def encode(self) -> str:
        steps = f"{self.steps:x}" if self.steps is not None else ""
        seen = f"{self.started}.{steps}.{self.busy:x}.{len(self.marks):x}.{''.join(self.marks)}"
        counters = "".join([codes.written(each, _COUNTER) for each in self.counters])
        stood = "".join([codes.written(each, _STOOD) for each in self.stood])
        return f"{seen}.{counters}.{stood}" if counters or stood else seen

    @classmethod
    def decode(cls, text: str | None) -> Self | None:
        """The sighting; none where there is none, or another version wrote it otherwise."""
        parts = _TEXT.fullmatch(text or "")
        if parts is None:
            return None
        count = int(parts[4], 16)
        marks, counters, stood = parts[5], parts[6] or "", parts[7] or ""
        if len(marks) != count * _width(count) or len(stood) not in (0, count * _STOOD):
            return None
        return cls(
            started=parts[1],
            steps=int(parts[2], 16) if parts[2] else None,
            busy=int(parts[3], 16),
            marks=_cut(marks, _width(count)),
            counters=tuple([codes.read(each) for each in _cut(counters, _COUNTER)]),
            stood=tuple([codes.read(each) for each in _cut(stood, _STOOD)]),
        )


@dataclass(frozen=True)
class Change:
    """What happened between two looks. ``still`` are the engines that had work in flight at both
    and of which no witness moved; ``moved`` those of which one did. Neither knows of the first look
    or of one across a restart. ``stood`` is how long each engine had stood still by the first of
    the two, and none for one that does not. ``seen`` is the second look.
    """

    known: bool = False
    restarted: str = ""
    moved: tuple[EngineState, ...] = ()
    still: tuple[EngineState, ...] = ()
    stood: tuple[timedelta | None, ...] = ()
    seen: Sighting | None = None


def seen_after(now: EngineReading, change: Change, gap: timedelta) -> Sighting:
    """What is remembered of a look, ``gap`` after the one that it was compared with."""
    seen, stood = change.seen or Sighting.of(now), change.stood
    if not any(each is not None for each in stood) or not longest_window(now):
        return seen
    return replace(
        seen, stood=tuple(0 if each is None else (each + gap) // _TICK for each in stood)
    )


def compare(now: EngineReading, before: Sighting | None) -> Change:
    if before is None:
        return Change()
    seen = Sighting.of(now)
    if seen.started and before.started and seen.started != before.started:
        return Change(restarted="its process was started anew", seen=seen)
    if len(seen.marks) != len(before.marks):
        return Change(seen=seen)
    if seen.steps is not None and before.steps is not None and seen.steps < before.steps:
        fell = f"its step counter fell from {before.steps} to {seen.steps}"
        return Change(restarted=fell, seen=seen)
    if name := _fallen(now, seen, before):
        return Change(restarted=f"its counter {name} fell", seen=seen)
    pairs = list(zip(now.engines, seen.marks, before.marks, strict=True))
    is_still = [
        mark == was and _works(engine) and bool(before.busy >> at & 1)
        for at, (engine, mark, was) in enumerate(pairs)
    ]
    ages = before.stood or (0,) * len(pairs)
    return Change(
        known=True,
        moved=tuple([engine for engine, mark, was in pairs if mark != was]),
        still=tuple([engine for engine, is_ in zip(now.engines, is_still, strict=True) if is_]),
        stood=tuple(
            [age * _TICK if is_ else None for age, is_ in zip(ages, is_still, strict=True)]
        ),
        seen=seen,
    )


def _fallen(now: EngineReading, seen: Sighting, before: Sighting) -> str:
    """The first counter that is lower than it was; one that was or is not there says nothing."""
    if len(seen.counters) != len(before.counters):
        return ""
    if seen.counters == before.counters:
        return ""
    pairs = zip(seen.counters, before.counters, strict=True)
    fell = [at for at, (code, was) in enumerate(pairs) if 0 < code < was]
    return _names_of(now)[fell[0]] if fell else ""


def _counted(reading: EngineReading) -> list[float | None]:
    """What never falls, none where the page does not have it; ``_names_of`` has their names."""
    profile, engines = profile_named(reading.profile), reading.engines
    names, page = profile.counting
    if len(names) * len(engines) <= _MOST_COUNTERS:
        found = [engine.witnesses.get(name) for engine in engines for name in names]
    else:
        found = []
        for name in names:
            values = [each.witnesses[name] for each in engines if name in each.witnesses]
            found.append(sum(values) if values else None)
    return found + [reading.counters.get(name) for name in page]


def _names_of(reading: EngineReading) -> list[str]:
    names, page = profile_named(reading.profile).counting
    is_each = len(names) * len(reading.engines) <= _MOST_COUNTERS
    return [*names * (len(reading.engines) if is_each else 1), *page]


def _cut(text: str, width: int) -> tuple[str, ...]:
    return tuple([text[at : at + width] for at in range(0, len(text), width)])


def _works(engine: EngineState) -> bool:
    return engine.in_flight and not engine.asleep


def _width(count: int) -> int:
    return _WIDE if count <= _MANY else _NARROW


def _essence(engine: EngineState) -> str:
    moving = ",".join(
        [f"{name}={float(value)!r}" for name, value in sorted(engine.witnesses.items())]
    )
    return f"{engine.label}:{moving}"


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return base64.urlsafe_b64encode(raw[:12]).decode()
