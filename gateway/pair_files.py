"""The files of paired samples, each within its limit.

To read and redact a long prompt takes milliseconds in which no other thread of a process runs, so a
process of its own does it (``pair_writer``), and a thread hands the samples to that one.
"""

import asyncio
import queue
import subprocess
import sys
import threading
from contextlib import suppress

from fleet.paired_samples import PairedSample, Place
from gateway.pair_writer import send
from gateway.pairing import Kept, Pairs

#: Samples that wait to be written. What they hold is bounded by the budget of paired samples too.
_MOST_WAITING = 64
_STOP_WITHIN = 5.0

_Item = tuple[Pairs, PairedSample, int]


class PairFiles:
    """``put`` is called on the event loop, and never waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: queue.Queue[_Item | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._writer: subprocess.Popen[bytes] | None = None
        self._stopping = self._given_up = False

    def put(self, pairs: Pairs, sample: PairedSample, held: int) -> bool:
        """Have a sample written, unless too many wait already."""
        if self._stopping:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="paired-samples", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait((pairs, sample, held))
        except queue.Full:
            return False
        return True

    async def stop(self) -> None:
        """Write what waits, as far as the disk takes it in time."""
        self._stopping = True
        if self._thread is not None:
            await asyncio.to_thread(self._end, self._thread)

    def _end(self, thread: threading.Thread) -> None:
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_STOP_WITHIN)
        thread.join(_STOP_WITHIN)
        if thread.is_alive():
            self._given_up = True
            if (writer := self._writer) is not None:
                writer.kill()
            with suppress(queue.Full):
                self._waiting.put(None, timeout=_STOP_WITHIN)
            thread.join(_STOP_WITHIN)

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            pairs, sample, held = item
            result = self._written(pairs, sample)
            del item, sample
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_count, pairs, result, held)
        if self._writer is not None:
            self._close(self._writer)

    def _written(self, pairs: Pairs, sample: PairedSample) -> Kept:
        if self._given_up:
            return Kept.DISK
        try:
            if self._writer is None:
                self._writer = _started()
            return _asked(self._writer, pairs.place, sample)
        except (OSError, ValueError):  # it died, or did not start; the next sample gets another
            if self._writer is not None:
                self._close(self._writer)
                self._writer = None
            return Kept.FAULT

    def _close(self, writer: subprocess.Popen[bytes]) -> None:
        for pipe in (writer.stdin, writer.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            writer.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            writer.kill()
            writer.wait()


def _started() -> subprocess.Popen[bytes]:
    """It ends when its input does; Ctrl-C is for us, who end its input then."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "gateway.pair_writer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def _asked(writer: subprocess.Popen[bytes], place: Place, sample: PairedSample) -> Kept:
    """What the process says became of it.

    Raises:
        OSError, ValueError: it has died.
    """
    assert writer.stdin is not None
    assert writer.stdout is not None
    send(writer.stdin, place, sample)
    return Kept(writer.stdout.readline().decode().strip())


def _count(pairs: Pairs, result: Kept, held: int) -> None:
    pairs.results[result] += 1
    pairs.budget.give_back(held)
