"""Several gateway processes on one port: one order reaches all, and their figures are one."""

import json
import os
import signal
import threading
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.parts.gateway_groups import CHAT, EACH_ITS_OWN, clients, connections, group, lives, until
from tests.parts.gateways import TOKEN
from tests.parts.processes import command
from tests.parts.receiver import Answer, Received, receiver
from worker.cli import app

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
REQUESTS = (
    'steady_gateway_requests_total{endpoint="chat",role="production",server="gpu-1",status="2xx"}'
)
ENOUGH = 40


def test_they_share_a_port_an_order_reaches_all_and_figures_are_of_all(tmp_path: Path) -> None:
    go_on = threading.Event()

    def answer(request: Received) -> Answer:
        if request.headers.get("Slow"):
            go_on.wait(60)
        return Answer()

    with (
        receiver() as backend,
        group(tmp_path, backend.port, settings='mirror_budget = "3MiB"') as gateway,
    ):
        backend.answer = answer
        idle = clients(gateway.port, ENOUGH)
        until(lambda: all(connections(pid, gateway.port) for pid in gateway.pids))
        served = [connections(pid, gateway.port) for pid in gateway.pids]
        assert sum(served) == ENOUGH
        until(lambda: gateway.figure("steady_gateway_client_connections") == ENOUGH)
        for one in idle:
            one.close()

        assert gateway.statuses() == [200] * ENOUGH
        assert gateway.figure(REQUESTS) == ENOUGH
        assert gateway.figure("steady_gateway_processes") == 2
        assert gateway.figure("steady_gateway_mirror_bytes_limit") == 3 * 2**20
        assert gateway.figure('steady_gateway_weight{endpoint="chat",server="gpu-1"}') == 1
        cost = gateway.figure('steady_gateway_cost_total{kind="backend",server="gpu-1"}')
        later = gateway.figure('steady_gateway_cost_total{kind="backend",server="gpu-1"}')
        assert 0 < cost <= later

        slow = clients(gateway.port, 10, POST.replace(b"Host: a", b"Host: a\r\nSlow: 1"))
        in_flight = 'steady_gateway_in_flight{server="gpu-1"}'
        until(lambda: gateway.figure(in_flight) == 10)
        shown = gateway.admin.get("/backends/gpu-1").json()
        assert shown["in_flight"] == 10

        assert gateway.drain().json()["id"] == "by-hand"
        assert gateway.statuses() == [503] * ENOUGH
        assert gateway.figure('steady_gateway_drained{server="gpu-1"}') == 1
        kept = json.loads((tmp_path / ".steady" / "gateway.json").read_text())
        assert list(kept["leases"]["gpu-1"]) == ["by-hand"]
        assert gateway.undrain().status_code == 200
        assert gateway.statuses() == [200] * ENOUGH

        # SIGTERM: all of them stop to accept, and finish what is in flight.
        gateway.running.process.send_signal(signal.SIGTERM)
        until(lambda: not any(listens(pid, gateway.port) for pid in gateway.pids))
        assert gateway.admin.get("/health").json()["why"] == ["the gateway is stopping"]
        with pytest.raises(httpx.ConnectError):
            httpx.get(gateway.url)
        go_on.set()
        for one in slow:
            assert one.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
            one.close()
        assert gateway.running.process.wait(60) == 0
        assert not any(map(lives, gateway.pids))
        assert not gateway.socket.exists()


def listens(pid: int, port: int) -> bool:
    """Whether anybody listens there, as the process's table of sockets says."""
    try:
        rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return False
    return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A" for row in rows)


