"""What passes to and from ``guard/<server>`` and ``host-guard/<machine>``: takes, and the incident.

A ledger lists what was taken of a budget. A server has one, and so has the machine that it runs on.
"""

from enum import StrEnum

from pydantic import AwareDatetime

from fleet.contracts.names import Message
from fleet.contracts.sweep import Observation
from fleet.duration_fields import Duration
from fleet.policy import Budget, Mode, RollingBudget
from fleet.verdicts import Verdict


class Claim(Message):
    """One restart asked of a ledger.

    ``key`` names one decision to restart, however often it is sent; given back, it is spent.
    ``day_start`` and ``day_end`` are the local midnights (UTC instants) around the present moment,
    where the budget is by calendar day. One that ``heeds_cooldown`` is refused while an earlier
    restart cools down.
    """

    server: str
    incident: str
    key: str
    budget: Budget
    cooldown: Duration
    day_start: AwareDatetime | None = None
    day_end: AwareDatetime | None = None
    by: str = ""
    why: str = ""
    heeds_cooldown: bool = False


class HostShare(Message):
    """The machine that a server runs on, as ``fleet.actions.machine`` writes it, and its budget."""

    machine: str
    budget: RollingBudget


class TakeRequest(Claim):
    """``host`` is none where the machine has no ledger: then the server's alone is asked."""

    host: HostShare | None = None


class HostTakeRequest(Claim):
    """The same restart, asked of the machine's ledger."""

    machine: str


class Refuser(StrEnum):
    """Which ledger refused a restart."""

    SERVER = "server"
    HOST = "host"


class TakeResult(Message):
    """``next_at`` is when the next one is free. ``cooling_until`` is set where a restart is refused
    for the cooldown of an earlier one, and not for want of budget.
    """

    granted: bool
    left: int = 0
    why: str = ""
    next_at: AwareDatetime | None = None
    refused_by: Refuser | None = None
    cooling_until: AwareDatetime | None = None


class GiveBackRequest(Message):
    """``proof`` says how it is known that no command was sent."""

    server: str
    key: str
    proof: str
    machine: str = ""


class Hold(StrEnum):
    """Why an open incident is closed to automation until the server has recovered."""

    CANCELLED = "cancelled"
    DRY_RUN = "dry_run"
    ALERT_ONLY = "alert_only"
    PERSON = "person"
    OUT_OF_TRIES = "out_of_tries"


class Incident(Message):
    """The open incident of a server, as the guard keeps it over several runs.

    ``verdict`` is none where a person asked for a restart and nothing had been observed. ``rung``
    is how many restarts did not help: the step of the ladder that the next one takes, from 0.
    """

    id: str
    server: str
    first_observed: AwareDatetime
    verdict: Verdict | None = None
    beat: AwareDatetime | None = None
    job: str | None = None
    restarts: int = 0
    rung: int = 0
    failed_tries: int = 0
    next_try_at: AwareDatetime | None = None
    hold: Hold | None = None
    hold_mode: Mode | None = None
    told: list[str] = []
    last_close: str = ""
    process: str = ""


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

    ``process`` is the last one that the host showed, and ``is_ours`` whether steady started it.

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
    rung: int = 0
    retry_delays: list[Duration] = []
    told: list[str] = []
    process: str = ""
    is_ours: bool = False


class CloseResult(Message):
    next_try_at: AwareDatetime | None = None
    out_of_tries: bool = False
    failed_tries: int = 0


class Sight(StrEnum):
    """Who sees a process, each with a name of its own for it."""

    RECORD = "record"
    HOST = "host"


class Take(Message):
    """A restart in a ledger; ``server`` names whose, in a machine's ledger.

    ``seen`` are the names of the process that it started, by sight; "" where that went unseen. One
    of which it is proved that it had no effect ``explains`` no process.
    """

    key: str
    at: AwareDatetime
    cooldown_until: AwareDatetime
    incident: str = ""
    by: str = ""
    why: str = ""
    server: str = ""
    seen: dict[str, str] = {}
    explains: bool = True


class Reset(Message):
    """A person's word that what was used up until then counts no longer."""

    at: AwareDatetime
    who: str
    why: str
    key: str = ""


class Ledger(Message):
    """What was taken. ``returned`` are keys that are spent.

    ``lost_at`` marks a ledger whose history is gone: used up at that moment. ``refused`` is how
    often it had none left, since it was founded.
    """

    takes: list[Take] = []
    returned: list[str] = []
    cooldown_until: AwareDatetime | None = None
    lost_at: AwareDatetime | None = None
    refused: int = 0
    resets: list[Reset] = []


class GuardState(Ledger):
    """All that ``guard/<server>`` holds.

    ``recovered_at`` is when the last incident ended: what was observed before it founds none with
    the same start. ``foreign_told`` is the start by somebody else of which people heard last.
    """

    server: str
    incident: Incident | None = None
    recovered_at: AwareDatetime | None = None
    foreign_told: Take | None = None


class HostLedger(Ledger):
    """All that ``host-guard/<machine>`` holds."""

    machine: str


class StartRequest(Message):
    """A process of a server that is another than the one that this sight saw before.

    ``ours`` is the name of the one that steady's own newest restart started, where it was seen.
    ``quiet``: it counts, and nobody is told. ``machine`` is "" where that has no guard.
    """

    server: str
    machine: str = ""
    sight: Sight
    process: str
    ours: str = ""
    cooldown: Duration
    quiet: bool = False
    why: str = ""


class StartResult(Message):
    """``take`` is the booking of a start by somebody else; none where steady ordered it.

    ``tell``: people hear of this one. ``count`` such were booked in the last 24 h.
    """

    take: Take | None = None
    tell: bool = False
    count: int = 0
    cooldown_until: AwareDatetime | None = None


class StartBatch(Message):
    starts: list[StartRequest]


class StartBatchResult(Message):
    """``unsent`` are the servers whose guards could not be asked."""

    answers: dict[str, StartResult] = {}
    unsent: list[str] = []


class ResetRequest(Message):
    """``machine`` is "" where the server's own ledger is meant."""

    server: str
    machine: str = ""
    who: str
    why: str
    key: str


class InheritRequest(Message):
    """The ledgers of servers that restarted the same thing under another name.

    ``lost`` says that one of them can't be read.
    """

    server: str
    takes: list[Take] = []
    lost: bool = False


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
    INHERIT = "inherit"
    STARTED = "started"
    RESET = "reset"


class HostSignal(StrEnum):
    """``BOOK`` brings a ``Take`` that was not asked for: a start by somebody else."""

    BOOK = "book"


class GuardInput(Message):
    """``founding``: the server is new to the fleet; else a ledger without history is used up."""

    server: str
    founding: bool = False
    state: GuardState | None = None


class HostGuardInput(Message):
    """``founding``: the machine is new to the fleet's guards, and ``takes`` are what its servers
    had of their own budgets; else a ledger without history is used up.
    """

    machine: str
    founding: bool = False
    takes: list[Take] = []
    lost: bool = False
    state: HostLedger | None = None
