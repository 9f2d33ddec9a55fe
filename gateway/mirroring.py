"""Which requests are mirrored where, decided by their heads; and their bodies, to all mirrors.

Production calls ``Fan`` with each chunk that it was sent itself. Nothing here waits for a mirror.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from hashlib import blake2b
from typing import ParamSpec, TypeVar

from fleet.endpoints import Candidate, Endpoint
from gateway.chunks import Budget, offer
from gateway.core import Core, Tee
from gateway.heads import RequestHead
from gateway.mirror import CantEdit, MirroredRequest, Result, Target
from gateway.pace import Pace
from gateway.pair_files import PairFiles
from gateway.pairing import Kept, Pair, Pairs
from gateway.routing import Route

_RANGE = 2**64

P = ParamSpec("P")
T = TypeVar("T")


def _contained(method: Callable[P, T]) -> Callable[P, T | None]:
    """A fault of ours in mirroring is told, and ends nothing of production's."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return method(*args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is not production's
            _tell(fault)
            if isinstance(args[0], Fan):
                args[0].give_up()
            return None

    return call


def _tell(fault: Exception) -> None:
    context = {"message": "a fault in mirroring", "exception": fault}
    asyncio.get_running_loop().call_exception_handler(context)


class Fan:
    """The mirrors of one request."""

    def __init__(
        self, mirrors: list[MirroredRequest], budget: Budget, pair: Pair | None = None
    ) -> None:
        self.pair = pair
        self._mirrors = mirrors
        for each in mirrors:
            each.pair = pair
        self._budget = budget

    def body(self, data: bytes) -> None:
        """The next bytes; the same object as production's, which nobody changes."""
        try:
            self._offer(data)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is not production's
            self._broke(fault)

    def _offer(self, data: bytes) -> None:
        full, has_room = offer(data, [each.buffer for each in self._mirrors], self._budget)
        if full:
            for each in self._mirrors:
                if each.buffer in full:
                    each.finish(Result.BUFFER_OVERFLOW)
        if not has_room:
            self._finish(Result.BUDGET_EXCEEDED)
        for each in self._mirrors:
            each.go_on()
        if self.pair is not None:
            self.pair.request(data)

    def end(self, trailers: bytes) -> None:  # noqa: ARG002 - a mirror gets none
        try:
            for each in self._mirrors:
                each.on_request_end()
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is not production's
            self._broke(fault)

    @_contained
    def rejected(self) -> None:
        """Production did not take the whole body."""
        self._finish(Result.PRODUCTION_REJECTED)

    @_contained
    def aborted(self) -> None:
        """The client has gone before it had its answer: no candidate works for nobody."""
        self._finish(Result.CLIENT_ABORTED)

    def over(self) -> None:
        """Production's answer has ended, well or not."""
        if self.pair is not None:
            self._pair_over(self.pair)

    @_contained
    def _pair_over(self, pair: Pair) -> None:
        pair.production_over()

    def _broke(self, fault: Exception) -> None:
        _tell(fault)
        self.give_up()

    def give_up(self) -> None:
        """What has a gap is no copy any more."""
        self._finish(Result.SHUTDOWN)

    def _finish(self, result: Result) -> None:
        if self.pair is not None and result is not Result.BUDGET_EXCEEDED:
            self.pair.give_up(Kept.INCOMPLETE)
        for each in self._mirrors:
            each.finish(result)


