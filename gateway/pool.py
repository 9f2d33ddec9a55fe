"""The connections to one server: those that are idle are used again, the newest first."""

import asyncio
from collections import deque
from typing import NamedTuple
from urllib.parse import urlsplit

from gateway.limits import Limits
from gateway.names import Name
from gateway.outbound import Outbound
from gateway.pace import Pace, Paced
from gateway.sweeper import Sweeper


class Address(NamedTuple):
    """Where a base URL leads; ``path`` is what is put before every target."""

    host: str
    port: int
    authority: bytes
    path: bytes

    @classmethod
    def of(cls, url: str) -> "Address":
        parts = urlsplit(url)
        authority = parts.netloc.encode("idna") if not parts.netloc.isascii() else None
        return cls(
            host=parts.hostname or "",
            port=parts.port or 80,
            authority=authority or parts.netloc.encode(),
            path=parts.path.rstrip("/").encode(),
        )


class Pool:
    """``pace`` is that of the candidates; production's backends have none."""

    def __init__(
        self,
        address: Address,
        limits: Limits,
        sweeper: Sweeper,
        pace: Pace | None = None,
    ) -> None:
        self.address = address
        self._limits = limits
        self._sweeper = sweeper
        self._pace = pace
        self._name = Name(address.host)
        self._idle: deque[Outbound] = deque()
        self._closed = False
        sweeper.watch(self)

    def take(self) -> Outbound | None:
        """An idle connection, or none."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not connection.transport.is_closing():
                return connection
        return None

    async def connect(self) -> Outbound:
        """A new connection.

        Raises:
            OSError: it is refused, nobody is there, or it took too long (``TimeoutError``).
        """
        async with asyncio.timeout(self._limits.connect_within):
            problem = OSError("there is no address")
            for address in await self._name.addresses():
                try:
                    return await self._connect_to(address)
                except OSError as latest:
                    problem = latest
            raise problem

    async def _connect_to(self, host: str) -> Outbound:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(self._protocol, host, self.address.port)
        return connection

    def _protocol(self) -> Outbound:
        longest = self._limits.head
        return Outbound(longest) if self._pace is None else Paced(self._pace, longest)

    def give(self, connection: Outbound) -> None:
        """Back after an answer that was read to its end."""
        connection.release()
        transport = connection.transport
        if (
            not connection.reusable
            or connection.closed
            or self._closed
            or transport.is_closing()
            or len(self._idle) >= self._limits.idle_connections
        ):
            connection.abort()
            return
        if connection.paused:
            connection.resume_reading()
        connection.idle_since = self._sweeper.now
        self._idle.append(connection)

    def sweep(self, now: float) -> None:
        oldest = now - self._limits.backend_idle
        while self._idle and (self._idle[0].closed or self._idle[0].idle_since < oldest):
            self._idle.popleft().abort()

    def close(self) -> None:
        self._closed = True
        self._sweeper.forget(self)
        while self._idle:
            self._idle.pop().abort()
