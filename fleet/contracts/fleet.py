"""What passes to and from the workflow ``fleet``: the applied fleet, its pauses, its schedules."""

from enum import StrEnum

from pydantic import AwareDatetime

from fleet.config import Alerts, Fleet, ServerSpec
from fleet.contracts.names import Message
from fleet.durations import Duration


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
    sweep_every: Duration | None = None


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