def test_one_that_is_killed_comes_back_with_the_order_in_force_and_no_figure_falls(
    tmp_path: Path,
) -> None:
    with receiver() as backend, group(tmp_path, backend.port) as gateway:
        gateway.statuses()
        before = gateway.figure(REQUESTS)
        os.kill(gateway.pids[0], signal.SIGKILL)
        until(lambda: gateway.figure("steady_gateway_processes") == 1)
        assert gateway.figure(REQUESTS) == before == ENOUGH
        said = gateway.drain().json()
        assert said["waiting"] == ["process 1 is being started anew, and begins with this"]
        assert set(gateway.statuses(8)) == {503}
        gateway.running.until("ended='by SIGKILL'")
        gateway.running.until("serving again")
        until(lambda: gateway.figure("steady_gateway_processes") == 2)
        assert gateway.statuses() == [503] * ENOUGH
        assert gateway.figure("steady_gateway_process_restarts_total") == 1
        assert "waiting" not in gateway.undrain().json()
        assert gateway.statuses() == [200] * ENOUGH
        assert gateway.figure(REQUESTS) == 2 * ENOUGH
        assert gateway.admin.get("/health").json()["status"] == "ok"


def test_one_that_is_told_to_stop_by_hand_loses_no_figure(tmp_path: Path) -> None:
    with receiver() as backend, group(tmp_path, backend.port) as gateway:
        gateway.statuses()
        os.kill(gateway.pids[1], signal.SIGTERM)
        gateway.running.until("serving again")
        assert gateway.figure(REQUESTS) == ENOUGH


def test_one_that_does_not_answer_is_said_and_has_the_order_as_soon_as_it_does(
    tmp_path: Path,
) -> None:
    with receiver() as backend, group(tmp_path, backend.port) as gateway:
        os.kill(gateway.pids[1], signal.SIGSTOP)
        try:
            answer = gateway.drain()
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "not_taken"
            assert answer.json()["error"]["message"].startswith("process 2 of 2 did not take the")
            health = gateway.admin.get("/health")
            assert (health.status_code, health.json()["why"]) == (
                503,
                ["process 2 does not answer"],
            )
            for _ in range(20):  # more than are kept waiting
                gateway.admin.get("/backends/gpu-1")
            gateway.drain("another")
        finally:
            os.kill(gateway.pids[1], signal.SIGCONT)
        until(lambda: gateway.admin.get("/health").status_code == 200)
        assert gateway.statuses() == [503] * ENOUGH
        gateway.undrain()
        assert gateway.statuses() == [200] * ENOUGH


SOON_GIVEN_UP = """\
import worker.gateway_member as member
member.BACK_OFF = (0.1,)
from worker.cli import main
main()
"""


def test_one_that_ends_again_and_again_is_given_up_and_the_last_one_ends_the_gateway(
    tmp_path: Path,
) -> None:
    with receiver() as backend, group(tmp_path, backend.port, script=SOON_GIVEN_UP) as gateway:
        first, second = gateway.pids
        os.kill(first, signal.SIGKILL)
        gateway.running.until("serving again")
        os.kill(child_but(gateway.running.process.pid, second), signal.SIGKILL)
        gateway.running.until("is given up")
        health = gateway.admin.get("/health")
        said = "process 1 has ended too often and is not started any more"
        assert (health.status_code, health.json()["why"]) == (503, [said])
        assert gateway.drain().json()["waiting"] == [said]
        gateway.undrain()
        assert gateway.statuses() == [200] * ENOUGH
        os.kill(second, signal.SIGKILL)
        gateway.running.until("serving again")
        os.kill(child_but(gateway.running.process.pid, second), signal.SIGKILL)
        gateway.running.until("no process of the gateway stays alive")
        assert gateway.running.process.wait(60) == 3


def child_but(parent: int, other: int) -> int:
    """The child of a process that is not the other one."""
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    (found,) = [int(pid) for pid in text.split() if int(pid) != other]
    return found


def test_they_end_where_the_first_is_killed(tmp_path: Path) -> None:
    with receiver() as backend, group(tmp_path, backend.port) as gateway:
        gateway.running.process.kill()
        until(lambda: not any(map(lives, gateway.pids)))


