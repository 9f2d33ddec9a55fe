"""What the demonstration has to come to, and whether it did."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from fleet.contracts.remediation import Outcome
from fleet.verdicts import Verdict
from worker.demo_fleet import (
    BROKEN,
    BROKEN_BUDGET,
    BUSY_ENGINE,
    FREEZES,
    FREEZING_ENGINE,
    HEALTHY,
    IDLE_ENGINE,
    RECOVERS,
)


class ServerEnd(BaseModel):
    """What became of one server; the command line's JSON is made of these.

    ``verdict`` is the one that its incident was about, else the last one. ``detect_s`` are the
    seconds from the fault to the remediation's first step. ``restarts`` are those that the host
    carried out, ``pages`` those that were delivered, ``requests`` those for tokens that a model
    server received; none of a worker.
    """

    model_config = ConfigDict(frozen=True)

    server: str
    verdict: Verdict | None = None
    detect_s: float | None = None
    restarts: int = 0
    pages: int = 0
    requests: int | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Expected:
    """``incidents`` is how often a remediation of the server went beyond a suspicion, ``requests``
    how many a model server may have received: at least, and at most.
    """

    story: str
    outcome: Outcome | None
    verdict: Verdict | None = None
    restarts: int = 0
    incidents: int = 1
    pages: frozenset[str] = field(default_factory=frozenset)
    requests: tuple[int, int] | None = None


EXPECTED: dict[str, Expected] = {
    HEALTHY: Expected("is healthy and never touched", None, incidents=0),
    FREEZES: Expected(
        "freezes in a job and is restarted once, though its old record looks hung while it boots",
        Outcome.RESOLVED,
        restarts=1,
    ),
    RECOVERS: Expected("hangs, recovers by itself, and is never touched", Outcome.RECOVERED),
    BROKEN: Expected(
        "does not come back from its restart, pages, and stops at its budget",
        Outcome.BUDGET_EXHAUSTED,
        restarts=BROKEN_BUDGET,
        pages=frozenset({"not_recovered", "budget_exhausted"}),
    ),
    BUSY_ENGINE: Expected(
        "is busy all the time and answers nobody in time: never touched, never asked",
        None,
        incidents=0,
        requests=(0, 0),
    ),
    FREEZING_ENGINE: Expected(
        "freezes under load: one request confirms it, one restart heals it",
        Outcome.RESOLVED,
        Verdict.STUCK,
        restarts=1,
        requests=(1, 1),
    ),
    IDLE_ENGINE: Expected(
        "freezes while idle, which shows nowhere: a probe finds it, one restart heals it",
        Outcome.RESOLVED,
        Verdict.UNRESPONSIVE,
        restarts=1,
        requests=(2, 60),
    ),
}


@dataclass(frozen=True)
class Told:
    """``pages``: the causes that were delivered as pages. ``incidents``: remediations that were
    more than a suspicion.
    """

    pages: Mapping[str, list[str]]
    incidents: Mapping[str, int]


def untrue(ends: Iterable[ServerEnd], told: Told) -> Iterator[str]:
    """A line for each thing that did not come true; none where the story did."""
    seen = {end.server: end for end in ends}
    for server, expected in EXPECTED.items():
        end = seen.get(server)
        if end is None:
            yield f"{server}: nothing is known of it"
            continue
        yield from (f"{server}: {line}" for line in _differences(end, expected, told))


def _differences(end: ServerEnd, expected: Expected, told: Told) -> Iterator[str]:
    if end.outcome is not expected.outcome:
        wanted = expected.outcome or "no incident"
        yield f"the outcome is {end.outcome or 'open'}, not {wanted}"
    if end.restarts != expected.restarts:
        yield f"its host restarted it {end.restarts} times, not {expected.restarts}"
    if (incidents := told.incidents.get(end.server, 0)) != expected.incidents:
        yield f"{incidents} remediations were started for it, not {expected.incidents}"
    pages = sorted(told.pages.get(end.server, []))
    if pages != sorted(expected.pages):
        yield f"the pages delivered are {pages}, not {sorted(expected.pages)}"
    if expected.verdict is not None and end.verdict is not expected.verdict:
        yield f"it was found {end.verdict}, not {expected.verdict}"
    if expected.requests is not None:
        yield from _asked(end.requests, *expected.requests)
    if expected.incidents and end.detect_s is None:
        yield "its fault was never detected"


def _asked(requests: int | None, least: int, most: int) -> Iterator[str]:
    if requests is None or not least <= requests <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        yield f"it received {requests} requests, not {wanted}"
