"""The gateway of one process: it listens, and stops without dropping what is in flight."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex

from fleet.endpoints import Endpoint
from gateway.core import Core
from gateway.costs import Costs
from gateway.inbound import Inbound
from gateway.limits import Limits
from gateway.mirroring import Mirrors
from gateway.routing import Router
from gateway.sweeper import Sweeper
from gateway.tally import Tally

_ABORT_WITHIN = 5.0


def new_marker() -> str:
    """By which a gateway knows what it mirrored itself."""
    return token_hex(8)


class Gateway:
    """Serves the endpoints from ``start`` to ``stop``; one for each event loop.

    ``secrets`` are the tokens of candidates, by endpoint and candidate; ``marker`` is in all that
    is mirrored, the same in every process that serves one port.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        limits: Limits,
        secrets: Mapping[tuple[str, str], str] | None = None,
        marker: str | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        sweeper = Sweeper(loop)
        self.core = Core(
            loop=loop,
            limits=limits,
            sweeper=sweeper,
            router=Router(endpoints, limits, sweeper),
            tally=Tally(),
            costs=Costs(endpoints, sweeper.now),
        )
        self.mirrors = Mirrors(self.core, endpoints, secrets or {}, marker or new_marker())
        self.core.mirroring = self.mirrors
        self.core.tally.providers.update(
            ((name, server), spec.provider)
            for name, endpoint in endpoints.items()
            for server, spec in endpoint.backends.items()
            if spec.provider is not None
        )
        self._servers: list[asyncio.Server] = []

    async def start(
        self, host: str, port: int, endpoint: str | None = None, *, beside_others: bool = False
    ) -> int:
        """Listen, and give the port; ``beside_others`` of the same user, who share its connections.

        At the address of an ``endpoint`` of its own all that comes in is for that one.

        Raises:
            OSError: the address can't be listened on.
        """
        core = self.core
        route = core.router.public(endpoint) if endpoint is not None else None
        server = await core.loop.create_server(
            lambda: Inbound(core, route), host, port, backlog=1024, reuse_port=beside_others or None
        )
        if not self._servers:
            core.sweeper.start()
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Stop accepting, cancel mirrors, finish what is in flight in time, end the rest."""
        core = self.core
        core.stopping = True
        for server in self._servers:
            server.close()
        self.mirrors.stop()
        with suppress(TimeoutError):
            await self._emptied(core.limits.finish_within)
        for exchange in tuple(core.dry):
            exchange.cancel()
        for client in tuple(core.clients):
            client.transport.abort()
        with suppress(TimeoutError):
            await self._emptied(_ABORT_WITHIN)
        await self.mirrors.files.stop()
        core.router.close()
        core.sweeper.stop()

    async def _emptied(self, within: float) -> None:
        if self.core.clients:
            async with asyncio.timeout(within):
                await self.core.empty.wait()
