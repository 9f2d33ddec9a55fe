"""What passes between the processes: workflow IDs, names of signals and queries, and messages.

Every workflow, activity, signal, query and update takes one model, so that fields can be added.
No message holds a secret or a log: secrets are named by reference, evidence lies in a file.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from fleet.config import Alerts, Fleet, ServerSpec
from fleet.durations import Duration
from fleet.judge import Memory
from fleet.policy import Budget, Mode, Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict

TASK_QUEUE = "steady"
FLEET_ID = "fleet"

HEALTH_SWEEP = "HealthSweep"
REMEDIATION = "Remediation"
SERVER_GUARD = "ServerGuard"
FLEET = "Fleet"
ALERT = "Alert"


def remediation_id(server: str) -> str:
    return f"remediate/{server}"


def guard_id(server: str) -> str:
    return f"guard/{server}"


def alert_id(incident: str, cause: str) -> str:
    return f"alert/{incident}/{cause}"


def health_id(shard: int) -> str:
    return f"health/{shard}"


def incident_id(server: str, first_observed: datetime) -> str:
    """The dedupe key of an incident: the server and the first observation, to the millisecond."""
    return f"{server}@{first_observed:%Y%m%dT%H%M%S}.{first_observed.microsecond // 1000:03d}Z"


class SearchAttribute(StrEnum):
    SERVER = "SteadyServer"
    VERDICT = "SteadyVerdict"
    PHASE = "SteadyPhase"
    OUTCOME = "SteadyOutcome"


class Phase(StrEnum):
    CONFIRMING = "confirming"
    PERSISTING = "persisting"
    COLLECTING = "collecting evidence"
    ANNOUNCING = "announcing"
    APPROVING = "waiting for approval"
    RECHECKING = "rechecking"
    TAKING = "taking budget"
    RESTARTING = "restarting"
    SETTLING = "settling"
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


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


# --- the fleet -----------------------------------------------------------------------------------


class Pause(Message):
    until: AwareDatetime
    who: str = ""
    why: str = ""


class FleetState(Message):
    """All that the workflow ``fleet`` holds; carried through continue-as-new."""

    version: int = 0
    fleet: Fleet | None = None
    applied_at: AwareDatetime | None = None
    pauses: dict[str, Pause] = {}
    fleet_pause: Pause | None = None
    search_attributes: bool = False


class ApplyRequest(Message):
    fleet: Fleet
    who: str = ""
    search_attributes: bool = False


class ApplyResult(Message):
    version: int
    changed: bool
    added: list[str] = []
    removed: list[str] = []
    altered: list[str] = []
    schedules: list[str] = []


class PauseRequest(Message):
    """Pause one server, or the whole fleet where ``server`` is none; resume where ``span`` is."""

    server: str | None = None
    span: Duration | None = None
    who: str = ""
    why: str = ""


class FleetUpdate(StrEnum):
    APPLY = "apply"
    PAUSE = "pause"


class FleetQuery(StrEnum):
    STATE = "state"
    PRESENT = "present"
    SHARD = "shard"
    ALERTS = "alerts"


class AlertSettings(Message):
    alerts: Alerts
    fleet_name: str
    temporal_ui: str | None = None


class PresentPolicy(Message):
    """The answer of ``fleet`` for one server: ``spec`` is none where it is not in the fleet."""

    version: int
    spec: ServerSpec | None = None
    pause: Pause | None = None
    temporal_ui: str | None = None
    search_attributes: bool = False


class ShardSlice(Message):
    version: int
    interval: Duration
    specs: list[ServerSpec]
    paused: dict[str, Pause] = {}
    search_attributes: bool = False


class ReconcileRequest(Message):
    """The schedules that should be; all others of steady's are deleted."""

    shards: int
    interval: Duration


class ReconcileResult(Message):
    schedules: list[str]


class FoundingRequest(Message):
    """Servers that are new to the fleet: each gets a guard with a full budget, once in its life."""

    servers: list[str]


# --- the sweep -----------------------------------------------------------------------------------


class SweepRequest(Message):
    shard: int


class SweepReadings(Message):
    """Readings of a shard. ``policies`` are listed once; ``policy_of`` points into them."""

    interval: Duration
    version: int
    readings: list[Reading]
    policies: list[Policy]
    policy_of: dict[str, int]
    paused: dict[str, Pause] = {}
    search_attributes: bool = False


class SweepResult(Message):
    """What a sweep leaves for the next one, and for whoever looks."""

    shard: int
    at: AwareDatetime
    version: int = 0
    servers: dict[str, Memory] = {}
    whys: dict[str, str] = {}


