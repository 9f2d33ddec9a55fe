"""Orders to a running gateway, from any thread: drain, undrain, samples, weights, candidates.

What an order changes is kept first, then put in force on the event loop, so that nothing that was
answered as done is lost. The data path waits for neither.
"""

import threading
from collections.abc import Callable, Mapping
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
from gateway.plane import At, Loads, Plane

Keep = Callable[[Kept], None]


class Unknown(Exception):
    """There is no such backend, endpoint or candidate. The text is for whoever asked."""


class Conflict(Exception):
    """What is there already forbids it. The text is for whoever asked."""


class Granted(NamedTuple):
    """``waiting`` says in words what serves nothing at the moment, and begins with the order."""

    lease: Lease
    waiting: list[str]


class Control:
    """``keep`` writes what is set to where it outlives the process; what it raises is passed on,
    and the order is then not in force.
    """

    def __init__(
        self, endpoints: Mapping[str, Endpoint], kept: Kept, keep: Keep, plane: Plane
    ) -> None:
        self._endpoints = endpoints
        names = (name for each in endpoints.values() for name in each.backends)
        self._backends = dict.fromkeys(names)
        self._kept, self._keep, self._plane = kept, keep, plane
        self._lock = threading.Lock()

    # --- orders ----------------------------------------------------------------------------------

    def drain(self, backend: str, lease: str, terms: LeaseTerms) -> Granted:
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
        return Granted(granted, self._order(lambda kept: kept.leased(backend, granted)))

    def undrain(self, backend: str, lease: str | None = None) -> list[str]:
        """Release a lease, or all; one that is not there is no fault.

        Raises:
            Unknown, OSError, NotTaken
        """
        self._backend(backend)
        return self._order(lambda kept: kept.released(backend, lease))

    def sample(self, endpoint: str, candidate: str, percent: float) -> list[str]:
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

        return self._order(change)

    def weigh(self, endpoint: str, backend: str, weight: float) -> list[str]:
        """Give a backend another weight.

        Raises:
            Unknown, OSError, NotTaken
        """
        spec = self._endpoint(endpoint).backends.get(backend)
        if spec is None:
            raise Unknown(f"the endpoint {endpoint} has no backend {backend}")
        order = Weight(endpoint=endpoint, backend=backend, weight=weight, instead_of=spec.weight)
        return self._order(lambda kept: kept.weighed(order))

    def add(self, endpoint: str, candidate: str, spec: Candidate) -> list[str]:
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

        return self._order(change)

    def remove(self, endpoint: str, candidate: str) -> list[str]:
        """Take away a candidate that was added; one that is not there is no fault.

        Raises:
            Unknown, Conflict, OSError, NotTaken
        """
        if candidate in self._endpoint(endpoint).candidates:
            raise Conflict(f"{candidate} is in the fleet file: set its sample to 0")
        return self._order(lambda kept: kept.removed(endpoint, candidate))

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
        loads = self._plane.loads()
        return GatewayState(
            backends={name: _shown(kept, name, loads) for name in self._backends},
            endpoints={name: self._endpoint_state(kept, name, loads) for name in self._endpoints},
        )

    def backend(self, name: str) -> BackendState:
        """One backend.

        Raises:
            Unknown
        """
        self._backend(name)
        with self._lock:
            kept = self._kept.at(_now())
        return _shown(kept, name, self._plane.loads())

    def _endpoint_state(self, kept: Kept, name: str, loads: Loads) -> EndpointState:
        endpoint = self._endpoints[name]
        added = {each.candidate: each.spec for each in kept.candidates if each.endpoint == name}
        candidates = {
            candidate: CandidateState(
                url=spec.url,
                sample=kept.percent(name, candidate, spec),
                in_flight=loads.candidates[At(name, candidate)],
            )
            for candidate, spec in {**endpoint.candidates, **added}.items()
        }
        weights = kept.weights_of(name, endpoint)
        return EndpointState(
            path=endpoint.path, listen=endpoint.listen, weights=weights, candidates=candidates
        )

    # --- how it is done --------------------------------------------------------------------------

    def _backend(self, name: str) -> None:
        if name not in self._backends:
            known = ", ".join(sorted(self._backends)[:8])
            raise Unknown(f"there is no backend {name}; there are {known}")

    def _endpoint(self, name: str) -> Endpoint:
        if name not in self._endpoints:
            known = ", ".join(sorted(self._endpoints)[:8])
            raise Unknown(f"there is no endpoint {name}; there are {known}")
        return self._endpoints[name]

    def _order(self, change: Callable[[Kept], Kept]) -> list[str]:
        with self._lock:
            changed = change(self._kept.at(_now()))
            self._keep(changed)
            self._kept = changed
            return self._plane.apply(changed)


def _shown(kept: Kept, backend: str, loads: Loads) -> BackendState:
    return BackendState(
        in_flight=loads.backends[backend],
        drained_until=kept.drained_until(backend),
        leases=list(kept.leases.get(backend, {}).values()),
    )


def _now() -> datetime:
    return datetime.now(UTC)
