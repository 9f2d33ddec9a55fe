"""What an order is put in force on: the gateway of one process, or a group of them."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TookTooLong
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from fleet.endpoints import Endpoint
from gateway.kept import Kept
from gateway.mirror import Target
from gateway.server import Gateway

#: For the event loop to take an order; it takes one within milliseconds, or is stuck.
_WITHIN = 5.0


class NotTaken(Exception):
    """An order was not taken in time. It is kept, and in force when it is taken."""


class At(NamedTuple):
    """A candidate of an endpoint."""

    endpoint: str
    candidate: str


@dataclass
class Loads:
    """Requests in flight, by backend and by candidate."""

    backends: Counter[str] = field(default_factory=Counter)
    candidates: Counter[At] = field(default_factory=Counter)


class Plane(Protocol):
    """Called from any thread but the event loop's."""

    def apply(self, kept: Kept) -> list[str]:
        """Put all that was set in force. Gives, in words, what serves nothing at the moment and
        begins with it.

        Raises:
            NotTaken
        """

    def loads(self) -> Loads:
        """What is in flight now."""


class Local:
    """The gateway of this process."""

    def __init__(self, gateway: Gateway, endpoints: Mapping[str, Endpoint]) -> None:
        self._core, self._mirrors = gateway.core, gateway.mirrors
        self._endpoints = endpoints

    def apply(self, kept: Kept) -> list[str]:
        self._on_loop(lambda: self.put_in_force(kept))
        return []

    def loads(self) -> Loads:
        return Loads(
            Counter({name: each.in_flight for name, each in self._core.router.backends.items()}),
            Counter({At(each.endpoint, each.name): each.in_flight for each in self._targets()}),
        )

    def put_in_force(self, kept: Kept) -> None:
        """On the event loop. It is all of it, and little, so no order is ever half there."""
        router, wall, now = self._core.router, datetime.now(UTC), time.monotonic()
        for name in router.backends:
            until, closed = kept.drained_until(name), kept.closed_until(name)
            if until is None:
                router.undrain(name)
                continue
            router.drain(
                name,
                now + (until - wall).total_seconds(),
                now + (closed - wall).total_seconds() if closed is not None else 0.0,
            )
        self._put_candidates(kept)
        for target in self._targets():
            target.sample_percent(kept.percent(target.endpoint, target.name, target.spec))
        for name, endpoint in self._endpoints.items():
            router.public(name).weigh(kept.weights_of(name, endpoint))

    def _put_candidates(self, kept: Kept) -> None:
        wanted = {(each.endpoint, each.candidate): each.spec for each in kept.candidates}
        for target in self._targets():
            at = (target.endpoint, target.name)
            if target.name in self._endpoints[target.endpoint].candidates:
                continue
            if wanted.get(at) == target.spec:
                del wanted[at]
                continue
            self._mirrors.remove(*at)
            self._core.router.remove_candidate(target.name)
        for (endpoint, candidate), spec in wanted.items():
            self._mirrors.add(endpoint, candidate, spec)
            self._core.router.add_candidate(endpoint, candidate, spec.url)

    def _targets(self) -> list[Target]:
        return [each for targets in self._mirrors.targets.values() for each in targets]

    def _on_loop(self, act: Callable[[], None]) -> None:
        done: Future[None] = Future()

        def turn() -> None:
            try:
                act()
            except Exception as fault:  # noqa: BLE001 - told to whoever gave the order
                done.set_exception(fault)
            else:
                done.set_result(None)

        try:
            self._core.loop.call_soon_threadsafe(turn)
            done.result(_WITHIN)
        except (TookTooLong, RuntimeError) as problem:
            raise NotTaken("the gateway's event loop did not take the order in time") from problem
