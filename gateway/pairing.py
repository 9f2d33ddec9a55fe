"""Paired samples: a request, production's answer and the candidates', kept for people to compare.

What is kept is held in memory until all have answered, within a budget of its own; then a thread
writes it. Whatever has no room is dropped and counted; production never waits for any of it.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Concatenate, ParamSpec

from fleet.endpoints import PairedSamples
from fleet.paired_samples import Answer, PairedSample, Place
from gateway.chunks import Budget
from gateway.heads import COMPRESSED, OTHER, STREAM, AnswerHead
from gateway.observing import Observer

_DAY = 86_400.0


class Kept(StrEnum):
    """What became of a paired sample; each ends in exactly one."""

    WRITTEN = "written"
    TOO_LONG = "too_long"
    NO_MEMORY = "no_memory"
    INCOMPLETE = "incomplete"
    NO_ANSWER = "no_answer"
    NOT_READABLE = "not_readable"
    DISK = "disk"
    FAULT = "fault"


class _Part:
    """The request, or one answer."""

    __slots__ = ("chunks", "form", "result", "seconds", "size", "status")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0
        self.status = 0
        self.form = OTHER
        self.seconds = 0.0
        self.result = ""

    def answer(self) -> Answer:
        return Answer(
            result=self.result,
            status=self.status,
            seconds=self.seconds,
            is_stream=self.form == STREAM,
            body=self.chunks,
        )


Put = Callable[["Pairs", PairedSample, int], bool]


class Pairs:
    """The paired samples of one endpoint. ``put`` hands one to the thread that writes, and says
    whether there was room for it. So many ``processes`` keep ``a_day`` of them together.
    """

    def __init__(  # noqa: PLR0913 - what an endpoint says, and what all share
        self,
        endpoint: str,
        spec: PairedSamples,
        budget: Budget,
        put: Put,
        *,
        sample_by: str = "request",
        processes: int = 1,
    ) -> None:
        self.endpoint = endpoint
        self.longest = spec.longest
        self.place = Place(spec.file, spec.limit, spec.redact)
        self.sample_by = sample_by
        self.budget = budget
        self.results: Counter[Kept] = Counter()
        self.put = put
        self._every = _DAY * processes / spec.a_day
        # Not at once: a gateway that is restarted often would keep more than so many a day.
        self.due = time.monotonic() + random.random() * self._every  # noqa: S311 - no secret

    def begin(self, path: bytes, candidates: list[str]) -> "Pair | None":
        """Keep the next request, where one is due."""
        now = time.monotonic()
        if now < self.due:
            return None
        self.due = now + self._every
        return Pair(self, path, candidates, now)


P = ParamSpec("P")
_Step = Callable[Concatenate["Pair", P], None]


def _contained(method: _Step[P]) -> _Step[P]:
    """A fault of ours is told, and ends this sample and nothing else."""

    def call(pair: "Pair", /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(pair, *args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is not production's
            pair.give_up(Kept.FAULT)
            context = {"message": "a fault in keeping a paired sample", "exception": fault}
            asyncio.get_running_loop().call_exception_handler(context)

    return call


class Pair:
    """One request that is kept, while it is answered."""

    def __init__(self, pairs: Pairs, path: bytes, candidates: list[str], began: float) -> None:
        self.over = False
        self._pairs = pairs
        self._at = datetime.now(UTC)
        self._path = path
        self._began = began
        self._held = 0
        self._server = ""
        self._request = _Part()
        self._production = _Part()
        self._candidates = {name: _Part() for name in candidates}

    def request(self, data: bytes) -> None:
        self.keep(self._request, data)

    def of_production(self, head: AnswerHead, server: str, inner: Observer | None) -> Observer:
        """Who keeps production's answer, and passes it on to ``inner``."""
        self._server = server
        return _Captured(self, self._production, head, inner)

    def of_candidate(self, head: AnswerHead, name: str, inner: Observer | None) -> Observer:
        return _Captured(self, self._candidates[name], head, inner)

    @_contained
    def production_over(self) -> None:
        """Production has nothing more to say."""
        if not self._production.result:
            self.give_up(Kept.INCOMPLETE)

    @_contained
    def candidate_over(self, name: str, result: str) -> None:
        part = self._candidates[name]
        part.result = result
        part.seconds = time.monotonic() - self._began
        self._finish()

    def give_up(self, why: Kept) -> None:
        if not self.over:
            self._pairs.results[why] += 1
            self._pairs.budget.give_back(self._held)
            self._close()

    @_contained
    def keep(self, part: _Part, data: bytes) -> None:
        if self.over:
            return
        part.size += len(data)
        if part.size > self._pairs.longest:
            self.give_up(Kept.TOO_LONG)
        elif not self._pairs.budget.take(len(data)):
            self.give_up(Kept.NO_MEMORY)
        else:
            self._held += len(data)
            part.chunks.append(data)

    @_contained
    def answered(self, part: _Part, *, whole: bool) -> None:
        if part is not self._production:
            return  # a mirrored request says itself what became of it
        if not whole:
            self.give_up(Kept.INCOMPLETE)
            return
        part.result = "completed"
        part.seconds = time.monotonic() - self._began
        self._finish()

    def _finish(self) -> None:
        if self.over or not self._production.result:
            return
        results = [part.result for part in self._candidates.values()]
        if not all(results):
            return
        if "completed" not in results:
            self.give_up(Kept.NO_ANSWER)
            return
        sample = PairedSample(
            at=self._at.isoformat(timespec="milliseconds"),
            endpoint=self._pairs.endpoint,
            path=self._path.decode("latin-1"),
            sample_by=self._pairs.sample_by,
            server=self._server,
            request=self._request.chunks,
            production=self._production.answer(),
            candidates={name: part.answer() for name, part in self._candidates.items()},
        )
        if self._pairs.put(self._pairs, sample, self._held):
            self._close()
        else:
            self.give_up(Kept.DISK)

    def _close(self) -> None:
        self.over = True
        self._request = self._production = _Part()
        self._candidates = {name: _Part() for name in self._candidates}


class _Captured:
    """Keeps an answer as it passes, beside whoever looks at it anyway."""

    __slots__ = ("_inner", "_pair", "_part")

    def __init__(self, pair: Pair, part: _Part, head: AnswerHead, inner: Observer | None) -> None:
        self._pair, self._part, self._inner = pair, part, inner
        part.status, part.form = head.status, head.form
        if head.form == COMPRESSED:
            pair.give_up(Kept.NOT_READABLE)

    def body(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.body(data)
        self._pair.keep(self._part, data)

    def over(self, *, whole: bool) -> None:
        if self._inner is not None:
            self._inner.over(whole=whole)
        self._pair.answered(self._part, whole=whole)
