"""``steady gateway`` as a process: it serves, shows itself, and stops in good order."""

import signal
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.parts.ports import free_port
from tests.parts.processes import command
from tests.parts.receiver import Answer, Received, receiver
from worker.cli import main

STEADY = "from worker.cli import main; main()"
FLEET = """\
[servers.gpu-1]
source = {{ kind = "redis", key = "worker:1" }}

[gateway]
listen = "127.0.0.1:{listen}"
admin = "127.0.0.1:{admin}"

[endpoints.chat]
backends = {{ gpu-1 = {{ url = "http://127.0.0.1:{backend}" }} }}
"""


def write(folder: Path, backend: int) -> tuple[str, str]:
    """A fleet file; gives the base URLs of the gateway and of its admin side."""
    listen, admin = free_port(), free_port()
    text = FLEET.format(listen=listen, admin=admin, backend=backend)
    (folder / "fleet.toml").write_text(text)
    return f"http://127.0.0.1:{listen}", f"http://127.0.0.1:{admin}"


def test_it_serves_until_it_is_told_to_stop_and_finishes_what_is_in_flight(tmp_path: Path) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def answer(request: Received) -> Answer:
        if request.path == "/slow":
            asked.set()
            go_on.wait(20)
        return Answer(body=b"ok")

    with receiver() as backend:
        backend.answer = answer
        url, admin = write(tmp_path, backend.port)
        with command(STEADY, tmp_path, "gateway", "--file", "fleet.toml") as running:
            running.until("serving")
            assert httpx.post(f"{url}/v1/chat/completions", json={}).text == "ok"
            assert httpx.get(f"{admin}/health").json()["status"] == "ok"
            assert 'server="gpu-1",status="2xx"} 1.0' in httpx.get(f"{admin}/metrics").text
            answers: list[httpx.Response] = []
            asking = threading.Thread(
                target=lambda: answers.append(httpx.get(f"{url}/slow", timeout=20))
            )
            asking.start()
            assert asked.wait(20)
            running.process.send_signal(signal.SIGTERM)
            running.until("stopping")
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{url}/late")
            assert httpx.get(f"{admin}/health").json()["why"] == ["the gateway is stopping"]
            go_on.set()
            asking.join()
            assert answers[0].text == "ok"
            assert running.process.wait(20) == 0


def test_an_address_that_is_taken_is_one_line_and_exit_3(tmp_path: Path) -> None:
    with receiver() as taken:
        write(tmp_path, taken.port)
        file = tmp_path / "fleet.toml"
        file.write_text(
            file.read_text().replace('listen = "', f'listen = "127.0.0.1:{taken.port}" # ')
        )
        with command(STEADY, tmp_path, "gateway") as running:
            running.until(f"can't listen at gateway.listen = 127.0.0.1:{taken.port} (")
            assert running.process.wait(20) == 3


def test_a_file_without_endpoints_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[servers.gpu-1]\nsource = { kind = "redis", key = "worker:1" }\n')
    monkeypatch.setattr(sys, "argv", ["steady", "gateway", "--file", str(file)])
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    main()
    assert codes == [2]
    said = f"{file} has no endpoints: add one, beginning with [endpoints.NAME]\n"
    assert capfd.readouterr().err == said
