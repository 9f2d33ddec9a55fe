"""A thin shell over asyncssh that knows, of each failure, whether the command may have left.

Everything is bounded: the connection, each command, and what is kept of its output.
"""

import asyncio
import logging
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import asyncssh

from activities.ssh_trust import NotSentError, Trust, read_trust, refuse_key, why_unreachable
from fleet.actions import Host
from fleet.contracts.host import HostErrorType
from fleet.host_replies import Reply

# At level INFO asyncssh writes each command with its arguments.
asyncssh.set_log_level(logging.WARNING)

_CLOSE_WITHIN = 2.0
#: Seconds for output that is still on its way when the command has ended. A daemon that it left
#: behind may hold the stream open for ever.
_LINGER = 1.0


class LostTrackError(Exception):
    """The command may have run: it went out, and its end was not seen.

    ``endless``: the line held, and the command did not end within its bound.
    """

    def __init__(self, message: str, *, endless: bool = False) -> None:
        super().__init__(message)
        self.endless = endless


@dataclass(frozen=True)
class Limits:
    """``seconds`` for a command, ``keep`` bytes of each stream (the last ones).

    After ``flood`` bytes the command is ended; without it the rest is read and dropped, since a
    command that changes something must not be stopped half-way by its own chatter.
    """

    seconds: float
    keep: int
    flood: int | None = None


@dataclass(frozen=True)
class Completed:
    """A command that ended. ``cut`` says that output is missing; ``status`` is none if killed."""

    status: int | None
    out: bytes
    err: bytes
    cut: bool = False

    @property
    def reply(self) -> Reply:
        return Reply(
            self.status, self.out.decode(errors="replace"), self.err.decode(errors="replace")
        )


class Shell:
    """An open connection to one host."""

    def __init__(self, connection: asyncssh.SSHClientConnection, where: str) -> None:
        self._connection = connection
        self._where = where

    async def run(self, argv: Sequence[str], limits: Limits, *, merged: bool = False) -> Completed:
        """Run a command that only looks; it is killed, its process group with it, when time is up.

        ``merged`` puts what comes over stderr among stdout, in the order of its arrival.

        Raises:
            NotSentError: the command did not leave.
            LostTrackError: its end was not seen.
        """
        output = _Output(limits, merged=merged)
        try:
            return await self._run(argv, output)
        finally:
            output.kill()

    async def act(
        self, argv: Sequence[str], limits: Limits, last_look: Callable[[], None]
    ) -> Completed:
        """Run a command that changes the host; once it left, it is left alone.

        ``last_look`` is called at the very last moment before the command leaves, and may raise.

        Raises:
            NotSentError: the command did not leave.
            LostTrackError: it may have run; also where this task was cancelled meanwhile.
        """
        output = _Output(limits, last_look=last_look)
        try:
            return await self._run(argv, output)
        except asyncio.CancelledError:
            if not output.sent:
                raise
            raise LostTrackError(
                f"{self._where}: steady was told to stop while the command ran"
            ) from None

    async def _run(self, argv: Sequence[str], output: "_Output") -> Completed:
        try:
            async with asyncio.timeout(output.limits.seconds):
                # The remote login shell must see every argument as one word.
                channel, _ = await self._connection.create_session(
                    lambda: output, shlex.join(argv), encoding=None
                )
                await output.ended.wait()
        except (OSError, asyncssh.Error) as problem:
            raise self._lost(problem, output) from None
        if output.flooded:
            return output.completed(None)
        status = channel.get_exit_status()
        if status is None:
            raise self._lost(output.broken or asyncssh.ConnectionLost("no exit status"), output)
        return output.completed(status if status >= 0 else None)

    def _lost(self, problem: Exception, output: "_Output") -> Exception:
        if not output.sent:
            reason = why_unreachable(problem, output.limits.seconds)
            return NotSentError(HostErrorType.UNREACHABLE, f"{self._where}: {reason}")
        if isinstance(problem, TimeoutError):
            return LostTrackError(
                f"{self._where}: no end of the command within {output.limits.seconds:g} s",
                endless=True,
            )
        if isinstance(problem, asyncssh.ChannelOpenError):
            return LostTrackError(f"{self._where}: the host refused the command, or cut it off")
        return LostTrackError(f"{self._where}: the connection was lost while the command ran")


