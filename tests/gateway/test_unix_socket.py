"""The admin API at a Unix socket: the same orders, and a file for its owner alone."""

import os
import signal
import socket
import stat
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.gateway.test_admin import HOUR, LEASE, state
from tests.gateway.test_drained_by_activity import drain, undrain
from tests.parts.gateways import TOKEN, administered, serving
from tests.parts.ports import free_port
from tests.parts.processes import Command, command
from tests.parts.receiver import receiver
from worker.cli import app
from worker.commands.exits import Exit
from worker.errors import SetupError
from worker.listener import Pages, listening
from worker.vitals import Health

STEADY = "from worker.cli import main; main()"
FLEET = """\
[servers.gpu-1]
source = {{ kind = "redis", key = "worker:1" }}

[gateway]
listen = "127.0.0.1:{listen}"
admin = "unix://{socket}"
admin_token = {{ env = "TOKEN" }}

[endpoints.chat]
backends = {{ gpu-1 = {{ url = "http://127.0.0.1:{backend}" }} }}
"""


def write(folder: Path, backend: int = 1) -> tuple[str, Path]:
    """A fleet file; gives the gateway's base URL, and the path of its socket."""
    listen, path = free_port(), folder / "admin.sock"
    text = FLEET.format(listen=listen, socket=path, backend=backend)
    (folder / "fleet.toml").write_text(text)
    return f"http://127.0.0.1:{listen}", path


def steady(folder: Path, *arguments: str) -> str:
    given = ["gateway", "--file", str(folder / "fleet.toml"), *arguments]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == Exit.DONE, result.output
    return result.stdout


def asked(path: Path, what: str, token: str = TOKEN) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
        return client.get(f"http://a{what}", headers={"Authorization": f"Bearer {token}"})


def ended(running: Command) -> int:
    running.process.send_signal(signal.SIGTERM)
    return running.process.wait(20)


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", TOKEN)


def test_orders_health_and_figures_go_over_it_and_its_file_is_the_owners_alone(
    tmp_path: Path,
) -> None:
    with receiver() as backend:
        url, path = write(tmp_path, backend.port)
        with command(STEADY, tmp_path, "gateway", variables={"TOKEN": TOKEN}) as running:
            running.until("serving")
            about = path.stat()
            assert stat.S_ISSOCK(about.st_mode)
            assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o600, os.getuid())
            line = steady(tmp_path, "drain", "gpu-1", "--for", "1h")
            assert line.startswith(f"{path}: gpu-1 is drained until 2")
            assert httpx.get(f"{url}/v1/models").status_code == 503
            assert "gpu-1, 0 in flight, is drained until 2" in steady(tmp_path, "status")
            steady(tmp_path, "undrain", "gpu-1")
            assert httpx.get(f"{url}/v1/models").status_code == 200
            assert asked(path, "/health").json()["status"] == "ok"
            assert 'server="gpu-1",status="2xx"} 1.0' in asked(path, "/metrics").text
            assert asked(path, "/state", "another-token-0123456789").status_code == 401
            assert ended(running) == 0
        assert not path.exists()


def test_what_a_killed_gateway_left_is_replaced_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    _, path = write(tmp_path)
    with command(STEADY, tmp_path, "gateway", variables={"TOKEN": TOKEN}) as running:
        running.until("serving")
        running.process.kill()
        running.process.wait(20)
    assert path.exists()
    with command(STEADY, tmp_path, "gateway", variables={"TOKEN": TOKEN}) as running:
        running.until("serving")
        file = tmp_path / "fleet.toml"
        file.write_text(
            file.read_text().replace("listen = ", f'listen = "127.0.0.1:{free_port()}" # ')
        )
        elsewhere = {"TOKEN": TOKEN, "STEADY_STATE_DIR": str(tmp_path / "other")}
        with command(STEADY, tmp_path, "gateway", variables=elsewhere) as second:
            second.until(
                f"can't listen on unix://{path} (another process listens there): see gateway.admin"
            )
            assert second.process.wait(20) == 3
        assert asked(path, "/health").status_code == 200


def nothing() -> Pages:
    return Pages(lambda: Health([], {}), lambda _: (b"", "text/plain"))


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with (
        pytest.raises(SetupError, match="there is a file that is no socket"),
        listening(f"unix://{path}", nothing()),
    ):
        pass
    assert path.read_text() == "mine"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(SetupError, match="no such file or directory"),
        listening(f"unix://{tmp_path}/none/admin.sock", nothing()),
    ):
        pass


def test_who_ends_leaves_the_socket_of_whoever_came_after(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as later:
        with listening(f"unix://{path}", nothing()):
            path.unlink()
            later.bind(str(path))
            later.listen()
        assert path.exists()


@pytest.mark.anyio
async def test_a_restart_drains_a_server_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADY_GATEWAY_TOKEN", TOKEN)
    address, gone = f"unix://{tmp_path}/admin.sock", f"unix://{tmp_path}/gone.sock"
    async with (
        serving("http://127.0.0.1:1") as gateway,
        administered(gateway, address=address) as admin,
    ):
        result = await drain(gone, address)
        assert (result.drained, result.in_flight) == (1, 0)
        assert result.failed == [f"the gateway at {gone[7:]}: no such file or directory"]
        assert (await state(admin)).backends["gpu-1"].leases
        await undrain(address)
        assert not (await state(admin)).backends["gpu-1"].leases
        assert (await admin.put(LEASE, json=HOUR)).status_code == 200
