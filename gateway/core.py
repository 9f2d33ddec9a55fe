"""What all connections of one gateway process share."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.costs import Costs
from gateway.heads import RequestHead
from gateway.limits import Limits
from gateway.pairing import Pair
from gateway.routing import Route, Router
from gateway.sweeper import Sweeper
from gateway.tally import Tally


class Tee(Protocol):
    """Where a request's body goes besides production. None of it raises, waits or takes long."""

    pair: Pair | None

    def body(self, data: bytes) -> None: ...
    def end(self, trailers: bytes) -> None: ...
    def rejected(self) -> None: ...
    def aborted(self) -> None: ...
    def over(self) -> None: ...


class Mirroring(Protocol):
    def tee(self, head: RequestHead, route: Route) -> Tee | None:
        """The mirrors of a request, decided by its head; none where it has none."""

    def is_loop(self, head: RequestHead) -> bool:
        """Whether it is a mirrored request of this gateway."""


@dataclass
class Core:
    """``clients`` are the open connections; ``empty`` is set while there is none. ``dry`` are the
    exchanges whose clients have gone.
    """

    loop: asyncio.AbstractEventLoop
    limits: Limits
    sweeper: Sweeper
    router: Router
    tally: Tally
    costs: Costs
    mirroring: Mirroring | None = None
    stopping: bool = False
    clients: set[Any] = field(default_factory=set)
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    dry: set[Any] = field(default_factory=set)