@asynccontextmanager
async def connected(host: Host) -> AsyncIterator[Shell]:
    """A connection to the host, closed (and if need be cut) at the end.

    Raises:
        NotSentError: it could not be made: unreachable, an unknown or changed host key, or denied.
    """
    trust = await asyncio.to_thread(read_trust, host)
    connection = await _connect(host, trust)
    try:
        yield Shell(connection, f"{host.address}:{host.port}")
    finally:
        connection.close()
        with suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await connection.wait_closed()
        connection.abort()


async def _connect(host: Host, trust: Trust) -> asyncssh.SSHClientConnection:
    where = f"{host.address}:{host.port}"
    try:
        return await asyncssh.connect(host.address, host.port, options=trust.options, config=None)
    except asyncssh.HostKeyNotVerifiable:
        refuse_key(host, trust)
    except asyncssh.KeyExchangeFailed as problem:
        if "host key" in problem.reason:
            refuse_key(host, trust)
        raise NotSentError(
            HostErrorType.MISCONFIGURED, f"{where}: no common SSH algorithm"
        ) from None
    except (asyncssh.PermissionDenied, asyncssh.IllegalUserName):
        raise NotSentError(
            HostErrorType.DENIED,
            f"{where} does not let user {host.user} in with the key {host.key}: add its public"
            " key to the user's authorized_keys there",
        ) from None
    except (OSError, asyncssh.Error) as problem:
        reason = why_unreachable(problem, host.connect_timeout.total_seconds())
        raise NotSentError(HostErrorType.UNREACHABLE, f"{where}: {reason}") from None


class _Output(asyncssh.SSHClientSession[bytes]):
    """Collects what a command prints; asyncssh calls it back in the order of events."""

    def __init__(
        self,
        limits: Limits,
        *,
        merged: bool = False,
        last_look: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits
        self.sent = False
        self.ended = asyncio.Event()
        self.flooded = False
        self.broken: Exception | None = None
        self._merged = merged
        self._last_look = last_look
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._kept = {False: bytearray(), True: bytearray()}
        self._read = 0
        self._dropped = False

    def connection_made(self, chan: "asyncssh.SSHClientChannel[bytes]") -> None:
        """The channel is open: asyncssh calls this right before it sends the command."""
        self._channel = chan
        self._last_look()
        self.sent = True

    def data_received(self, data: bytes, datatype: int | None) -> None:
        kept = self._kept[datatype is not None and not self._merged]
        kept += data
        self._read += len(data)
        if len(kept) > 2 * self.limits.keep:
            self._trim(kept)
        if self.limits.flood is not None and self._read > self.limits.flood:
            self.flooded = True
            self.kill()

    def exit_status_received(self, status: int) -> None:  # noqa: ARG002 - the library names it
        asyncio.get_running_loop().call_later(_LINGER, self.ended.set)

    def connection_lost(self, exc: Exception | None) -> None:
        self.broken = exc
        self.ended.set()

    def kill(self) -> None:
        """End the command where it still runs; sshd kills the whole process group."""
        if self._channel is not None and not self._channel.is_closing():
            with suppress(OSError):
                self._channel.kill()
            self._channel.abort()

    def completed(self, status: int | None) -> Completed:
        for kept in self._kept.values():
            self._trim(kept)
        out, err = (bytes(self._kept[stderr]) for stderr in (False, True))
        return Completed(status, out, err, cut=self._dropped or self.flooded)

    def _trim(self, kept: bytearray) -> None:
        if len(kept) > self.limits.keep:
            del kept[: len(kept) - self.limits.keep]
            self._dropped = True
