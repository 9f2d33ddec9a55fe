"""The bounds of a gateway: bytes, counts, and seconds."""

from dataclasses import dataclass
from typing import NamedTuple

from fleet.endpoints import Gateway

_KIB = 1024


class Share(NamedTuple):
    """The part of one of several processes, counted from 0, that serve one port together."""

    place: int = 0
    of: int = 1

    def part(self, total: int) -> int:
        """The parts of all processes together are ``total``, and none has over one more."""
        return total // self.of + (self.place < total % self.of)


WHOLE = Share()


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, times in seconds. What is not in the fleet file has its value here."""

    clients: int
    head: int
    body: int
    replay: int
    head_within: float
    body_idle: float
    client_idle: float
    client_stall: float
    connect_within: float
    answer_within: float
    answer_idle: float
    backend_idle: float
    finish_within: float
    mirror_budget: int
    paired_budget: int
    share: Share = WHOLE
    #: What a client may send ahead, behind a request that is not yet answered.
    pipelined: int = 64 * _KIB
    #: How long a client may take to read an answer that closes its connection.
    linger: float = 2.0
    #: A backend that can't be reached is asked last for so long.
    rest: float = 1.0
    idle_connections: int = 256


def limits(settings: Gateway, share: Share = WHOLE) -> Limits:
    """The bounds of one process: what bounds all of them together it has its share of."""
    return Limits(
        clients=share.part(settings.max_clients),
        head=settings.max_head,
        body=settings.max_body,
        replay=settings.replay,
        head_within=settings.head_timeout.total_seconds(),
        body_idle=settings.body_timeout.total_seconds(),
        client_idle=settings.keep_alive.total_seconds(),
        client_stall=settings.stall_timeout.total_seconds(),
        connect_within=settings.connect_timeout.total_seconds(),
        answer_within=settings.answer_timeout.total_seconds(),
        answer_idle=settings.chunk_timeout.total_seconds(),
        backend_idle=settings.backend_keep_alive.total_seconds(),
        finish_within=settings.graceful_shutdown.total_seconds(),
        mirror_budget=share.part(settings.mirror_budget),
        paired_budget=share.part(settings.paired_budget),
        share=share,
    )
