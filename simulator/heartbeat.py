"""A simulated worker: a real process that publishes a heartbeat record as a user's worker would.

``python -m simulator.heartbeat --url redis://… --key worker:a --name a``. It takes jobs and rests
between them. While it boots it writes nothing, so that the record of its predecessor stays.

SIGUSR1: freeze in the next job. SIGUSR2: say ``error``, and again: work on. SIGTERM: end.
Being frozen is a real SIGSTOP, which SIGCONT ends.
"""

import argparse
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar

from redis import Redis
from redis.exceptions import RedisError

from simulator.parent import die_with_parent


@dataclass(frozen=True)
class Options:
    """``boot``, ``interval``, ``job`` and ``rest`` are seconds; a ``doomed`` one always freezes."""

    PROGRAM: ClassVar[str] = __file__
    FREEZES_WHOLE: ClassVar[bool] = True

    url: str
    key: str
    name: str
    boot: float = 2.0
    interval: float = 0.5
    job: float = 3.0
    rest: float = 1.0
    doomed: bool = False


class HeartbeatWorker:
    """Works until it is told to end, or its parent is gone."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._parent = os.getppid()
        self._store = Redis.from_url(options.url, socket_timeout=1, socket_connect_timeout=1)
        self._process = f"{os.getpid()}@{time.time():.3f}"
        self._progress = 0
        self._freeze = options.doomed
        self._is_ill = False

    def run(self) -> None:
        signal.signal(signal.SIGUSR1, self._on_freeze)
        signal.signal(signal.SIGUSR2, self._on_error)
        signal.signal(signal.SIGTERM, _on_end)
        _say(f"loading {self._options.name} for {self._options.boot:g} s")
        time.sleep(self._options.boot)
        for number in itertools.count(1):
            self._work(f"job-{number}")
            self._spend(self._options.rest, "idle", "")

    def _work(self, job: str) -> None:
        _say(f"began {job}")
        self._publish("processing", job)
        if self._freeze:
            self._freeze = False
            _say(f"froze in {job}")
            os.kill(os.getpid(), signal.SIGSTOP)
        self._spend(self._options.job, "processing", job)
        _say(f"finished {job}")

    def _spend(self, seconds: float, state: str, job: str) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._freeze:
            self._publish(state, job)
            time.sleep(self._options.interval)

    def _publish(self, state: str, job: str) -> None:
        if os.getppid() != self._parent:
            sys.exit(0)
        self._progress += 1
        record: Mapping[Any, str] = {
            "state": "error" if self._is_ill else state,
            "heartbeat": f"{time.time():.3f}",
            "progress": str(self._progress),
            "job": job,
            "process": self._process,
        }
        # A store that is away is no reason for a worker to stop working.
        with contextlib.suppress(RedisError, OSError):
            self._store.hset(self._options.key, mapping=record)

    def _on_freeze(self, _signal: int, _frame: FrameType | None) -> None:
        self._freeze = True

    def _on_error(self, _signal: int, _frame: FrameType | None) -> None:
        self._is_ill = not self._is_ill
        _say("CUDA error: an illegal memory access was encountered" if self._is_ill else "well")


def _on_end(_signal: int, _frame: FrameType | None) -> None:
    _say("told to end")
    sys.exit(0)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m simulator.heartbeat", description=__doc__)
    for name in ("url", "key", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("boot", "interval", "job", "rest"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Options, name))
    parser.add_argument("--doomed", action="store_true", help="freeze in the first job")
    HeartbeatWorker(Options(**vars(parser.parse_args()))).run()


if __name__ == "__main__":
    main()
