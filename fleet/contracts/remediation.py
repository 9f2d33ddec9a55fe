"""What passes to and from ``remediate/<server>``: a person's words, its status, its end."""

from enum import StrEnum

from pydantic import AwareDatetime

from fleet.contracts.gateway import Gateways
from fleet.contracts.guard import Incident
from fleet.contracts.names import Message
from fleet.duration_fields import Duration
from fleet.verdicts import Verdict


class Phase(StrEnum):
    CONFIRMING = "confirming"
    PERSISTING = "persisting"
    COLLECTING = "collecting evidence"
    ANNOUNCING = "announcing"
    APPROVING = "waiting for approval"
    WAITING = "waiting for a slot"
    DRAINING = "draining"
    RECHECKING = "rechecking"
    TAKING = "taking budget"
    RESTARTING = "restarting"
    SETTLING = "settling"
    FREEING = "waiting for GPU memory"
    COOLING = "cooling down"
    VERIFYING = "verifying"
    ESCALATED = "escalated"
    CLOSED = "closed"


class Outcome(StrEnum):
    """What came of an incident. ``summary`` says what a person should make of it."""

    RESOLVED = "resolved"
    RECOVERED = "recovered"
    NOT_CONFIRMED = "not_confirmed"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    REMOVED = "removed"
    DRY_RUN = "dry_run"
    ALERT_ONLY = "alert_only"
    NOT_APPROVED = "not_approved"
    HANDED_OVER = "handed_over"
    RESTART_FAILED = "restart_failed"
    BUDGET_EXHAUSTED = "budget_exhausted"
    ESCALATED = "escalated"
    INTERNAL_ERROR = "internal_error"


class OperatorRequest(Message):
    """A person's word: who, why, and for ``snooze`` how long; by ``id`` its answer is found."""

    who: str = "unknown"
    why: str = ""
    span: Duration | None = None
    id: str = ""


class Moment(Message):
    at: AwareDatetime
    text: str


class Carried(Message):
    """What an escalated remediation hands to its next run through continue-as-new.

    ``drained`` is where the server is drained for this incident.
    """

    incident: Incident
    outcome: Outcome
    since: dict[Verdict, AwareDatetime] = {}
    detected_at: AwareDatetime | None = None
    restarted_at: AwareDatetime | None = None
    timeline: list[Moment] = []
    answers: dict[str, str] = {}
    pages: list[str] = []
    reads: int = 0
    attempts: int = 0
    drained: Gateways | None = None


class RemediationInput(Message):
    """``carried`` is what continue-as-new hands on."""

    server: str
    search_attributes: bool = False
    carried: Carried | None = None


class RemediationStatus(Message):
    """The answer to the query ``status``, and the workflow's result.

    ``restarted_at`` is when the last restart that may have had an effect was over.
    """

    server: str
    incident: str | None = None
    phase: Phase
    verdict: Verdict | None = None
    outcome: Outcome | None = None
    since: AwareDatetime | None = None
    detected_at: AwareDatetime | None = None
    restarted_at: AwareDatetime | None = None
    closed_at: AwareDatetime | None = None
    restarts: int = 0
    pages: list[str] = []
    job: str | None = None
    next_step: str = ""
    next_at: AwareDatetime | None = None
    timeline: list[Moment] = []
    answers: dict[str, str] = {}


class RemediationSignal(StrEnum):
    OBSERVE = "observe"
    CANCEL = "cancel"
    RESTART_NOW = "restart_now"
    SNOOZE = "snooze"
    APPROVE = "approve"


STATUS_QUERY = "status"
