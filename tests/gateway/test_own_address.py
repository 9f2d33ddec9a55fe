"""An endpoint at an address of its own: all that comes in there is for it, whatever its path."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from fleet.endpoints import Endpoint
from fleet.endpoints import Gateway as Settings
from gateway.faults import Fault
from gateway.limits import limits
from gateway.metrics import Metrics
from gateway.server import Gateway
from tests.parts.gateway_groups import CHAT, group
from tests.parts.gateways import PATIENCE, until
from tests.parts.ports import free_port
from tests.parts.processes import command
from tests.parts.raw_backend import RawBackend, ok, raw_backend
from tests.parts.receiver import receiver

STEADY = "from worker.cli import main; main()"


@dataclass
class Two:
    """``embed`` has an address of its own; ``chat`` is at the gateway's."""

    gateway: Gateway
    chat: RawBackend
    embed: RawBackend
    mirror: RawBackend
    at_gateway: httpx.AsyncClient
    at_embed: httpx.AsyncClient


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        chat, embed, mirror = [await stack.enter_async_context(raw_backend(ok)) for _ in range(3)]
        candidate = {"url": mirror.url, "sample": 100}
        endpoints = {
            "chat": Endpoint.model_validate({"backends": {"gpu-1": {"url": chat.url}}}),
            "embed": Endpoint.model_validate(
                {
                    "listen": "127.0.0.1:0",
                    "backends": {"gpu-2": {"url": embed.url}},
                    "candidates": {"next": candidate},
                }
            ),
        }
        bounds = {"graceful_shutdown": "0s", "max_body": "1KiB"}
        gateway = Gateway(endpoints, limits(Settings.model_validate(bounds)))
        ports = [await gateway.start("127.0.0.1", 0, name) for name in (None, "embed")]
        stack.push_async_callback(gateway.stop)
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
            )
            for port in ports
        ]
        yield Two(gateway, chat, embed, mirror, *clients)


@pytest.mark.anyio
async def test_every_path_there_leads_to_it_as_it_stands() -> None:
    async with two() as t:
        for path in ("/", CHAT, "/backends/gpu-1/metrics", "/x?y=1"):
            assert (await t.at_embed.get(path)).text == "ok"
        lines = [request.raw.split(b"\r\n")[0].split()[1] for request in t.embed.requests]
        assert lines == [b"/", CHAT.encode(), b"/backends/gpu-1/metrics", b"/x?y=1"]
        assert t.chat.requests == []
        # At the gateway's own address nothing leads there but the URL of its server.
        assert (await t.at_gateway.get("/v1/embeddings")).text == "ok"
        assert (len(t.chat.requests), len(t.embed.requests)) == (1, 4)
        assert (await t.at_gateway.get("/backends/gpu-2/health")).text == "ok"
        assert len(t.embed.requests) == 5


@pytest.mark.anyio
async def test_bounds_figures_mirrors_and_drains_are_as_of_any_other() -> None:
    async with two() as t:
        assert (await t.at_embed.post("/v1/embeddings", content=b"{}")).status_code == 200
        await until(lambda: len(t.mirror.requests) == 1)
        assert (await t.at_embed.post("/v1/x", content=b"y" * 1025)).status_code == 413
        shown = Metrics(t.gateway.core, t.gateway.mirrors).render("text/plain")[0].decode()
        assert (
            'steady_gateway_requests_total{endpoint="embed",role="production",server="gpu-2",'
            'status="2xx"} 1.0'
        ) in shown
        t.gateway.core.router.drain("gpu-2", t.gateway.core.sweeper.now + 100)
        refused = await t.at_embed.get("/v1/models")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, Fault.NO_BACKEND)
        assert (await t.at_gateway.get("/v1/models")).status_code == 200


@pytest.mark.anyio
async def test_it_stops_with_the_gateway() -> None:
    async with two() as t:
        assert (await t.at_embed.get("/")).text == "ok"
        await t.gateway.stop()
        with pytest.raises(httpx.ConnectError):
            await t.at_embed.get("/")


def at(port: int) -> str:
    return f'listen = "127.0.0.1:{port}"'


def test_several_processes_share_it_too(tmp_path: Path) -> None:
    port = free_port()
    with receiver() as backend, group(tmp_path, backend.port, endpoint=at(port)) as gateway:
        limits = httpx.Limits(max_keepalive_connections=0)
        with httpx.Client(limits=limits, timeout=PATIENCE) as client:
            said = [client.get(f"http://127.0.0.1:{port}/any").status_code for _ in range(20)]
        assert said == [200] * 20
        assert httpx.get(f"{gateway.url}/any").status_code == 404
        shown = gateway.admin.get("/state").json()["endpoints"]["chat"]
        assert (shown["listen"], shown["path"]) == (f"127.0.0.1:{port}", "/")


def test_one_that_is_taken_is_named_by_its_key(tmp_path: Path) -> None:
    with receiver() as taken:
        (tmp_path / "fleet.toml").write_text(
            '[servers.gpu-1]\nsource = { kind = "redis", key = "worker:1" }\n'
            f'[gateway]\nlisten = "127.0.0.1:{free_port()}"\nadmin = "127.0.0.1:{free_port()}"\n'
            f"[endpoints.chat]\n{at(taken.port)}\n"
            'backends = { gpu-1 = { url = "http://127.0.0.1:1" } }\n'
        )
        with command(STEADY, tmp_path, "gateway") as running:
            running.until(f"can't listen at endpoints.chat.listen = 127.0.0.1:{taken.port} (")
            assert running.process.wait(20) == 3