class Observation(Message):
    """A confirmed verdict on its way to a remediation. ``key`` is the sweep run: it dedupes."""

    server: str
    verdict: Verdict
    since: AwareDatetime
    reading: Reading
    why: str = ""
    key: str = ""


class Report(Message):
    """``ongoing``: reported before; only makes sure that somebody still cares for it."""

    observation: Observation
    ongoing: bool = False
    good: bool = False
    mode: Mode = Mode.ACT


class ReportBatch(Message):
    reports: list[Report]
    search_attributes: bool = False


class ReportResult(Message):
    """``unsent`` names the servers whose reports reached nobody, each with the reason."""

    unsent: dict[str, str] = {}


# --- remediation ---------------------------------------------------------------------------------


class OperatorRequest(Message):
    """A person's word: who, why, and for ``snooze`` how long; by ``id`` its answer is found."""

    who: str = "unknown"
    why: str = ""
    span: Duration | None = None
    id: str = ""


class RemediationInput(Message):
    """``carried`` is what continue-as-new hands on."""

    server: str
    search_attributes: bool = False
    carried: "Carried | None" = None


class Moment(Message):
    at: AwareDatetime
    text: str


class Carried(Message):
    """What an escalated remediation hands to its next run through continue-as-new."""

    incident: "Incident"
    outcome: Outcome
    since: dict[Verdict, AwareDatetime] = {}
    detected_at: AwareDatetime | None = None
    timeline: list[Moment] = []
    answers: dict[str, str] = {}
    pages: list[str] = []
    reads: int = 0
    attempts: int = 0


class RemediationStatus(Message):
    """The answer to the query ``status``, and the workflow's result."""

    server: str
    incident: str | None = None
    phase: Phase
    verdict: Verdict | None = None
    outcome: Outcome | None = None
    since: AwareDatetime | None = None
    detected_at: AwareDatetime | None = None
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


# --- the host ------------------------------------------------------------------------------------


