"""What passes to and from a gateway's admin API, and the activities that drain a server there."""

from datetime import timedelta
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field

from fleet.contracts.names import Message
from fleet.duration_fields import Duration, within
from fleet.policy import STRICT
from fleet.secret_refs import SecretRef

#: What a lease may be called: it stands in a URL.
LEASE_ID = r"^[A-Za-z0-9][A-Za-z0-9@._:-]{0,199}$"

_Word = Annotated[str, Field(min_length=1, max_length=200)]
Lasting = Annotated[Duration, within("1s", "7d")]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class LeaseTerms(BaseModel):
    """The body of a PUT to a lease; one that is there is renewed, to a later end or an earlier.

    With ``last_resort`` the backend is still sent what no other backend is left for.
    """

    model_config = STRICT

    holder: _Word
    lasting: Lasting = Field(alias="for")
    why: str = Field(default="", max_length=300)
    last_resort: bool = Field(default=False, strict=True)


class CandidateChange(BaseModel):
    """The body of a PATCH to a candidate of an endpoint."""

    model_config = STRICT

    sample: Percent


class BackendChange(BaseModel):
    """The body of a PATCH to a backend of an endpoint."""

    model_config = STRICT

    weight: float = Field(ge=0.01, le=100)


class Lease(Message):
    """A reason to send a backend nothing, until it is released or runs out; with ``last_resort``
    nothing that another backend is left for.
    """

    id: str = Field(pattern=LEASE_ID)
    holder: str = Field(max_length=200)
    until: AwareDatetime
    why: str = Field(default="", max_length=300)
    last_resort: bool = False


class BackendState(Message):
    """A server as a gateway sees it. ``drained_until`` is the end of the last of its leases."""

    in_flight: int
    drained_until: AwareDatetime | None = None
    leases: list[Lease] = []


class CandidateState(Message):
    url: str = ""
    sample: float
    in_flight: int


class EndpointState(Message):
    """``weights`` are by backend. ``listen`` is the address that it has to itself."""

    path: str
    listen: str | None = None
    weights: dict[str, float] = {}
    candidates: dict[str, CandidateState] = {}


class GatewayState(Message):
    backends: dict[str, BackendState] = {}
    endpoints: dict[str, EndpointState] = {}


class Gateways(Message):
    """Where a server's gateways take orders, and how long a restart waits for requests there.

    ``wait_hung`` is for a server that is proved not to work: what it has in flight won't end.
    ``backends`` are those that are behind the gateways of the server and of all that a step of its
    ladder takes along; an older version names none, and means the server.
    """

    urls: list[str]
    token: SecretRef
    wait: Duration
    wait_hung: Duration
    backends: list[str] = []


class DrainRequest(Message):
    """Send nothing more to ``server`` for so long, and wait ``wait`` for what it has in flight.

    With ``last_resort`` it is sent what no other backend is left for. ``servers``, where there are
    any, are drained in place of it alone, and ``wait_others`` is for what those beside it have.
    """

    server: str
    servers: list[str] = []
    lease: str
    why: str = ""
    lasting: Duration
    wait: Duration = timedelta(0)
    wait_others: Duration = timedelta(0)
    last_resort: bool = False
    gateways: Gateways


class DrainResult(Message):
    """``drained`` is how many orders were done, one for each server at each gateway; ``failed``
    says in words which gateways did not, and why.

    ``in_flight`` is what those that did it still had in flight after ``waited``.
    """

    drained: int = 0
    in_flight: int = 0
    waited: Duration = timedelta(0)
    failed: list[str] = []


class UndrainRequest(Message):
    """``servers``, where there are any, are released in place of ``server`` alone."""

    server: str
    servers: list[str] = []
    lease: str
    gateways: Gateways
