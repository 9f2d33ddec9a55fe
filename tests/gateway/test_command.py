"""``steady gateway`` as a process: it serves, shows itself, and stops in good order."""

import signal
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.parts.gateways import TOKEN
from tests.parts.ports import free_port
from tests.parts.processes import command
from tests.parts.receiver import Answer, Received, receiver
from worker.cli import main

STEADY = "from worker.cli import main; main()"
WITH_TOKEN = {"TOKEN": TOKEN}
LET_IN = {"Authorization": f"Bearer {TOKEN}"}
FLEET = """\
[servers.gpu-1]
source = {{ kind = "redis", key = "worker:1" }}

[gateway]
listen = "127.0.0.1:{listen}"
admin = "127.0.0.1:{admin}"
admin_token = {{ env = "TOKEN" }}

[endpoints.chat]
backends = {{ gpu-1 = {{ url = "http://127.0.0.1:{backend}" }} }}
"""


def write(folder: Path, backend: int) -> tuple[str, str]:
    """A fleet file; gives the base URLs of the gateway and of its admin side."""
    listen, admin = free_port(), free_port()
    text = FLEET.format(listen=listen, admin=admin, backend=backend)
    (folder / "fleet.toml").write_text(text)
    return f"http://127.0.0.1:{listen}", f"http://127.0.0.1:{admin}"


def test_its_figures_name_the_engine_that_the_fleet_file_names(tmp_path: Path) -> None:
    def answer(_: Received) -> Answer:
        said = b'{"model":"m-8b","usage":{"prompt_tokens":1,"completion_tokens":2}}'
        return Answer(body=said, headers={"Content-Type": "application/json"})

    with receiver() as backend:
        backend.answer = answer
        url, admin = write(tmp_path, backend.port)
        file = tmp_path / "fleet.toml"
        engine = '{ kind = "vllm", url = "http://127.0.0.1:1" }'
        file.write_text(file.read_text().replace('{ kind = "redis", key = "worker:1" }', engine))
        with command(
            STEADY, tmp_path, "gateway", "--file", "fleet.toml", variables=WITH_TOKEN
        ) as running:
            running.until("serving")
            assert httpx.post(f"{url}/v1/chat/completions", json={}).is_success
            page = httpx.get(f"{admin}/metrics").text
    assert 'gen_ai_provider_name="vllm",gen_ai_response_model="m-8b"' in page


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
        with command(
            STEADY, tmp_path, "gateway", "--file", "fleet.toml", variables=WITH_TOKEN
        ) as running:
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
        with command(STEADY, tmp_path, "gateway", variables=WITH_TOKEN) as running:
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


def drained(admin: str) -> list[str]:
    """The leases of the backend, by a gateway of its own process."""
    shown = httpx.get(f"{admin}/state", headers=LET_IN).json()["backends"]["gpu-1"]
    return [lease["id"] for lease in shown["leases"]]


def test_what_was_set_survives_a_kill_and_a_lease_that_ran_out_meanwhile_is_out(
    tmp_path: Path,
) -> None:
    with receiver() as backend:
        url, admin = write(tmp_path, backend.port)
        with command(STEADY, tmp_path, "gateway", variables=WITH_TOKEN) as running:
            running.until("serving")
            for name, lasting in (("long", "1h"), ("short", "2s")):
                terms = {"holder": "ann", "for": lasting}
                lease = f"{admin}/backends/gpu-1/leases/{name}"
                assert httpx.put(lease, json=terms, headers=LET_IN).status_code == 200
            assert TOKEN not in "".join(running.lines)
            running.process.kill()
            running.process.wait(20)
        time.sleep(2)
        with command(STEADY, tmp_path, "gateway", variables=WITH_TOKEN) as running:
            running.until("serving")
            assert drained(admin) == ["long"]
            assert httpx.get(f"{url}/v1/models").status_code == 503
            httpx.delete(f"{admin}/backends/gpu-1/leases/long", headers=LET_IN)
            assert httpx.get(f"{url}/v1/models").status_code == 200
        assert TOKEN not in (tmp_path / ".steady" / "gateway.json").read_text()


def test_a_state_that_cant_be_read_is_told_and_the_gateway_serves(tmp_path: Path) -> None:
    (tmp_path / ".steady").mkdir()
    (tmp_path / ".steady" / "gateway.json").write_text("?")
    with receiver() as backend:
        url, admin = write(tmp_path, backend.port)
        with command(STEADY, tmp_path, "gateway", variables=WITH_TOKEN) as running:
            running.until("kept_aside=")
            running.until("serving")
            assert httpx.get(f"{url}/v1/models").status_code == 200
            assert drained(admin) == []


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "the environment variable TOKEN is not set or empty"),
        ("short", "it has to be 16 characters or more"),
    ],
)
def test_a_token_that_lets_anybody_in_is_refused(tmp_path: Path, token: str, said: str) -> None:
    write(tmp_path, free_port())
    with command(STEADY, tmp_path, "gateway", variables={"TOKEN": token}) as running:
        running.until(f"gateway.admin_token: {said}")
        assert running.process.wait(20) == 2


def test_a_folder_for_paired_samples_that_is_not_there_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 1)
    file = tmp_path / "fleet.toml"
    pairs = f'[endpoints.chat.paired_samples]\nfile = "{tmp_path}/none/pairs.jsonl"\n'
    file.write_text(file.read_text() + pairs)
    monkeypatch.setenv("TOKEN", TOKEN)
    monkeypatch.setattr(sys, "argv", ["steady", "gateway", "--file", str(file)])
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    main()
    assert codes == [2]
    said = capfd.readouterr().err
    assert "endpoints.chat.paired_samples.file: nothing can be written in" in said


@pytest.mark.parametrize(("hard", "told"), [(10_000, False), (1_000, True)])
def test_it_may_open_as_many_files_as_its_machine_lets_it(
    tmp_path: Path, hard: int, told: bool
) -> None:
    script = f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (100, {hard})); {STEADY}"
    write(tmp_path, free_port())
    with command(script, tmp_path, "gateway", variables=WITH_TOKEN) as running:
        running.until("serving")
        limits = Path(f"/proc/{running.process.pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    assert line.split()[3:5] == [str(hard), str(hard)]
    assert ("open files are limited" in "".join(running.lines)) is told
