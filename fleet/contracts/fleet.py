"""What passes to and from the workflow ``fleet``: the applied fleet, its pauses, its schedules."""

from datetime import timedelta
from enum import StrEnum

from pydantic import AwareDatetime, Field

from fleet.config import Alerts, Fleet, ServerSpec
from fleet.contracts.gateway import Gateways
from fleet.contracts.names import Message
from fleet.duration_fields import Duration
from fleet.policy import Storm


class Pause(Message):
    until: AwareDatetime
    who: str = ""
    why: str = ""


class Departure(Message):
    """A server that left the fleet, or no longer restarts ``target`` (a digest; "" for none)."""

    server: str
    target: str
    at: AwareDatetime


class FleetState(Message):
    """All that the workflow ``fleet`` holds; carried through continue-as-new.

    ``machines`` are those whose guards were founded.
    """

    version: int = 0
    fleet: Fleet | None = None
    applied_at: AwareDatetime | None = None
    pauses: dict[str, Pause] = {}
    fleet_pause: Pause | None = None
    search_attributes: bool = False
    departed: list[Departure] = []
    machines: list[str] = []


class ApplyRequest(Message):
    """``founds_all``: asks for the guards of machines and of renamed servers as well, which fleets
    that were applied before there were any did not.
    """

    fleet: Fleet
    who: str = ""
    search_attributes: bool = False
    founds_all: bool = False


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
    STORM = "storm"
    PRESENT = "present"
    SHARD = "shard"
    ALERTS = "alerts"


class AlertSettings(Message):
    alerts: Alerts
    fleet_name: str
    temporal_ui: str | None = None


class StormTerms(Message):
    """The fleet's limits on restarts, and its size, as of a version of it."""

    version: int = 0
    servers: int = Field(default=1, ge=0)
    shards: int = Field(default=1, ge=0)
    storm: Storm = Storm()

    @property
    def at_once(self) -> int:
        return self.storm.at_once(self.servers)


class PresentPolicy(Message):
    """The answer of ``fleet`` for one server: ``spec`` is none where it is not in the fleet.

    ``machine`` is the one it runs on, where that has a guard. Without ``storm``, from a worker of
    an older version, nothing holds restarts back. ``gateways`` is where it is drained.
    """

    version: int
    spec: ServerSpec | None = None
    pause: Pause | None = None
    temporal_ui: str | None = None
    search_attributes: bool = False
    sweep_every: Duration | None = None
    machine: str | None = None
    storm: StormTerms | None = None
    gateways: Gateways | None = None


class ShardSlice(Message):
    version: int
    interval: Duration
    probe_every: Duration = timedelta(minutes=5)
    specs: list[ServerSpec]
    paused: dict[str, Pause] = {}
    search_attributes: bool = False
    storm: StormTerms | None = None
    keep_for: Duration | None = None
    machines: dict[str, str] = {}


class ReconcileRequest(Message):
    """The schedules that should be; all others of steady's are deleted.

    ``probes`` are the shards that have engines to be probed.
    """

    shards: int
    interval: Duration
    probes: list[int] = []
    probe_every: Duration = timedelta(minutes=5)


class ReconcileResult(Message):
    schedules: list[str]


class FoundingRequest(Message):
    """Guards that must be there before a fleet is in force.

    ``servers`` are new to it: each gets a full budget, once in its life. ``returning`` left it not
    long ago: each has its old ledger, and where that is gone, none. ``heirs`` restart what the
    servers beside them restarted. ``machines`` have no guard yet; the servers beside them have been
    in the fleet before.
    """

    servers: list[str]
    returning: list[str] = []
    heirs: dict[str, list[str]] = {}
    machines: dict[str, list[str]] = {}


class FoundingResult(Message):
    machines: list[str] = []
