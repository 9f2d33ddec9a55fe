"""What passes to and from ``drill/<server>``: its order, what it sees, where it stands."""

from enum import StrEnum

from pydantic import AwareDatetime, Field

from fleet.config import ServerSpec
from fleet.contracts.host import HostState
from fleet.contracts.names import Message
from fleet.contracts.remediation import Moment, Outcome, Phase
from fleet.duration_fields import Duration
from fleet.policy import Budget, HostBudget


class DrillPhase(StrEnum):
    CHECKING = "checking"
    WAITING = "waiting for work"
    FREEZING = "freezing"
    FINDING = "waiting to be found"
    HEALING = "waiting to be healed"
    THAWING = "thawing"
    CLOSED = "closed"


class DrillOutcome(StrEnum):
    HEALED = "healed"
    NOT_FOUND = "not_found"
    NOT_HEALED = "not_healed"
    NOT_FROZEN = "not_frozen"
    NEVER_BUSY = "never_busy"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    FAILED = "failed"


class DrillInput(Message):
    """``who`` confirmed it, and ``why``."""

    server: str
    who: str = ""
    why: str = ""
    search_attributes: bool = False


class FreezeOrder(Message):
    """Freeze ``server``, if it is marked and the host still shows exactly ``expected``."""

    server: str
    expected: HostState


class ThawOrder(Message):
    """Let go on what was frozen. It carries the way there: the fleet file may change meanwhile."""

    spec: ServerSpec
    frozen: HostState


class Thawed(Message):
    """``needed`` is false where the frozen process is gone, and so nothing is frozen."""

    needed: bool
    detail: str = Field(default="", max_length=500)


class SurveyRequest(Message):
    """``machine`` is the one it runs on, where that has a ledger, with the limit of its own."""

    server: str
    budget: Budget
    machine: str | None = None
    machine_budget: HostBudget | None = None


class Ledger(Message):
    """What ``guard/<server>`` says, and that of its machine: ``left`` is what both would grant. One
    that is not there has nothing left.
    """

    left: int = 0
    incident: str | None = None
    cooldown_until: AwareDatetime | None = None


class Healing(Message):
    """The newest run of ``remediate/<server>``, in the few words that a drill needs.

    ``phase`` is none where no worker could be asked.
    """

    began: AwareDatetime
    running: bool
    phase: Phase | None = None
    outcome: Outcome | None = None
    incident: str | None = None
    detected_at: AwareDatetime | None = None
    restarted_at: AwareDatetime | None = None
    closed_at: AwareDatetime | None = None
    restarts: int = 0
    said: str = ""


class Survey(Message):
    """All that steady itself holds of a server at a moment. ``held_back`` is what storm-guard has
    against any restart now; empty where nothing.
    """

    ledger: Ledger
    healing: Healing | None = None
    held_back: str = Field(default="", max_length=300)


class Expected(Message):
    """How long after the freeze each should have come at the latest, going by the policy.

    ``found``: the incident is open. ``restarted``: the command was sent. ``healed``: the incident
    has ended well.
    """

    found: Duration
    restarted: Duration
    healed: Duration


class DrillStatus(Message):
    """The answer to the query ``status``, and the workflow's result.

    ``works_at`` is when the first sign of work came after the restart. ``is_frozen`` says that the
    process may still be stopped.
    """

    server: str
    phase: DrillPhase
    outcome: DrillOutcome | None = None
    why: str = ""
    who: str = ""
    expected: Expected | None = None
    began_at: AwareDatetime
    frozen_at: AwareDatetime | None = None
    found_at: AwareDatetime | None = None
    restarted_at: AwareDatetime | None = None
    works_at: AwareDatetime | None = None
    healed_at: AwareDatetime | None = None
    closed_at: AwareDatetime | None = None
    is_frozen: bool = False
    incident: str | None = None
    restarts: int = 0
    next_step: str = ""
    next_at: AwareDatetime | None = None
    timeline: list[Moment] = []


class DrillSignal(StrEnum):
    CANCEL = "cancel"


class DrillErrorType(StrEnum):
    """What the freezing activity raises beside a ``HostErrorType``: nothing was frozen."""

    NOT_MARKED = "NotMarkedForDrills"
