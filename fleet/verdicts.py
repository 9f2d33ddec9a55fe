"""What can be said of a server, and who acts on it.

Every verdict has a named owner: an action, or a person with the reason written down. The gap
between a detector that saw and a restarter that listened for another word is how two hung workers
once stood still for six hours.
"""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    HEALTHY = "healthy"
    BUSY = "busy"
    IDLE = "idle"
    LOADING = "loading"
    RESTARTED = "restarted"
    ASLEEP = "asleep"
    SUSPECT = "suspect"
    HUNG = "hung"
    ERROR = "error"
    STUCK = "stuck"
    UNRESPONSIVE = "unresponsive"
    MISSING = "missing"
    SILENT = "silent"
    STALLED = "stalled"
    SKEWED = "skewed"
    OVERDUE = "overdue"
    DEGRADED = "degraded"
    UNPROVEN = "unproven"
    UNREADABLE = "unreadable"


class Owner(StrEnum):
    NOBODY = "nobody needed"
    REMEDIATION = "Remediation"
    PERSON = "a person"


@dataclass(frozen=True)
class Ownership:
    """Who acts on a verdict, through what, and why it is so."""

    owner: Owner
    through: str
    why: str


GOOD = frozenset(
    {
        Verdict.HEALTHY,
        Verdict.BUSY,
        Verdict.IDLE,
        Verdict.LOADING,
        Verdict.RESTARTED,
        Verdict.ASLEEP,
    }
)
ACTIONABLE = frozenset({Verdict.HUNG, Verdict.ERROR, Verdict.STUCK, Verdict.UNRESPONSIVE})
#: What a sweep reports to the server's remediation: what it acts on, and what it confirms first.
FOR_REMEDIATION = ACTIONABLE | {Verdict.SUSPECT}
ALERT_ONLY = frozenset(
    {
        Verdict.MISSING,
        Verdict.SILENT,
        Verdict.STALLED,
        Verdict.SKEWED,
        Verdict.OVERDUE,
        Verdict.DEGRADED,
        Verdict.UNPROVEN,
        Verdict.UNREADABLE,
    }
)

#: What a machine that is off on purpose shows: no record, or the last one it left.
OFF_LOOKS_LIKE = frozenset({Verdict.MISSING, Verdict.SILENT})

_NOTHING_TO_DO = Ownership(Owner.NOBODY, "-", "the server works, or is on its way to")


def _restart(why: str) -> Ownership:
    return Ownership(Owner.REMEDIATION, "workflow remediate/<server>", why)


def _person(why: str) -> Ownership:
    return Ownership(Owner.PERSON, "workflow alert/<incident>/<cause>", why)


OWNERS: dict[Verdict, Ownership] = {
    **dict.fromkeys(GOOD, _NOTHING_TO_DO),
    Verdict.HUNG: _restart("the heartbeat stands still while the worker says it is processing"),
    Verdict.ERROR: _restart("the server itself says error, and has said so for long"),
    Verdict.STUCK: _restart("work in flight, no witness of progress, no answer"),
    Verdict.UNRESPONSIVE: _restart("an idle engine twice gave no short answer, and nothing moved"),
    Verdict.SUSPECT: _restart("one bad observation is confirmed before anything happens"),
    Verdict.MISSING: _person(
        "nothing is there: the power state is unknown, a restart may be useless or harmful"
    ),
    Verdict.SILENT: _person("the heartbeat stopped outside of work: maybe switched off on purpose"),
    Verdict.STALLED: _person(
        "the worker lives, its job makes no progress: a long job looks the same"
    ),
    Verdict.SKEWED: _person("clocks disagree, so the age of a heartbeat proves nothing"),
    Verdict.OVERDUE: _person("loading longer than its limit: a restart would begin the load anew"),
    Verdict.DEGRADED: _person("errors alone never prove a hang"),
    Verdict.UNPROVEN: _person("no counters and no answer: busy and hung look the same"),
    Verdict.UNREADABLE: _person("what can't be understood is not acted on"),
}

#: The verdicts that the detectors of this version can give, by kind of source.
GIVEN_BY: dict[str, frozenset[Verdict]] = {
    "heartbeat": frozenset(
        {
            Verdict.BUSY,
            Verdict.IDLE,
            Verdict.HEALTHY,
            Verdict.LOADING,
            Verdict.RESTARTED,
            Verdict.HUNG,
            Verdict.ERROR,
            Verdict.MISSING,
            Verdict.SILENT,
            Verdict.STALLED,
            Verdict.SKEWED,
            Verdict.OVERDUE,
            Verdict.UNREADABLE,
        }
    ),
    "engine": frozenset(
        {
            Verdict.BUSY,
            Verdict.IDLE,
            Verdict.HEALTHY,
            Verdict.LOADING,
            Verdict.RESTARTED,
            Verdict.ASLEEP,
            Verdict.SUSPECT,
            Verdict.STUCK,
            Verdict.UNRESPONSIVE,
            Verdict.ERROR,
            Verdict.MISSING,
            Verdict.OVERDUE,
            Verdict.DEGRADED,
            Verdict.UNPROVEN,
            Verdict.UNREADABLE,
        }
    ),
}
