"""``steady up`` and ``steady worker`` as a user starts and stops them."""

import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from anyio import to_thread

from tests.parts.gateway_groups import lives
from tests.parts.ports import free_port
from tests.parts.processes import Command, command, left_behind
from tests.parts.receiver import Answer, receiver
from tests.parts.temporal import dev_server
from worker.demo_fleet import HEALTHY

_UP = """
import sys
from pathlib import Path
from worker.settings import Settings
from worker.up import up
sys.exit(up(Path(sys.argv[2]) if sys.argv[2:] else None, Settings(state_dir=Path(sys.argv[1]))))
"""
_WORKER = """
import sys
from worker.settings import Settings
from worker.worker import run_worker
sys.exit(run_worker(Settings(state_dir=sys.argv[1])))
"""
_FLEET = """
[fleet]
name = "hall"
sweep_every = "1s"

[servers.gpu-1]
source = { kind = "redis", key = "worker:gpu-1" }
"""


def _state(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def _stop(running: Command) -> None:
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(timeout=60) == 0


def test_without_a_file_it_shows_the_demonstration_and_a_second_run_goes_on(
    tmp_path: Path,
) -> None:
    with command(_UP, tmp_path, _state(tmp_path)) as first:
        ui = first.until("Temporal UI: http://127.0.0.1:")
        assert "demonstration fleet, version 1 (7 added)" in first.until("Fleet: ")
        first.until(f"{HEALTHY}: ")
        _stop(first)
    assert left_behind(tmp_path) == []
    with command(_UP, tmp_path, _state(tmp_path)) as second:
        assert second.until("Temporal UI: ") == ui
        assert "version 1 (unchanged)" in second.until("Fleet: ")
        _stop(second)
    assert left_behind(tmp_path) == []


def test_ctrl_c_while_it_starts_ends_it_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    with command(_UP, tmp_path, _state(tmp_path)) as running:
        running.until("starting")
        _stop(running)
        assert "Fleet: " not in "\n".join(running.lines)
    assert left_behind(tmp_path) == []


def test_a_second_one_on_the_same_state_is_refused(tmp_path: Path) -> None:
    with command(_UP, tmp_path, _state(tmp_path)) as first:
        first.until("Fleet: ")
        with command(_UP, tmp_path, _state(tmp_path)) as second:
            second.until(f"steady already runs on {_state(tmp_path)} (PID {first.process.pid})")
            assert second.process.wait(timeout=30) == 1
        _stop(first)


def test_the_file_is_applied_again_when_it_changes_and_a_bad_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(_FLEET)
    with command(_UP, tmp_path, _state(tmp_path)) as running:
        assert "fleet.toml, version 1 (1 added)" in running.until("Fleet: ")
        running.until("gpu-1: missing")
        file.write_text(_FLEET.replace("gpu-1", "gpu-2"))
        changed = running.until("has changed: ")
        assert changed.endswith("version 2 (1 added, 1 removed)")
        file.write_text(_FLEET.replace("sweep_every", "sweep_evry"))
        assert "fleet.sweep_evry" in running.until("sweep_evry")
        running.until("the fleet in force stays")
        _stop(running)


@pytest.mark.anyio
async def test_a_temporal_that_the_environment_names_is_used_and_none_is_started(
    tmp_path: Path,
) -> None:
    async with dev_server(tmp_path / "theirs") as server:
        named = {"TEMPORAL_ADDRESS": server.address}
        with command(_UP, tmp_path, _state(tmp_path), variables=named) as running:
            await to_thread.run_sync(
                running.until, f"Temporal: {server.address} (not started by steady)"
            )
            await to_thread.run_sync(running.until, f"{HEALTHY}: ")
            await to_thread.run_sync(_stop, running)
    assert not (tmp_path / "state" / "temporal.db").exists()


_ENDPOINT = """
[gateway]
listen = "127.0.0.1:{listen}"
admin = "127.0.0.1:{admin}"
admin_token = {{ env = "TOKEN" }}

[endpoints.chat]
backends = {{ gpu-1 = {{ url = "http://127.0.0.1:{backend}" }} }}
"""


def test_it_starts_the_gateway_where_the_file_has_endpoints(tmp_path: Path) -> None:
    listen, file = free_port(), tmp_path / "fleet.toml"
    token = {"TOKEN": "a-token-of-a-test-0123456789"}
    with receiver() as backend:
        backend.answer = lambda _: Answer(body=b"ok")
        ports = {"listen": listen, "admin": free_port(), "backend": backend.port}
        file.write_text(_FLEET + _ENDPOINT.format(**ports))
        with command(_UP, tmp_path, _state(tmp_path), variables=token) as running:
            assert running.until("Gateway: ") == f"Gateway: http://127.0.0.1:{listen}"
            assert httpx.get(f"http://127.0.0.1:{listen}/v1/models").text == "ok"
            file.write_text(file.read_text() + 'path = "/chat"\n')
            running.until("the gateway serves what it began with: stop and start `steady up`")
            _stop(running)
    assert (tmp_path / "state" / "gateway.lock").exists()
    assert left_behind(tmp_path) == []


def test_it_starts_a_gateway_of_several_processes_and_ends_all_of_them(tmp_path: Path) -> None:
    listen, file = free_port(), tmp_path / "fleet.toml"
    token = {"TOKEN": "a-token-of-a-test-0123456789"}
    with receiver() as backend:
        backend.answer = lambda _: Answer(body=b"ok")
        ports = {"listen": listen, "admin": free_port(), "backend": backend.port}
        text = _ENDPOINT.format(**ports).replace("[gateway]", "[gateway]\nprocesses = 2")
        text = text.replace(f'"127.0.0.1:{ports["admin"]}"', f'"unix://{tmp_path}/admin.sock"')
        file.write_text(_FLEET + text)
        with command(_UP, tmp_path, _state(tmp_path), variables=token) as running:
            assert running.until("Gateway: ", within=180) == f"Gateway: http://127.0.0.1:{listen}"
            assert httpx.get(f"http://127.0.0.1:{listen}/v1/models").text == "ok"
            log = (tmp_path / "state" / "logs" / "gateway.log").read_text()
            pids = list(map(int, re.findall(r"processes=\[(\d+), (\d+)\]", log)[0]))
            assert all(map(lives, pids))
            assert (tmp_path / "admin.sock").exists()
            _stop(running)
    assert not any(map(lives, pids))
    assert left_behind(tmp_path) == []


def test_a_gateway_that_cant_listen_ends_it_and_says_why(tmp_path: Path) -> None:
    file, token = tmp_path / "fleet.toml", {"TOKEN": "a-token-of-a-test-0123456789"}
    with receiver() as taken:
        ports = {"listen": taken.port, "admin": free_port(), "backend": 1}
        file.write_text(_FLEET + _ENDPOINT.format(**ports))
        with command(_UP, tmp_path, _state(tmp_path), variables=token) as running:
            running.until("the gateway ended with exit code 3")
            running.until(f"can't listen at gateway.listen = 127.0.0.1:{taken.port} (")
            assert running.process.wait(timeout=60) == 1
    assert left_behind(tmp_path) == []


def test_a_bad_file_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text("[servers]\n")
    with command(_UP, tmp_path, _state(tmp_path)) as running:
        running.until("FleetFileError")
        assert running.process.wait(timeout=30) == 1
    assert not (tmp_path / "state").exists()


def test_a_killed_one_leaves_nothing_that_hinders_the_next(tmp_path: Path) -> None:
    with command(_UP, tmp_path, _state(tmp_path)) as first:
        first.until(f"{HEALTHY}: ")
        first.process.kill()
    with command(_UP, tmp_path, _state(tmp_path)) as second:
        second.until("version 1 (unchanged)")
        _stop(second)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_ends_well(tmp_path: Path, order: signal.Signals) -> None:
    with command(_UP, tmp_path, _state(tmp_path)) as house:
        house.until("Fleet: ")
        with command(_WORKER, tmp_path, _state(tmp_path)) as worker:
            worker.until("working")
            worker.process.send_signal(order)
            try:
                assert worker.process.wait(timeout=60) == 0
            except subprocess.TimeoutExpired:
                pytest.fail("\n".join(worker.lines))
        _stop(house)
