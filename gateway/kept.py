"""What was set through the admin API and outlives the process: leases, samples, candidates.

Pure: what is set is a value, and each order makes a new one of it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from fleet.contracts.gateway import Lease, Percent
from fleet.endpoints import NAME, Candidate, Endpoint

#: Of one backend; each incident has one, and each person.
MOST_LEASES = 32
#: No lease may last longer, whatever a clock or a file says.
LONGEST = timedelta(days=7)

_STRICT = ConfigDict(extra="forbid", frozen=True)


class TooManyLeases(Exception):
    """The backend has as many as it may."""


class Sample(BaseModel):
    """``instead_of`` is what the fleet file said then: where that changes, this no longer holds."""

    model_config = _STRICT

    endpoint: str
    candidate: str
    percent: Percent
    instead_of: float


class Weight(BaseModel):
    """``instead_of`` is what the fleet file said then: where that changes, this no longer holds."""

    model_config = _STRICT

    endpoint: str
    backend: str
    weight: float = Field(ge=0.01, le=100)
    instead_of: float


class Added(BaseModel):
    """A candidate that is not in the fleet file."""

    model_config = _STRICT

    endpoint: str
    candidate: str = Field(pattern=NAME)
    spec: Candidate


class Kept(BaseModel):
    """All that was set. ``leases`` are by backend and by ID."""

    model_config = _STRICT

    version: Literal[1] = 1
    leases: dict[str, dict[str, Lease]] = {}
    samples: tuple[Sample, ...] = ()
    weights: tuple[Weight, ...] = ()
    candidates: tuple[Added, ...] = ()

    def at(self, now: datetime) -> Self:
        """Without the leases that have run out; none lasts for longer than it may."""
        leases = {}
        for backend, held in self.leases.items():
            left = {
                name: lease.model_copy(update={"until": min(lease.until, now + LONGEST)})
                for name, lease in held.items()
                if lease.until > now
            }
            if left:
                leases[backend] = left
        return self.model_copy(update={"leases": leases})

    def fitting(self, endpoints: Mapping[str, Endpoint]) -> tuple[Self, list[str]]:
        """What still fits these endpoints, and in words what does not."""
        gone: list[str] = []
        backends = {name for each in endpoints.values() for name in each.backends}
        gone += [f"the leases of {name}" for name in self.leases if name not in backends]
        in_file = {name for each in endpoints.values() for name in each.candidates}
        samples, weights, candidates = [], [], []
        for added in self.candidates:
            if added.endpoint in endpoints and added.candidate not in in_file:
                candidates.append(added)
            else:
                gone.append(f"the candidate {added.endpoint}/{added.candidate}")
        for sample in self.samples:
            candidate = self.candidate(endpoints, sample.endpoint, sample.candidate)
            if candidate is not None and candidate.sample == sample.instead_of:
                samples.append(sample)
            else:
                gone.append(f"the sample of {sample.endpoint}/{sample.candidate}")
        for weight in self.weights:
            endpoint = endpoints.get(weight.endpoint)
            backend = endpoint.backends.get(weight.backend) if endpoint else None
            if backend is not None and backend.weight == weight.instead_of:
                weights.append(weight)
            else:
                gone.append(f"the weight of {weight.endpoint}/{weight.backend}")
        leases = {name: held for name, held in self.leases.items() if name in backends}
        update = {
            "leases": leases,
            "samples": tuple(samples),
            "weights": tuple(weights),
            "candidates": tuple(candidates),
        }
        return self.model_copy(update=update), gone

    def candidate(
        self, endpoints: Mapping[str, Endpoint], endpoint: str, name: str
    ) -> Candidate | None:
        """A candidate of the fleet file, or one that was added."""
        if endpoint not in endpoints:
            return None
        added = (
            each.spec
            for each in self.candidates
            if (each.endpoint, each.candidate) == (endpoint, name)
        )
        return endpoints[endpoint].candidates.get(name) or next(added, None)

    def added(self, candidate: Added) -> Self:
        """With a candidate, in place of an earlier one of its name; the new sample holds."""
        less = self.removed(candidate.endpoint, candidate.candidate)
        return less.model_copy(update={"candidates": (*less.candidates, candidate)})

    def removed(self, endpoint: str, candidate: str) -> Self:
        """Without a candidate that was added, and what was set for it."""
        at = (endpoint, candidate)
        candidates = tuple(
            each for each in self.candidates if (each.endpoint, each.candidate) != at
        )
        samples = tuple(each for each in self.samples if (each.endpoint, each.candidate) != at)
        return self.model_copy(update={"candidates": candidates, "samples": samples})

    def leased(self, backend: str, lease: Lease) -> Self:
        """With a lease, in place of an earlier one of its ID.

        Raises:
            TooManyLeases: the backend has as many as it may.
        """
        held = {**self.leases.get(backend, {}), lease.id: lease}
        if len(held) > MOST_LEASES:
            raise TooManyLeases(f"{backend} has {MOST_LEASES} leases already: release one")
        return self.model_copy(update={"leases": {**self.leases, backend: held}})

    def released(self, backend: str, lease: str | None = None) -> Self:
        """Without a lease of a backend, or without any."""
        held = self.leases.get(backend, {})
        left = {name: each for name, each in held.items() if lease is not None and name != lease}
        others = {name: each for name, each in self.leases.items() if name != backend}
        leases = {**others, backend: left} if left else others
        return self.model_copy(update={"leases": leases})

    def sampled(self, sample: Sample) -> Self:
        """With a sample; the file's own is nothing that was set."""
        at = (sample.endpoint, sample.candidate)
        rest = tuple(one for one in self.samples if (one.endpoint, one.candidate) != at)
        own = (sample,) if sample.percent != sample.instead_of else ()
        return self.model_copy(update={"samples": rest + own})

    def weighed(self, weight: Weight) -> Self:
        """With a weight; the file's own is nothing that was set."""
        at = (weight.endpoint, weight.backend)
        rest = tuple(one for one in self.weights if (one.endpoint, one.backend) != at)
        own = (weight,) if weight.weight != weight.instead_of else ()
        return self.model_copy(update={"weights": rest + own})

    def percent(self, endpoint: str, candidate: str, spec: Candidate) -> float:
        """What a candidate is sent: what was set, else what its own keys say."""
        set_to = (
            each.percent
            for each in self.samples
            if (each.endpoint, each.candidate) == (endpoint, candidate)
        )
        return next(set_to, spec.sample)

    def weights_of(self, name: str, endpoint: Endpoint) -> dict[str, float]:
        """The weights of an endpoint's backends: what was set, else what the fleet file says."""
        set_to = {each.backend: each.weight for each in self.weights if each.endpoint == name}
        return {each: set_to.get(each, spec.weight) for each, spec in endpoint.backends.items()}

    def drained_until(self, backend: str) -> datetime | None:
        """The end of the last of its leases."""
        return max((each.until for each in self._held(backend)), default=None)

    def closed_until(self, backend: str) -> datetime | None:
        """The end of the last of those that leave it no last resort either."""
        strict = (each.until for each in self._held(backend) if not each.last_resort)
        return max(strict, default=None)

    def _held(self, backend: str) -> Iterable[Lease]:
        return self.leases.get(backend, {}).values()
