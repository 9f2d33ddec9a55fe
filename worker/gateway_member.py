"""One of several gateway processes, as the process that started it sees it."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import structlog
from pydantic import ValidationError

from gateway.figures import Figures, lasting, together, unpacked
from gateway.kept import Kept
from worker.errors import SetupError
from worker.gateway_talk import LAST, LONGEST, PREPARED, Ask, Begin, Reply, line

#: From its start until it listens; on a busy machine an import takes seconds.
_READY_WITHIN = 60.0
#: Before the first, second … start of a process that ended within a minute of the one before. After
#: the last of them it is given up.
BACK_OFF = (0.1, 0.5, 2.0, 5.0, 15.0)
_LONG_ENOUGH = 60.0
#: Beyond what it gives to what is in flight, when it is told to stop.
_SPARE = 8.0
#: Of questions that wait for an answer; a process that is stopped is asked no more.
_MOST_UNANSWERED = 16

_log = structlog.get_logger(__name__)


def pause_before(short_lives: int) -> float | None:
    """Seconds until it is started anew, after so many short lives in a row; none: it is not."""
    return BACK_OFF[short_lives - 1] if short_lives <= len(BACK_OFF) else None


class Member:
    """``wanted`` is what is in force; a process begins with it.

    ``is_live`` says that it takes orders, ``given_up`` that it is not started any more. ``figures``
    are the last that were seen of it, ``past`` what those before it counted, and ``loads`` the
    last answer about what it has in flight.
    """

    def __init__(self, begin: Begin, wanted: Callable[[], Kept]) -> None:
        self.number = begin.number
        self.is_live = self.given_up = False
        self.restarts = 0
        self.figures: Figures = {}
        self.past: Figures = {}
        self.loads: Reply | None = None
        self._begin, self._wanted = begin, wanted
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._unanswered: dict[int, asyncio.Future[Reply]] = {}
        self._asked = 0
        self._owes = self._stopping = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start it, and wait until it listens.

        Raises:
            SetupError: it can't.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                fd = theirs.fileno()
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "worker.gateway_process", str(fd)),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[fd],
                    # Ctrl-C is for the first process, which stops the others in order.
                    start_new_session=True,
                )
            reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST)
        except OSError as problem:
            ours.close()
            why = (problem.strerror or str(problem)).lower()
            raise SetupError(f"process {self.number} can't be started ({why})") from None
        prepared = self._expect(PREPARED)
        self._reading = asyncio.create_task(self._read(reader))
        self._writer.write(line(self._begin))
        try:
            said = await asyncio.wait_for(prepared, _READY_WITHIN)
        except TimeoutError:
            said = Reply(number=PREPARED, fault=f"it is not ready within {_READY_WITHIN:.0f} s")
        if not said.fault:
            # From here on it takes orders: those before are in what it is told to begin with.
            self.is_live = True
            said = await self.ask("listen", _READY_WITHIN, self._wanted()) or Reply(
                number=0, fault=f"it does not listen within {_READY_WITHIN:.0f} s"
            )
        if said.fault:
            await self.kill()
            raise SetupError(f"process {self.number}: {said.fault}")

    async def run(self) -> None:
        """Start it anew whenever it has ended, until it is told to stop or given up."""
        short_lives = 0
        while True:
            began = time.monotonic()
            manner = await self._end()
            if self._stopping:
                return
            short_lives = 1 if time.monotonic() - began >= _LONG_ENOUGH else short_lives + 1
            pause = pause_before(short_lives)
            if pause is None:
                self.given_up = True
                _log.error("a process ends again and again, and is given up", process=self.number)
                return
            _log.warning(
                "a process ended, and is started anew",
                process=self.number,
                ended=manner,
                in_s=pause,
            )
            await asyncio.sleep(pause)
            if self._stopping:
                return
            self.restarts += 1
            try:
                await self.start()
            except SetupError as problem:
                _log.error("a process can't be started anew", why=str(problem))
            else:
                _log.info("serving again", process=self.number)

    async def ask(
        self,
        what: Literal["listen", "apply", "loads", "figures"],
        within: float,
        kept: Kept | None = None,
    ) -> Reply | None:
        """Its answer; none where none comes in time. An order it gets nevertheless, later."""
        if self._writer is None or not self.is_live:
            return None
        if len(self._unanswered) >= _MOST_UNANSWERED:
            self._owes = self._owes or what == "apply"
            return None
        self._asked += 1
        answer = self._expect(self._asked)
        self._writer.write(line(Ask(number=self._asked, what=what, kept=kept)))
        with suppress(TimeoutError):
            said = await asyncio.wait_for(answer, within)
            self._note(what, said)
            return said
        return None

    async def stop(self, within: float) -> None:
        """Let it finish what it has in flight for so long, and end it."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), within + _SPARE)
        except TimeoutError:
            _log.error("a process does not stop, and is killed", process=self.number)
            await self.kill()

    async def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    # --- what it says ----------------------------------------------------------------------------

    def _expect(self, number: int) -> asyncio.Future[Reply]:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._unanswered[number] = answer
        return answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while (raw := await reader.readline()).endswith(b"\n"):
                self._take(Reply.model_validate_json(raw))
        except OSError:  # it died with something unread
            pass
        except (ValueError, ValidationError) as problem:
            what = type(problem).__name__
            _log.error("a process can't be understood", process=self.number, why=what)
            if self._process is not None:
                with suppress(ProcessLookupError):
                    self._process.kill()
        finally:
            self.is_live = False
            for number, answer in self._unanswered.items():
                if not answer.done():
                    answer.set_result(Reply(number=number, fault="it has ended"))
            self._unanswered.clear()
            if self._writer is not None:
                self._writer.close()

    def _take(self, reply: Reply) -> None:
        if reply.number == LAST:
            self.figures = unpacked(reply.figures)
            return
        answer = self._unanswered.pop(reply.number, None)
        if answer is not None and not answer.done():
            answer.set_result(reply)
        if self._owes and self._writer is not None:
            self._owes = False
            self._asked += 1
            self._expect(self._asked)
            self._writer.write(line(Ask(number=self._asked, what="apply", kept=self._wanted())))

    def _note(self, what: str, said: Reply) -> None:
        if said.fault:
            return
        if what == "loads":
            self.loads = said
        elif what == "figures":
            self.figures = unpacked(said.figures)

    async def _end(self) -> str:
        """Wait for its end, and book what it counted. Gives how it ended."""
        assert self._process is not None
        code = await self._process.wait()
        if self._reading is not None:
            await self._reading
        self.past = together([self.past, lasting(self.figures)])
        self.figures, self.loads = {}, None
        return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