class HostStatus(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    RESTARTING = "restarting"
    GONE = "gone"
    UNKNOWN = "unknown"


class HostState(Message):
    """What the host says of the process behind a server.

    ``identity`` names the object and ``started`` its present process, in the host's own words that
    are compared and never parsed for a decision: a container's ID and start time, a unit's name and
    invocation ID, the line that a command's ``identity`` prints. ``started_at`` is the start read
    as a time, by the host's clock, where it can be.
    """

    status: HostStatus
    identity: str = ""
    started: str = ""
    started_at: AwareDatetime | None = None
    detail: str = Field(default="", max_length=500)

    def same_process(self, other: "HostState") -> bool:
        return bool(self.identity) and (self.identity, self.started) == (
            other.identity,
            other.started,
        )

    def same_object(self, other: "HostState") -> bool:
        """The same container or unit, whatever process runs in it now."""
        return self.identity == other.identity


class ServerRequest(Message):
    server: str


class RestartOrder(Message):
    """Restart ``server``, if the host still shows exactly ``expected``."""

    server: str
    expected: HostState
    key: str


class Effect(StrEnum):
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class RestartResult(Message):
    """What became of a command that was sent.

    ``UNKNOWN`` means that the connection was lost after the command went out: never *failed*. It is
    settled by looking at the host.
    """

    effect: Effect
    detail: str = Field(default="", max_length=500)
    settle_within: Duration = timedelta(seconds=60)


class HostErrorType(StrEnum):
    """What the host activities raise, as ``ApplicationError.type``: proof that nothing was sent."""

    UNREACHABLE = "HostUnreachable"
    KEY_CHANGED = "HostKeyChanged"
    DENIED = "HostDenied"
    SUPERSEDED = "Superseded"
    NO_ACTION = "NoRestartConfigured"
    REMOVED = "ServerRemoved"
    MISCONFIGURED = "HostMisconfigured"
    NO_POLICY = "NoPresentPolicy"


class EvidenceRequest(Message):
    server: str
    incident: str


class Evidence(Message):
    """Where the bundle lies on the worker's disk; its content never enters a workflow."""

    path: str | None = None
    size: int = 0
    missing: list[str] = []


# --- the guard -----------------------------------------------------------------------------------


class TakeRequest(Message):
    """``key`` names one decision to restart, however often it is sent; given back, it is spent.

    ``day_start`` and ``day_end`` are the local midnights (UTC instants) around the present moment,
    where the budget is by calendar day.
    """

    server: str
    incident: str
    key: str
    budget: Budget
    cooldown: Duration
    day_start: AwareDatetime | None = None
    day_end: AwareDatetime | None = None
    by: str = ""


class TakeResult(Message):
    granted: bool
    left: int = 0
    why: str = ""
    next_at: AwareDatetime | None = None


class GiveBackRequest(Message):
    """``proof`` says how it is known that no command was sent."""

    server: str
    key: str
    proof: str


class Hold(StrEnum):
    """Why an open incident is closed to automation until the server has recovered."""

    CANCELLED = "cancelled"
    DRY_RUN = "dry_run"
    ALERT_ONLY = "alert_only"
    PERSON = "person"
    OUT_OF_TRIES = "out_of_tries"


class Incident(Message):
    """The open incident of a server, as the guard keeps it over several runs.

    ``verdict`` is none where a person asked for a restart and nothing had been observed.
    """

    id: str
    server: str
    first_observed: AwareDatetime
    verdict: Verdict | None = None
    beat: AwareDatetime | None = None
    job: str | None = None
    restarts: int = 0
    failed_tries: int = 0
    next_try_at: AwareDatetime | None = None
    hold: Hold | None = None
    hold_mode: Mode | None = None
    told: list[str] = []
    last_close: str = ""


class OpenRequest(Message):
    server: str
    observation: Observation | None = None
    by_hand: bool = False


class OpenResult(Message):
    incident: Incident
    is_new: bool
    cooldown_until: AwareDatetime | None = None


class CloseRequest(Message):
    """How a run of the incident ended. ``recovered`` ends the incident itself.

    ``key`` names this ending: the same one sent again is counted once.
    """

    server: str
    incident: str
    key: str = ""
    recovered: bool = False
    hold: Hold | None = None
    hold_mode: Mode | None = None
    failed_try: bool = False
    no_effect: bool = False
    retry_delays: list[Duration] = []
    told: list[str] = []


class CloseResult(Message):
    next_try_at: AwareDatetime | None = None
    out_of_tries: bool = False
    failed_tries: int = 0


class Take(Message):
    key: str
    at: AwareDatetime
    cooldown_until: AwareDatetime
    incident: str = ""
    by: str = ""


class GuardState(Message):
    """All that ``guard/<server>`` holds.

    ``lost_at`` marks a ledger whose history is gone: used up at that moment. ``recovered_at`` is
    when the last incident ended: what was observed before it founds none with the same start.
    """

    server: str
    takes: list[Take] = []
    returned: list[str] = []
    cooldown_until: AwareDatetime | None = None
    incident: Incident | None = None
    lost_at: AwareDatetime | None = None
    recovered_at: AwareDatetime | None = None


class Recovery(Message):
    """The server was seen healthy ``at``, by the observer's clock."""

    at: AwareDatetime


class GuardSignal(StrEnum):
    RECOVERED = "recovered"
    FORGET_HOLD = "forget_hold"


class GuardQuery(StrEnum):
    STATE = "state"


class GuardUpdate(StrEnum):
    OPEN = "open"
    TAKE = "take"
    GIVE_BACK = "give_back"
    CLOSE = "close"


class GuardInput(Message):
    """``founding``: the server is new to the fleet; else a ledger without history is used up."""

    server: str
    founding: bool = False
    state: GuardState | None = None


# --- alerts --------------------------------------------------------------------------------------


class Severity(StrEnum):
    NOTICE = "notice"
    PAGE = "page"


class AlertAction(StrEnum):
    """What a service that threads or resolves should do with what it has under the incident."""

    TRIGGER = "trigger"
    UPDATE = "update"
    RESOLVE = "resolve"


class AlertMessage(Message):
    """One message a cause an incident."""

    server: str
    incident: str
    cause: str
    severity: Severity
    action: AlertAction = AlertAction.TRIGGER
    title: str
    verdict: Verdict | None = None
    since: AwareDatetime | None = None
    job: str | None = None
    next_step: str = ""
    detail: str = Field(default="", max_length=1000)
    raised_at: AwareDatetime | None = None
    workflow_id: str = ""
    give_up_after: Duration = timedelta(hours=24)


class AlertPlan(Message):
    """Who is told, by name; ``incidents`` are the server's of the last 24 h, 0 if not counted."""

    targets: list[str] = []
    incidents: int = 0


class Delivery(Message):
    message: AlertMessage
    target: str
    incidents: int = 0


class Delivered(Message):
    """What came of one target; ``gone`` says that the fleet no longer names it."""

    target: str
    delivered: bool
    attempts: int = 0
    detail: str = ""
    gone: bool = False


class AlertResult(Message):
    """``delivered`` says that every target that the fleet still names has it."""

    delivered: bool
    detail: str = ""
    targets: list[Delivered] = []


Carried.model_rebuild()
RemediationInput.model_rebuild()