class Mirrors:
    """All candidates of a gateway. ``secrets`` are by endpoint and candidate. By the ``token`` a
    mirrored request is known that comes back.
    """

    def __init__(
        self,
        core: Core,
        endpoints: Mapping[str, Endpoint],
        secrets: Mapping[tuple[str, str], str],
        token: str,
    ) -> None:
        self.budget = Budget(core.limits.mirror_budget)
        self.running: set[object] = set()
        self.token = token.encode()
        self.pace = Pace(core.loop)
        self.paired = Budget(core.limits.paired_budget)
        self.files = PairFiles(core.loop)
        self.pairs = {
            name: Pairs(
                name,
                spec,
                self.paired,
                self.files.put,
                sample_by=endpoint.sample_by,
                processes=core.limits.share.of,
            )
            for name, endpoint in endpoints.items()
            if (spec := endpoint.paired_samples) is not None
        }
        self._core = core
        self._by_header: dict[str, bytes] = {}
        self.targets: dict[str, list[Target]] = {}
        for name, endpoint in endpoints.items():
            self.targets[name] = []
            for candidate, kept in endpoint.candidates.items():
                self.add(name, candidate, kept, secrets.get((name, candidate)))
            kind, _, header = endpoint.sample_by.partition(":")
            if kind == "header":
                self._by_header[name] = header.lower().encode()

    def add(
        self, endpoint: str, candidate: str, spec: Candidate, secret: str | None = None
    ) -> None:
        """Mirror to a candidate from the next request on."""
        one = Target(
            endpoint=endpoint,
            name=candidate,
            spec=spec,
            core=self._core,
            budget=self.budget,
            marker=b"%b; %b" % (candidate.encode(), self.token),
            pace=self.pace,
            secret=secret,
        )
        self.targets[endpoint] = [*self.targets[endpoint], one]
        self._core.tally.providers[endpoint, candidate] = spec.provider or ""

    def remove(self, endpoint: str, candidate: str) -> None:
        """Take a candidate away. What is mirrored to it ends, counted; nothing else does."""
        gone = [each for each in self.targets[endpoint] if each.name == candidate]
        self.targets[endpoint] = [each for each in self.targets[endpoint] if each not in gone]
        for each in tuple(self.running):
            assert isinstance(each, MirroredRequest)
            if each.target in gone:
                each.finish(Result.SHUTDOWN)
        for target in gone:
            target.pool.close()

    def sampled_by(self, endpoint: str) -> str:
        """The key of the endpoint's samples, as the fleet file has it."""
        header = self._by_header.get(endpoint)
        return "request" if header is None else f"header:{header.decode()}"

    def is_loop(self, head: RequestHead) -> bool:
        """Whether a mirrored request of this gateway came back to it."""
        return head.marked is not None and self.token in head.marked

    @_contained
    def tee(self, head: RequestHead, route: Route) -> Tee | None:
        """The mirrors of a request of production; none where it has none."""
        targets = [each for each in self.targets[route.endpoint] if each.sample]
        if not targets or self._core.stopping:
            return None
        reason = _unmirrored(head, route)
        if reason:
            self._core.tally.unmirrored[route.endpoint, reason] += 1
            return None
        place = self._place(head, route.endpoint)
        mirrors = self._begun([each for each in targets if place < each.sample], head, route)
        if not mirrors:
            return None
        pairs = self.pairs.get(route.endpoint)
        pair = pairs.begin(head.path, [each.name for each in mirrors]) if pairs else None
        return Fan(mirrors, self.budget, pair)

    def _begun(
        self, targets: Iterable[Target], head: RequestHead, route: Route
    ) -> list[MirroredRequest]:
        found: list[MirroredRequest] = []
        reasons: set[str] = set()
        for each in targets:
            try:
                edit = each.edit(head)
            except CantEdit as refusal:
                reasons.add(str(refusal))
                continue
            if self._has_place(each):
                found.append(MirroredRequest(each, head, route, self.running, edit))
        for reason in sorted(reasons):
            self._core.tally.unmirrored[route.endpoint, reason] += 1
        return found

    def _place(self, head: RequestHead, endpoint: str) -> float:
        """Where the request's key lies from 0 to 1: below the share of a candidate, it is in."""
        wanted = self._by_header.get(endpoint)
        if wanted is not None:
            for low, _, value in head.fields:
                if low == wanted:
                    digest = blake2b(value, digest_size=8).digest()
                    return int.from_bytes(digest) / _RANGE
        return random.random()  # noqa: S311 - a sample, and no secret

    def _has_place(self, target: Target) -> bool:
        if target.resting_until > self._core.sweeper.now:
            target.count(Result.CANDIDATE_NOT_READY)
        elif target.in_flight >= target.most:
            target.count(Result.CONCURRENCY_LIMITED)
        else:
            return True
        return False

    def stop(self) -> None:
        """Cancel all mirrors."""
        for each in tuple(self.running):
            assert isinstance(each, MirroredRequest)
            each.finish(Result.SHUTDOWN)
        for targets in self.targets.values():
            for target in targets:
                target.pool.close()


def _unmirrored(head: RequestHead, route: Route) -> str | None:
    """Why a request can't be mirrored at all; none where it can."""
    if head.method != b"POST":
        return "method"
    if head.path not in route.mirrored:
        return "path"
    return "marked" if head.marked is not None else None
