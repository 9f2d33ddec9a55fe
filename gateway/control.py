"""Orders to a running gateway, from any thread: drain, undrain, samples, weights, candidates.

What an order changes is kept first, then put in force on the event loop, so that nothing that was
answered as done is lost. The data path waits for neither.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TookTooLong
from datetime import UTC, datetime
from typing import NamedTuple

from fleet.contracts.gateway import (
    BackendState,
    CandidateState,
    EndpointState,
    GatewayState,
    Lease,
    LeaseTerms,
)
from fleet.endpoints import MOST_CANDIDATES, Candidate, Endpoint
from gateway.kept import Added, Kept, Sample, Weight
from gateway.mirror import Target
from gateway.server import Gateway

#: For the event loop to take an order; it takes one within milliseconds, or is stuck.
_WITHIN = 5.0

Keep = Callable[[Kept], None]


class Unknown(Exception):
    """There is no such backend, endpoint or candidate. The text is for whoever asked."""


class Conflict(Exception):
    """What is there already forbids it. The text is for whoever asked."""


class NotTaken(Exception):
    """The event loop did not take the order in time. It is kept, and in force when it does."""


class _Backend(NamedTuple):
    endpoint: str
    name: str


class Control:
    """``keep`` writes what is set to where it outlives the process; what it raises is passed on,
    and the order is then not in force.
    """

    def __init__(
        self, gateway: Gateway, endpoints: Mapping[str, Endpoint], kept: Kept, keep: Keep
    ) -> None:
        self._core, self._mirrors = gateway.core, gateway.mirrors
        self._endpoints = endpoints
        self._kept, self._keep = kept, keep
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Put in force what was kept; called on the event loop."""
        self._apply(self._kept)

    # --- orders ----------------------------------------------------------------------------------

    def drain(self, backend: str, lease: str, terms: LeaseTerms) -> Lease:
        """Send nothing more to a backend until the lease runs out or is released.

        Raises:
            Unknown, TooManyLeases, OSError, NotTaken
        """
        self._backend(backend)
        granted = Lease(
            id=lease,
            holder=terms.holder,
            until=_now() + terms.lasting,
            why=terms.why,
            last_resort=terms.last_resort,
        )
        self._order(lambda kept: kept.leased(backend, granted))
        return granted

    def undrain(self, backend: str, lease: str | None = None) -> None:
        """Release a lease, or all; one that is not there is no fault.

        Raises:
            Unknown, OSError, NotTaken
        """
        self._backend(backend)
        self._order(lambda kept: kept.released(backend, lease))

    def sample(self, endpoint: str, candidate: str, percent: float) -> None:
        """Send a candidate another share of the requests.

        Raises:
            Unknown, OSError, NotTaken
        """
        self._endpoint(endpoint)

        def change(kept: Kept) -> Kept:
            spec = kept.candidate(self._endpoints, endpoint, candidate)
            if spec is None:
                raise Unknown(f"the endpoint {endpoint} has no candidate {candidate}")
            return kept.sampled(
                Sample(
                    endpoint=endpoint, candidate=candidate, percent=percent, instead_of=spec.sample
                )
            )

        self._order(change)

    def weigh(self, endpoint: str, backend: str, weight: float) -> None:
        """Give a backend another weight.

        Raises:
            Unknown, OSError, NotTaken
        """
        spec = self._endpoint(endpoint).backends.get(backend)
        if spec is None:
            raise Unknown(f"the endpoint {endpoint} has no backend {backend}")
        order = Weight(endpoint=endpoint, backend=backend, weight=weight, instead_of=spec.weight)
        self._order(lambda kept: kept.weighed(order))

    def add(self, endpoint: str, candidate: str, spec: Candidate) -> None:
        """Mirror to a candidate that the fleet file does not have; or change one that was added.

        Raises:
            Unknown, Conflict, OSError, NotTaken
        """
        in_file = self._endpoint(endpoint).candidates

        def change(kept: Kept) -> Kept:
            owner = self._owner(kept, candidate)
            if candidate in in_file:
                raise Conflict(f"{candidate} is in the fleet file: change it there")
            if owner not in (None, endpoint):
                raise Conflict(f"{candidate} is a candidate of the endpoint {owner} already")
            changed = kept.added(Added(endpoint=endpoint, candidate=candidate, spec=spec))
            own = [each for each in changed.candidates if each.endpoint == endpoint]
            if len(in_file) + len(own) > MOST_CANDIDATES:
                raise Conflict(f"{endpoint} has {MOST_CANDIDATES} candidates already: remove one")
            return changed

        self._order(change)

    def remove(self, endpoint: str, candidate: str) -> None:
        """Take away a candidate that was added; one that is not there is no fault.

        Raises:
            Unknown, Conflict, OSError, NotTaken
        """
        if candidate in self._endpoint(endpoint).candidates:
            raise Conflict(f"{candidate} is in the fleet file: set its sample to 0")
        self._order(lambda kept: kept.removed(endpoint, candidate))

    def _owner(self, kept: Kept, candidate: str) -> str | None:
        """The endpoint that has a candidate: it has a URL of its own, so there is one."""
        for name, endpoint in self._endpoints.items():
            if candidate in endpoint.candidates:
                return name
        added = (each.endpoint for each in kept.candidates if each.candidate == candidate)
        return next(added, None)

    # --- what is shown ---------------------------------------------------------------------------

    def state(self) -> GatewayState:
        with self._lock:
            kept = self._kept.at(_now())
        return GatewayState(
            backends={name: self._shown(kept, name) for name in self._core.router.backends},
            endpoints={name: self._endpoint_state(name) for name in self._endpoints},
        )

    def backend(self, name: str) -> BackendState:
        """One backend.

        Raises:
            Unknown
        """
        self._backend(name)
        with self._lock:
            return self._shown(self._kept.at(_now()), name)

    def _shown(self, kept: Kept, name: str) -> BackendState:
        return BackendState(
            in_flight=self._core.router.backends[name].in_flight,
            drained_until=kept.drained_until(name),
            leases=list(kept.leases.get(name, {}).values()),
        )

    def _endpoint_state(self, name: str) -> EndpointState:
        candidates = {
            each.name: CandidateState(
                url=each.spec.url, sample=each.percent, in_flight=each.in_flight
            )
            for each in self._mirrors.targets[name]
        }
        route = self._core.router.public(name)
        path = self._endpoints[name].path
        return EndpointState(path=path, weights=route.weights, candidates=candidates)

    # --- how it is done --------------------------------------------------------------------------

    def _backend(self, name: str) -> None:
        if name not in self._core.router.backends:
            known = ", ".join(sorted(self._core.router.backends)[:8])
            raise Unknown(f"there is no backend {name}; there are {known}")

    def _endpoint(self, name: str) -> Endpoint:
        if name not in self._endpoints:
            known = ", ".join(sorted(self._endpoints)[:8])
            raise Unknown(f"there is no endpoint {name}; there are {known}")
        return self._endpoints[name]

    def _order(self, change: Callable[[Kept], Kept]) -> None:
        with self._lock:
            changed = change(self._kept.at(_now()))
            self._keep(changed)
            self._kept = changed
            self._on_loop(lambda: self._apply(changed))

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

    def _apply(self, kept: Kept) -> None:
        """Put all of it in force: it is little, and so no order is ever half there."""
        router, wall, now = self._core.router, _now(), time.monotonic()
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
        self._apply_candidates(kept)
        samples = {(each.endpoint, each.candidate): each.percent for each in kept.samples}
        for target in self._targets():
            key = (target.endpoint, target.name)
            target.sample_percent(samples.get(key, target.spec.sample))
        weights = {_Backend(each.endpoint, each.backend): each.weight for each in kept.weights}
        for name, endpoint in self._endpoints.items():
            router.public(name).weigh(
                {
                    server: weights.get(_Backend(name, server), spec.weight)
                    for server, spec in endpoint.backends.items()
                }
            )

    def _apply_candidates(self, kept: Kept) -> None:
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


def _now() -> datetime:
    return datetime.now(UTC)
