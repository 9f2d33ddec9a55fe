"""The activities that drain a server, against gateways on real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import gateway as activity
from activities.gateway import GatewayActivities
from fleet.contracts.gateway import DrainRequest, DrainResult, Gateways, UndrainRequest
from fleet.secret_refs import SecretRef
from tests.gateway.test_admin import CHAT, POST, held, state
from tests.parts.gateways import TOKEN, Serving, administered, serving, until
from tests.parts.ports import free_port
from tests.parts.raw_backend import Connection, Script, ok, raw_backend
from tests.parts.receiver import Answer, receiver

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
LEASE = "gpu-1@20260101T120000.000Z"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADY_GATEWAY_TOKEN", TOKEN)


def gateways(*urls: httpx.URL | str) -> Gateways:
    return Gateways(
        urls=[str(url).rstrip("/") for url in urls],
        token=SecretRef(env="STEADY_GATEWAY_TOKEN"),
        wait=SECOND,
        wait_hung=SECOND,
    )


async def drain(
    *urls: httpx.URL | str, wait: timedelta = timedelta(0), server: str = "gpu-1"
) -> DrainResult:
    request = DrainRequest(
        server=server, lease=LEASE, lasting=600 * SECOND, wait=wait, gateways=gateways(*urls)
    )
    return await ActivityEnvironment().run(GatewayActivities().drain_server, request)


async def undrain(*urls: httpx.URL | str) -> None:
    request = UndrainRequest(server="gpu-1", lease=LEASE, gateways=gateways(*urls))
    await ActivityEnvironment().run(GatewayActivities().undrain_server, request)


async def test_a_server_is_drained_and_undrained() -> None:
    async with raw_backend(ok) as one, serving(one.url) as gateway, administered(gateway) as admin:
        result = await drain(admin.base_url)
        assert (result.drained, result.in_flight, result.failed) == (1, 0, [])
        (lease,) = (await state(admin)).backends["gpu-1"].leases
        assert (lease.id, lease.holder) == (LEASE, "steady")
        assert (await gateway.client.post(CHAT, json={})).status_code == 503
        await undrain(admin.base_url)
        assert (await gateway.client.post(CHAT, json={})).status_code == 200


async def test_it_waits_until_what_is_in_flight_has_ended() -> None:
    script, may = held()
    async with (
        raw_backend(script) as one,
        serving(one.url) as gateway,
        administered(gateway) as admin,
    ):
        _, writer = await gateway.raw(POST)
        await until(lambda: one.requests)
        draining = asyncio.create_task(drain(admin.base_url, wait=60 * SECOND))
        await until(lambda: 'drained{server="gpu-1"} 1.0' in gateway.metrics())
        assert not draining.done()
        may.set()
        result = await draining
        assert (result.drained, result.in_flight) == (1, 0)
        assert result.waited < 50 * SECOND
        writer.close()


@asynccontextmanager
async def two_backends() -> AsyncIterator[tuple[httpx.AsyncClient, Serving, asyncio.Event]]:
    """Each has a request in flight, until it may end."""
    (one_script, _), (other_script, may) = held(), held()
    async with (
        raw_backend(one_script) as one,
        raw_backend(other_script) as other,
        serving(one.url, other.url) as gateway,
        administered(gateway) as admin,
    ):
        writers = [(await gateway.raw(POST))[1] for _ in range(2)]
        await until(lambda: one.requests and other.requests)
        yield admin, gateway, may
        for writer in writers:
            writer.close()


async def test_servers_are_drained_together_and_each_waited_for_in_its_own_bound() -> None:
    """gpu-1 hangs. gpu-2 works, and what it has is let end before it is taken along."""
    async with two_backends() as (admin, gateway, may):
        request = DrainRequest(
            server="gpu-1",
            servers=["gpu-1", "gpu-2"],
            lease=LEASE,
            lasting=600 * SECOND,
            wait=SECOND,
            wait_others=60 * SECOND,
            gateways=gateways(admin.base_url),
        )
        draining = asyncio.create_task(
            ActivityEnvironment().run(GatewayActivities().drain_server, request)
        )
        await until(lambda: gateway.metrics().count("drained{server=") >= 2)
        await until(lambda: 'drained{server="gpu-2"} 1.0' in gateway.metrics())
        assert 'drained{server="gpu-1"} 1.0' in gateway.metrics()
        await asyncio.sleep(1.5)
        assert not draining.done()
        may.set()
        result = await draining
        assert (result.drained, result.in_flight, result.failed) == (2, 1, [])
        assert result.waited < 50 * SECOND
        release = UndrainRequest(
            server="gpu-1", servers=["gpu-2"], lease=LEASE, gateways=gateways(admin.base_url)
        )
        await ActivityEnvironment().run(GatewayActivities().undrain_server, release)
        shown = (await state(admin)).backends
        assert [len(shown[name].leases) for name in ("gpu-1", "gpu-2")] == [1, 0]


async def test_it_waits_no_longer_than_its_bound_and_says_what_is_left() -> None:
    script, _ = held()
    async with (
        raw_backend(script) as one,
        serving(one.url) as gateway,
        administered(gateway) as admin,
    ):
        _, writer = await gateway.raw(POST)
        await until(lambda: one.requests)
        result = await drain(admin.base_url, wait=SECOND)
        assert (result.drained, result.in_flight, result.failed) == (1, 1, [])
        assert result.waited >= SECOND
        writer.close()


async def test_every_gateway_is_told_and_one_that_is_down_is_named() -> None:
    async with serving("http://127.0.0.1:1") as gateway, administered(gateway) as admin:
        down = f"http://127.0.0.1:{free_port()}"
        result = await drain(down, admin.base_url)
        assert result.drained == 1
        assert result.failed == [f"the gateway at {down[7:]}: connection refused"]
        assert (await state(admin)).backends["gpu-1"].leases
        with pytest.raises(ApplicationError, match=f"the gateway at {down[7:]}: connection ref"):
            await undrain(down, admin.base_url)
        assert not (await state(admin)).backends["gpu-1"].leases


async def silent(connection: Connection) -> None:
    await connection.gone()


async def endless(connection: Connection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n")
    while True:
        await connection.send(b"x" * 10_000)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("script", [silent, endless])
async def test_a_gateway_that_does_not_answer_costs_a_bounded_time(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "_WITHIN", 0.2)
    async with raw_backend(script) as one:
        async with asyncio.timeout(20):
            result = await drain(one.url, wait=SECOND)
    assert result.in_flight == 0


MEANINGS = {
    401: "its admin_token is another",
    404: "it does not know gpu-1: is its fleet file an older one?",
    500: "is it a gateway of steady?",
}


@pytest.mark.parametrize("status", MEANINGS)
async def test_what_it_answers_is_said_with_its_meaning(status: int) -> None:
    with receiver() as one:
        one.answer = lambda _: Answer(status=status)
        one_url = one.url("")
        result = await drain(one_url)
    assert result.drained == 0
    assert result.failed == [f"the gateway at {one_url[7:]} answers {status}: {MEANINGS[status]}"]
    assert TOKEN not in str(result)


async def test_a_token_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEADY_GATEWAY_TOKEN")
    result = await drain("http://127.0.0.1:1")
    assert result.drained == 0
    assert result.failed[0].startswith("gateway.admin_token: the environment variable STEADY_")
    with pytest.raises(ApplicationError, match=r"gateway\.admin_token: "):
        await undrain("http://127.0.0.1:1")
