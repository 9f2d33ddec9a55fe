"""What is asked of a host, and what it says of the process behind a server."""

from datetime import timedelta
from enum import StrEnum

from pydantic import AwareDatetime, Field

from fleet.contracts.names import Message, ServerRequest
from fleet.duration_fields import Duration
from fleet.gpu_faults import Remedy


class HostStatus(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    RESTARTING = "restarting"
    GONE = "gone"
    UNKNOWN = "unknown"


class GpuHolder(Message):
    """A process that holds ``mib`` of a GPU's memory; none where the host does not say how much."""

    pid: int
    mib: int | None = None
    gpu: str = ""
    name: str = ""


class HostState(Message):
    """What the host says of the process behind a server.

    ``identity`` names the object and ``started`` its present process, in the host's own words that
    are compared and never parsed for a decision: a container's ID and start time, a unit's name and
    invocation ID, the line that a command's ``identity`` prints. ``started_at`` is the start read
    as a time, by the host's clock, where it can be. ``hindrance`` is the answer to what a
    ``HostRequest`` asked beyond that, for a person; empty where nothing is in the way.

    Of a stronger step of the ladder, these are of what that step restarts (the project, the unit,
    the boot of the host), and ``process`` is the start of the server's own process. Of a group they
    are those of all its members, and ``running`` says how many run. ``gpu`` is the memory that its
    processes hold, where it is to be waited for.
    """

    status: HostStatus
    identity: str = ""
    started: str = ""
    started_at: AwareDatetime | None = None
    detail: str = Field(default="", max_length=500)
    hindrance: str = Field(default="", max_length=1000)
    process: str = ""
    running: int | None = None
    gpu: list[GpuHolder] = []

    @property
    def own_start(self) -> str:
        """The start of the server's own process, whatever step was asked for."""
        return self.process or self.started

    def same_process(self, other: "HostState") -> bool:
        return bool(self.identity) and (self.identity, self.started) == (
            other.identity,
            other.started,
        )

    def same_object(self, other: "HostState") -> bool:
        """The same container or unit, whatever process runs in it now."""
        return self.identity == other.identity


class HostRequest(ServerRequest):
    """A look at what a step of the server's ladder would restart; ``rung`` counts from 0.

    ``before_restart`` asks as well what else a restart would hit; ``closely``, after a command that
    did not end, why the process still lives.
    """

    rung: int = 0
    before_restart: bool = False
    closely: bool = False


class RestartOrder(Message):
    """Restart ``server`` by a step of its ladder, if the host still shows exactly ``expected``.

    ``begun``: a stop of the same processes had left for the host before.
    """

    server: str
    expected: HostState
    key: str
    rung: int = 0
    begun: bool = False


class Effect(StrEnum):
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class RestartResult(Message):
    """What became of a command that was sent.

    ``UNKNOWN`` means that the connection was lost after the command went out: never *failed*. It is
    settled by looking at the host. ``hung``: the command did not end within its bound, or says
    itself that the process could not be killed. ``later``: done is only that it was ordered, so the
    host must show it.
    """

    effect: Effect
    detail: str = Field(default="", max_length=500)
    settle_within: Duration = timedelta(seconds=60)
    hung: bool = False
    later: bool = False


class GpuRequest(ServerRequest):
    """Is the memory free that these processes held?"""

    rung: int = 0
    pids: list[int] = []


class GpuReport(Message):
    """What is still held: by the old processes, and which GPUs have too little free, in words."""

    holders: list[GpuHolder] = []
    lacking: list[str] = []


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


class GpuFault(Message):
    """A fault that no restart cures. ``gpu`` is its PCI address, empty where that is not known."""

    what: str = Field(max_length=200)
    gpu: str = Field(default="", max_length=20)
    at: AwareDatetime | None = None
    remedy: Remedy = Remedy.PERSON


class Evidence(Message):
    """Where the bundle lies on a worker's disk; its content never enters a workflow.

    ``kept_on`` is that worker's host name. ``process`` is what the bundle is about, and ``faults``
    are what keeps a restart of that process back.
    """

    path: str | None = None
    size: int = 0
    missing: list[str] = []
    kept_on: str = ""
    process: HostState | None = None
    faults: list[GpuFault] = []
