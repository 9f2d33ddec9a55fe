"""What the processes of a gateway say to each other: lines of JSON over a pair of sockets."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from fleet.endpoints import Endpoint, Gateway
from gateway.kept import Kept

_MESSAGE = ConfigDict(extra="forbid", frozen=True)

#: Of a line; figures of 500 servers are some megabytes.
LONGEST = 256 * 1024 * 1024
#: The numbers of what answers no question: that it is ready to listen, and its figures at its end.
PREPARED, LAST = 0, -1


class Begin(BaseModel):
    """The first line to a process. ``number`` counts from 1; ``secrets`` are the tokens of
    candidates with endpoint and candidate; ``places`` are where it listens, with the endpoint that
    has the address to itself.
    """

    model_config = _MESSAGE

    number: int
    of: int
    places: list[tuple[str, int, str | None]]
    marker: str
    settings: Gateway
    endpoints: dict[str, Endpoint]
    secrets: list[tuple[str, str, str]]


class Ask(BaseModel):
    """A question to a process; the next ones wait until it is answered.

    ``listen`` and ``apply`` put ``kept`` in force; ``loads`` asks for what is in flight and how
    the process is, ``figures`` for its metrics.
    """

    model_config = _MESSAGE

    number: int
    what: Literal["listen", "apply", "loads", "figures"]
    kept: Kept | None = None


class Reply(BaseModel):
    """``fault`` says why it was not done. ``still`` is for how many seconds its event loop has
    stood still.
    """

    model_config = _MESSAGE

    number: int
    fault: str = ""
    backends: dict[str, int] = {}
    candidates: list[tuple[str, str, int]] = []
    clients: int = 0
    still: float = 0.0
    figures: list[Any] = []


def line(message: BaseModel) -> bytes:
    return message.model_dump_json().encode() + b"\n"