def test_a_port_that_others_have_is_one_line_and_exit_3(tmp_path: Path) -> None:
    with receiver() as backend, group(tmp_path, backend.port) as gateway:
        # Another gateway of this user, on the same port with the same option.
        elsewhere = {"TOKEN": TOKEN, "STEADY_STATE_DIR": str(tmp_path / "other")}
        script = "from worker.cli import main; main()"
        with command(script, tmp_path, "gateway", variables=elsewhere) as second:
            second.until(f"can't listen at gateway.listen = 127.0.0.1:{gateway.port} (address al")
            assert second.process.wait(60) == 3
        assert gateway.statuses(8) == [200] * 8


CANDIDATE = """\
sample_by = "header:X-Session"
[endpoints.chat.candidates.next]
url = "http://127.0.0.1:{port}"
sample = 50
"""


def test_a_key_is_in_the_sample_of_every_process_or_of_none(tmp_path: Path) -> None:
    with receiver() as backend, receiver() as candidate:
        endpoint = CANDIDATE.format(port=candidate.port)
        with group(tmp_path, backend.port, endpoint=endpoint) as gateway:
            with httpx.Client(limits=EACH_ITS_OWN) as client:
                for key in range(12):
                    headers = {"X-Session": f"s{key}"}
                    for _ in range(10):
                        client.post(f"{gateway.url}{CHAT}", content=b"{}", headers=headers)
            results = 'steady_gateway_mirror_results_total{candidate="next",endpoint="chat",'
            completed = results + 'result="completed"}'
            until(lambda: gateway.figure(completed) == len(candidate.received))
        counts = [
            sum(each.headers.get("X-Session") == f"s{key}" for each in candidate.received)
            for key in range(12)
        ]
        assert set(counts) == {0, 10}


def test_what_one_mirrored_comes_back_to_none(tmp_path: Path) -> None:
    with receiver() as backend, group(tmp_path, backend.port) as gateway:
        spec = {"url": gateway.url, "sample": 100}
        added = gateway.admin.put("/endpoints/chat/candidates/loop", json=spec)
        assert added.status_code == 200
        gateway.statuses()
        loops = 'steady_gateway_errors_total{endpoint="",kind="loop",role="",server=""}'
        until(lambda: gateway.figure(loops) == ENOUGH)
        assert len(backend.received) == ENOUGH


PAIRS = """\
[endpoints.chat.paired_samples]
file = "{folder}/pairs.jsonl"
a_day = 1000000
[endpoints.chat.candidates.next]
url = "http://127.0.0.1:{port}"
sample = 100
"""


def test_all_write_their_paired_samples_to_one_file(tmp_path: Path) -> None:
    with receiver() as backend, receiver() as candidate:
        endpoint = PAIRS.format(folder=tmp_path, port=candidate.port)
        with group(tmp_path, backend.port, endpoint=endpoint) as gateway:
            written = 'steady_gateway_paired_samples_total{endpoint="chat",result="written"}'

            def enough() -> bool:
                gateway.statuses(8)
                return gateway.figure(written) >= 6

            until(enough)
            assert gateway.ended() == 0
        lines = (tmp_path / "pairs.jsonl").read_text().splitlines()
        assert len(lines) >= 6
        assert all(set(json.loads(line)["candidates"]) == {"next"} for line in lines)


def test_orders_of_the_command_line_say_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", TOKEN)
    with receiver() as backend, group(tmp_path, backend.port) as gateway:
        os.kill(gateway.pids[0], signal.SIGKILL)
        until(lambda: gateway.figure("steady_gateway_processes") == 1)
        given = ["gateway", "--file", str(tmp_path / "fleet.toml"), "drain", "gpu-1", "--for", "1h"]
        result = CliRunner().invoke(app, given, catch_exceptions=False)
        first, second = result.stdout.splitlines()
        assert "gpu-1 is drained until" in first
        assert second.endswith(": process 1 is being started anew, and begins with this")
