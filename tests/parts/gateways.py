"""A gateway in the test's own event loop, on a free port, before backends of the test."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from fleet.addresses import unix_path
from fleet.endpoints import Endpoint
from fleet.endpoints import Gateway as Settings
from gateway.control import Control
from gateway.core import Core
from gateway.faults import Fault
from gateway.kept import Kept
from gateway.limits import limits
from gateway.metrics import Metrics
from gateway.plane import Local
from gateway.server import Gateway
from worker.gateway_api import Api
from worker.listener import Pages, listening
from worker.vitals import Health

TOKEN = "a-token-of-a-test-0123456789"
#: For every wait of a test that ends much sooner where all is well.
PATIENCE = 20.0


@dataclass
class Serving:
    endpoints: dict[str, Endpoint]
    gateway: Gateway
    port: int
    client: httpx.AsyncClient

    @property
    def core(self) -> Core:
        return self.gateway.core

    def faults(self, kind: Fault, endpoint: str = "chat") -> int:
        """How often there was such a fault, whatever server and role."""
        faults = self.core.tally.faults.items()
        return sum(n for (who, what), n in faults if (who.endpoint, what) == (endpoint, kind))

    def metrics(self) -> str:
        return Metrics(self.core, self.gateway.mirrors).render("text/plain")[0].decode()

    async def raw(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer

    async def said(self, data: bytes) -> bytes:
        """All that is answered to some bytes, until the gateway closes the connection."""
        reader, writer = await self.raw(data)
        try:
            async with asyncio.timeout(PATIENCE):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    *urls: str,
    candidates: Mapping[str, Mapping[str, Any]] | None = None,
    endpoint: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Serving]:
    """Serve one endpoint, ``chat``, at ``/``; its backends are ``gpu-1``, ``gpu-2`` and so on."""
    spec = {
        "backends": {f"gpu-{number}": {"url": url} for number, url in enumerate(urls, 1)},
        "candidates": candidates or {},
        **(endpoint or {}),
    }
    settings = {"graceful_shutdown": "0s", **settings}
    bounds = limits(Settings.model_validate(settings))
    endpoints = {"chat": Endpoint.model_validate(spec)}
    gateway = Gateway(endpoints, bounds)
    port = await gateway.start("127.0.0.1", 0)
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(
        base_url=base, timeout=PATIENCE, trust_env=False, verify=False
    ) as client:
        try:
            yield Serving(endpoints, gateway, port, client)
        finally:
            await gateway.stop()


@asynccontextmanager
async def administered(
    serving: Serving,
    keep: Callable[[Kept], None] = lambda _: None,
    *,
    kept: Kept | None = None,
    token: str | None = TOKEN,
    address: str = "127.0.0.1:0",
) -> AsyncIterator[httpx.AsyncClient]:
    """The admin side of a gateway of this process; the client has the token."""
    plane = Local(serving.gateway, serving.endpoints)
    begin_with = kept or Kept()
    plane.put_in_force(begin_with)
    control = Control(serving.endpoints, begin_with, keep, plane)
    pages = Pages(
        lambda: Health([], {}),
        Metrics(serving.core, serving.gateway.mirrors).render,
        Api(control, token).answer,
    )
    socket = unix_path(address)
    with listening(address, pages) as port:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=PATIENCE,
            trust_env=False,
            transport=httpx.AsyncHTTPTransport(uds=socket) if socket is not None else None,
        ) as client:
            yield client


async def until(true: Callable[[], object]) -> None:
    """Wait until something has come true.

    Raises:
        TimeoutError: it did not.
    """
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)


def results(gateway: Serving) -> Counter[str]:
    """Mirrored requests by what became of them, over all candidates."""
    found: Counter[str] = Counter()
    for (_, _, result), count in gateway.core.tally.results.items():
        found[str(result)] += count
    return found


async def ended(gateway: Serving, count: int) -> Counter[str]:
    """The same, once so many have ended and nothing of them is left."""
    await until(lambda: results(gateway).total() >= count)
    await until(lambda: not gateway.gateway.mirrors.running)
    await until(lambda: gateway.gateway.mirrors.budget.retained == 0)
    return results(gateway)
