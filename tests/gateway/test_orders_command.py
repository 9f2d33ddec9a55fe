"""``steady gateway status``, ``drain`` and the rest, against a gateway that runs."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import structlog
from typer.testing import CliRunner, Result

from tests.parts.gateways import TOKEN, Serving, administered, serving
from tests.parts.ports import free_port
from tests.parts.receiver import Answer, receiver
from worker.cli import app
from worker.commands.exits import Exit

pytestmark = pytest.mark.anyio

FLEET = """\
[servers.gpu-1]
source = {{ kind = "redis", key = "worker:1" }}

[gateway]
admin = "127.0.0.1:{port}"
admin_token = {{ env = "TOKEN" }}

[endpoints.chat]
backends = {{ gpu-1 = {{ url = "http://127.0.0.1:1" }} }}
candidates = {{ next = {{ url = "http://127.0.0.1:1" }} }}
"""

Steady = Callable[..., Result]


def write(folder: Path, port: int | None) -> Steady:
    file = folder / "fleet.toml"
    file.write_text(FLEET.format(port=port))

    def steady(*arguments: object) -> Result:
        given = ["gateway", "--file", str(file), *map(str, arguments)]
        return CliRunner().invoke(app, given, catch_exceptions=False)

    return steady


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", TOKEN)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Serving, Steady]]:
    candidates = {"next": {"url": "http://127.0.0.1:1"}}
    with structlog.testing.capture_logs():  # they would be in the output of the commands
        async with (
            serving("http://127.0.0.1:1", candidates=candidates) as gateway,
            administered(gateway) as admin,
        ):
            yield gateway, write(folder, admin.base_url.port)


async def said(steady: Steady, *arguments: object) -> str:
    """What a command prints, from a thread: the gateway runs in this one."""
    result = await asyncio.to_thread(steady, *arguments)
    assert result.exit_code == Exit.DONE, result.output
    return result.stdout


async def test_a_backend_is_drained_and_undrained(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, steady):
        line = await said(steady, "drain", "gpu-1", "--for", "1h", "--why", "new driver")
        assert re.search(r"gpu-1 is drained until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", line)
        backend = gateway.core.router.backends["gpu-1"]
        assert backend.drained_until > gateway.core.sweeper.now
        shown = await said(steady, "status")
        assert "backend gpu-1, 0 in flight, is drained until 2" in shown
        assert ": new driver\n" in shown
        assert "gpu-1 is sent requests" in await said(steady, "undrain", "gpu-1")
        assert backend.drained_until == 0


async def test_a_persons_undrain_leaves_steadys_own_lease_unless_all_are_meant(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, steady):
        url = json.loads(await said(steady, "status", "--json"))["gateways"][0]["url"]
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as steadys:
            terms = {"holder": "steady", "for": "1h"}
            lease = f"{url}/backends/gpu-1/leases/incident"
            assert (await steadys.put(lease, json=terms)).status_code == 200
        await said(steady, "drain", "gpu-1", "--for", "1h")
        assert "by steady\n" in await said(steady, "undrain", "gpu-1")
        assert "is sent requests" in await said(steady, "undrain", "gpu-1", "--all")


async def test_a_sample_and_a_weight_are_changed(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, steady):
        assert "next is sent 12.5 %" in await said(steady, "sample", "next", 12.5)
        assert gateway.gateway.mirrors.targets["chat"][0].percent == 12.5
        assert "candidate next is sent 12.5 %" in await said(steady, "status")
        assert "gpu-1 has the weight 2" in await said(steady, "weight", "gpu-1", 2)
        assert gateway.core.router.public("chat").weights == {"gpu-1": 2}


async def test_for_programs(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, steady):
        drained = json.loads(await said(steady, "drain", "gpu-1", "--for", "1h", "--json"))
        (lease,) = drained["gateways"]
        assert {"url", "id", "holder", "until", "why", "last_resort"} == set(lease)
        (state,) = json.loads(await said(steady, "status", "--json"))["gateways"]
        assert state["backends"]["gpu-1"]["leases"][0]["id"] == lease["id"]
        (backend,) = json.loads(await said(steady, "undrain", "gpu-1", "--json"))["gateways"]
        assert (backend["in_flight"], backend["drained_until"]) == (0, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("drain", "gpu-9", "--for", "1h"), "there is no backend gpu-9; there are gpu-1"),
        (("drain", "gpu-1", "--for", "8d"), "for: 8d is out of range"),
        (("drain", "gpu-1", "--for", "long"), "--for: 'long' is no duration"),
        (("sample", "other", "5"), "the fleet file has no candidate other"),
        (("weight", "gpu-9", "2"), "the fleet file has no backend gpu-9"),
    ],
)
async def test_what_is_wrong_is_one_line_and_exit_2(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    async with running(tmp_path) as (_, steady):
        result = await asyncio.to_thread(steady, *arguments)
    assert result.exit_code == Exit.WRONG_INPUT
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_gateway_that_does_not_run_is_exit_3(tmp_path: Path) -> None:
    port = free_port()
    result = write(tmp_path, port)("status")
    assert result.exit_code == Exit.UNREACHED
    wanted = f"the gateway at 127.0.0.1:{port}: connection refused: does `steady gateway` run?\n"
    assert result.stderr == wanted


def test_what_is_no_gateway_is_exit_3(tmp_path: Path) -> None:
    with receiver() as other:
        other.answer = lambda _: Answer(body=b"<html>")
        result = write(tmp_path, other.port)("status")
    assert result.exit_code == Exit.UNREACHED
    assert result.stderr.endswith(" answers 200, and not as a gateway does\n")


def test_without_a_token_here_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKEN")
    result = write(tmp_path, free_port())("status")
    assert result.exit_code == Exit.WRONG_INPUT
    assert result.stderr.startswith("gateway.admin_token: the environment variable TOKEN is not")
