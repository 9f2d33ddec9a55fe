"""The last look at a server's engines, in so few characters that a whole shard's fit one payload.

Of what moves only a digest is kept: it is asked whether it is the same, and never by how much it
moved. The step counter is kept as a number, since it is asked whether it fell.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Self

from fleet.engines.reading import EngineReading, EngineState

#: Characters of a digest: two looks that differ pass for the same once in 16 million, or once in
#: 260,000 where a page has so many engines that longer ones would not fit.
_WIDE, _NARROW, _MANY = 4, 3, 8

_TEXT = re.compile(r"([\w-]{0,4})\.([0-9a-f]*)\.([0-9a-f]+)\.([0-9a-f]+)\.([\w-]*)", re.ASCII)


@dataclass(frozen=True)
class Sighting:
    """``busy`` has a bit for each engine that had work in flight, in the order of ``marks``."""

    started: str
    steps: int | None
    busy: int
    marks: tuple[str, ...]

    @classmethod
    def of(cls, reading: EngineReading) -> Self:
        engines = reading.engines
        width = _width(len(engines))
        counted = [engine.steps for engine in engines if engine.steps is not None]
        return cls(
            started=_digest(reading.started)[:_WIDE] if reading.started is not None else "",
            steps=max(0, int(sum(counted))) if counted else None,
            busy=sum(1 << at for at, engine in enumerate(engines) if _works(engine)),
            marks=tuple(_digest(_essence(engine))[:width] for engine in engines),
        )

    def encode(self) -> str:
        steps = f"{self.steps:x}" if self.steps is not None else ""
        count = f"{len(self.marks):x}"
        return f"{self.started}.{steps}.{self.busy:x}.{count}.{''.join(self.marks)}"

    @classmethod
    def decode(cls, text: str | None) -> Self | None:
        """The sighting; none where there is none, or another version wrote it otherwise."""
        parts = _TEXT.fullmatch(text or "")
        if parts is None:
            return None
        count = int(parts[4], 16)
        width, marks = _width(count), parts[5]
        if len(marks) != count * width:
            return None
        return cls(
            started=parts[1],
            steps=int(parts[2], 16) if parts[2] else None,
            busy=int(parts[3], 16),
            marks=tuple(marks[at : at + width] for at in range(0, len(marks), width)),
        )


@dataclass(frozen=True)
class Change:
    """What happened between two looks. ``still`` are the engines that had work in flight at both
    and of which no witness moved; ``moved`` those of which one did. Neither knows of the first look
    or of one across a restart.
    """

    known: bool = False
    restarted: str = ""
    moved: tuple[EngineState, ...] = ()
    still: tuple[EngineState, ...] = ()


def compare(now: EngineReading, before: Sighting | None) -> Change:
    if before is None:
        return Change()
    seen = Sighting.of(now)
    if seen.started and before.started and seen.started != before.started:
        return Change(restarted="its process was started anew")
    if len(seen.marks) != len(before.marks):
        return Change()
    if seen.steps is not None and before.steps is not None and seen.steps < before.steps:
        return Change(restarted=f"its step counter fell from {before.steps} to {seen.steps}")
    pairs = list(zip(now.engines, seen.marks, before.marks, strict=True))
    return Change(
        known=True,
        moved=tuple(engine for engine, mark, was in pairs if mark != was),
        still=tuple(
            engine
            for at, (engine, mark, was) in enumerate(pairs)
            if mark == was and _works(engine) and before.busy >> at & 1
        ),
    )


def _works(engine: EngineState) -> bool:
    return engine.in_flight and not engine.asleep


def _width(count: int) -> int:
    return _WIDE if count <= _MANY else _NARROW


def _essence(engine: EngineState) -> str:
    moving = ",".join(f"{name}={value!r}" for name, value in sorted(engine.witnesses.items()))
    return f"{engine.label}:{moving}"


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return base64.urlsafe_b64encode(raw)[:16].decode()
