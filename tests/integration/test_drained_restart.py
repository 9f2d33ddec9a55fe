"""A remediation on a real Temporal server, with a real gateway that routes to its server."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.gateway import GatewayActivities
from fleet.contracts.gateway import Gateways
from fleet.contracts.remediation import Outcome, RemediationStatus
from fleet.secret_refs import SecretRef
from tests.gateway.test_admin import CHAT, state
from tests.parts.gateways import TOKEN, Serving, administered, serving
from tests.parts.ports import free_port
from tests.parts.raw_backend import ok, raw_backend
from tests.parts.stories import Scene, Story
from tests.parts.temporal import dev_server

pytestmark = pytest.mark.anyio

FAKED = ("drain_server", "undrain_server")


class Routed(Scene):
    """A hung server whose gateway is real, and the activities that talk to it."""

    @property
    def activities(self) -> list[Callable[..., Any]]:
        real = GatewayActivities()
        others = [each for each in super().activities if each.__name__ not in FAKED]
        return [*others, real.drain_server, real.undrain_server]


async def healed(client: Client, url: str, before_the_command: Any) -> RemediationStatus:
    """The end of an incident of ``gpu-1``, which a gateway routes to."""

    async def tell(scene: Routed) -> None:
        scene.gateways = Gateways(
            urls=[url],
            token=SecretRef(env="TOKEN"),
            wait=timedelta(seconds=1),
            wait_hung=timedelta(seconds=1),
        )
        scene.before("restart_server", before_the_command)
        await scene.report()

    story = Story("gpu-1", Outcome.RESOLVED, tell, {}, Routed)
    scene = await story.play(client)
    assert len(scene.restarts) == 1
    return await scene.handle.result()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", TOKEN)


async def asked(gateway: Serving, count: int) -> None:
    for _ in range(count):
        assert (await gateway.client.post(CHAT, json={})).status_code == 200


async def test_nothing_is_sent_to_a_server_from_before_its_restart_until_it_is_healed(
    tmp_path: Path,
) -> None:
    async with (
        dev_server(tmp_path) as temporal,
        raw_backend(ok) as one,
        raw_backend(ok) as two,
        serving(one.url, two.url) as gateway,
        administered(gateway) as admin,
    ):
        await asked(gateway, 4)
        assert one.requests
        one.requests.clear()

        async def during() -> None:
            (lease,) = (await state(admin)).backends["gpu-1"].leases
            assert lease.holder == "steady"
            assert lease.why == "hung: remediate/gpu-1"
            await asked(gateway, 4)

        await healed(await temporal.client(), str(admin.base_url).rstrip("/"), during)
        assert one.requests == []
        assert len(two.requests) >= 4
        assert (await state(admin)).backends["gpu-1"].leases == []
        await asked(gateway, 4)
        assert one.requests


async def test_a_gateway_that_is_not_there_holds_no_restart_up(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with dev_server(tmp_path) as temporal:
        status = await healed(await temporal.client(), url, lambda: None)
    said = [moment.text for moment in status.timeline if "drained" in moment.text]
    assert said[0] == f"not drained: the gateway at {url[7:]}: connection refused"
