"""What an answer shows as it passes: when its tokens came, and how many they were.

It sees the bytes that are passed on anyway, and neither changes nor delays one. A fault in it ends
the looking, and nothing else.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from gateway.events import Events
from gateway.heads import COMPRESSED, JSON, STREAM, AnswerHead, RequestHead
from gateway.tally import DURATION, Generation, Series
from gateway.usage import model, usage

#: Of an answer in JSON only the end is kept, where its usage stands.
TAIL = 16 * 1024

#: Why of an answer, or of a part of it, nothing is known of tokens.
NO_USAGE, LONG_EVENT, FAULT = "no_usage", "long_event", "fault"


class Observer(Protocol):
    """``over`` is called once: ``whole`` where the answer came to its own end."""

    def body(self, data: bytes) -> None: ...
    def over(self, *, whole: bool) -> None: ...


def observe(
    series: Series, request: RequestHead, answer: AnswerHead, began: float
) -> Observer | None:
    """Who looks at an answer; none where it is no success, or of nothing that a model was asked."""
    made, operation = _OBSERVERS.get(answer.form), request.operation
    if made is None or operation is None or not 200 <= answer.status < 300:
        return None
    return made(series, operation, began)


class _Timed:
    """An answer of which nothing but the time is known."""

    __slots__ = ("_began", "_generation", "_is_over", "_model", "_operation", "_series")

    def __init__(self, series: Series, operation: str, began: float) -> None:
        self._series, self._operation = series, operation
        self._generation: Generation | None = None
        self._model = b""
        self._began = began
        self._is_over = False

    def _found(self) -> Generation:
        """Where it is counted: that takes the name of the model, where the answer has said it."""
        found = self._generation
        if found is None:
            found = self._generation = self._series.generation(self._operation, self._model)
        return found

    def over(self, *, whole: bool) -> None:
        if self._is_over:
            return
        self._is_over = True
        try:
            generation = self._found()
            if whole:
                generation.whole.add(time.monotonic() - self._began)
            self._book(generation, whole=whole)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is not production's
            _tell(fault)

    def _book(self, generation: Generation, *, whole: bool) -> None:
        raise NotImplementedError

    def _give_up(self, fault: Exception) -> None:
        self._is_over = True
        self._found().unread[FAULT] += 1
        _tell(fault)


class _OfCompressed(_Timed):
    __slots__ = ()

    def body(self, data: bytes) -> None:
        """It is not unpacked."""

    def _book(self, generation: Generation, *, whole: bool) -> None:
        if whole:
            generation.unread[COMPRESSED] += 1


class _OfWhole(_Timed):
    """An answer in JSON, which comes when it is finished."""

    __slots__ = ("_tail",)

    def __init__(self, series: Series, operation: str, began: float) -> None:
        self._series, self._operation = series, operation
        self._generation: Generation | None = None
        self._model = self._tail = b""
        self._began = began
        self._is_over = False

    def body(self, data: bytes) -> None:
        if not self._tail and len(data) <= TAIL:
            self._tail = data
            return
        if not self._model:
            self._model = model(self._tail or data)
        self._tail = data[-TAIL:] if len(data) >= TAIL else (self._tail + data)[-TAIL:]

    def _found(self) -> Generation:
        if not self._model:
            self._model = model(self._tail)
        return self._series.generation(self._operation, self._model)

    def _book(self, generation: Generation, *, whole: bool) -> None:
        read, written = usage(self._tail)
        if read is not None:
            generation.input.book(read, whole=whole)
        if written is not None:
            generation.told.book(written, whole=whole)
        if whole and read is None and written is None:
            generation.unread[NO_USAGE] += 1


class _OfStream(_Timed):
    """Server-sent events. All that arrive at once have one time."""

    __slots__ = ("_events", "_first", "_latest")

    def __init__(self, series: Series, operation: str, began: float) -> None:
        super().__init__(series, operation, began)
        self._events = Events()
        self._first = self._latest = 0.0

    def body(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            generated = self._events.feed(data)
            generation = self._generation
            if generation is None:
                self._model = self._model or model(data)
            if not generated:
                return
            if generation is None:
                generation = self._found()
            now = time.monotonic()
            if self._latest:
                gaps, gap = generation.gaps, now - self._latest
                gaps.counts[bisect_left(DURATION, gap)] += 1
                gaps.total += gap
            else:
                self._first = now
                generation.first_token.add(now - self._began)
            for _ in range(generated - 1):
                generation.gaps.add(0.0)
            self._latest = now
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is not production's
            self._give_up(fault)

    def _book(self, generation: Generation, *, whole: bool) -> None:
        events = self._events
        events.end()
        told = events.output
        # What was told before a stream broke off was not of its end.
        is_told = told is not None and (whole or told >= events.generated)
        tokens = told if is_told and told is not None else events.generated
        if events.input is not None:
            generation.input.book(events.input, whole=whole)
        if is_told or tokens:
            (generation.told if is_told else generation.counted).book(tokens, whole=whole)
        elif whole:
            generation.unread[NO_USAGE] += 1
        if whole and tokens > 1 and self._latest:
            per_token = generation.per_told if is_told else generation.per_counted
            per_token.add((self._latest - self._first) / (tokens - 1))
        if events.failed:
            generation.failed += 1
        if events.too_long:
            generation.unread[LONG_EVENT] += 1


_OBSERVERS: dict[str, Callable[[Series, str, float], Observer]] = {
    STREAM: _OfStream,
    JSON: _OfWhole,
    COMPRESSED: _OfCompressed,
}


def _tell(fault: Exception) -> None:
    context = {"message": "a fault in measuring an answer", "exception": fault}
    asyncio.get_running_loop().call_exception_handler(context)
