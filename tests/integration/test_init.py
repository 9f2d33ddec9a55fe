"""`steady init` over a real SSH server, on real containers.

systemd does not run in a container, so its units stand behind a small `systemctl` of the test that
prints what the real one prints.
"""

import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.config import Fleet
from tests.parts.docker import Docker
from tests.parts.ended import Ended
from tests.parts.ports import free_port
from tests.parts.sshd import Sshd, sshd
from worker.loading import load

STEADY = Path(sys.executable).with_name("steady")
SECRET = "hf_thisIsAPlantedSecret1234567890"
COMPOSE = "com.docker.compose"

UNITS = """\
TimeoutStopUSec=1min 30s
ExecStart={ path=/opt/llm/serve ; argv[]=/opt/llm/serve --token %s ; ignore_errors=no ; pid=7 }
Id=llm-worker@1.service
LoadState=loaded
ActiveState=active

ExecStart={ path=/usr/sbin/cron ; argv[]=/usr/sbin/cron -f ; ignore_errors=no ; pid=8 }
Id=cron.service
LoadState=loaded
ActiveState=active
"""

pytestmark = pytest.mark.needs("openssh-server")


@dataclass
class Machine:
    """A host with programs of its own in its PATH, which may be few."""

    ssh: Sshd
    bin: Path

    def has(self, name: str, script: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def lacks(self, name: str) -> None:
        (self.bin / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    programs = folder / "bin"
    programs.mkdir()
    for name in ("timeout", "sh", "cat", "sleep"):
        (programs / name).symlink_to(Path("/usr/bin") / name)
    with sshd(folder / "sshd", path=str(programs)) as running:
        yield Machine(running, programs)


@pytest.fixture
def with_units(machine: Machine) -> Iterator[Machine]:
    machine.has(
        "systemctl", f"case $1 in --user) exit 1;; esac\ncat <<'END'\n{UNITS % SECRET}\nEND"
    )
    yield machine
    machine.lacks("systemctl")


@pytest.fixture
def with_docker(machine: Machine, docker: Docker) -> Iterator[Machine]:
    machine.has("docker", f'exec {docker.client} -H unix://{docker.socket} "$@"')
    yield machine
    machine.lacks("docker")


def init(machine: Machine, folder: Path, *arguments: str, hosts: tuple[str, ...] = ()) -> Ended:
    options: list[str | Path] = ["--port", str(machine.ssh.port), "--key", machine.ssh.key]
    options += ["--known-hosts", machine.ssh.known_hosts, *arguments]
    done = subprocess.run(
        [STEADY, "init", *options, *(hosts or ("127.0.0.1",))],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def validated(folder: Path) -> Fleet:
    """What `steady validate` makes of the file as it was written."""
    done = subprocess.run(
        [STEADY, "validate", "fleet.toml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return load(folder / "fleet.toml")


@pytest.mark.needs("docker.io")
def test_real_containers_become_servers_of_a_file_that_is_valid(
    with_docker: Machine, with_units: Machine, docker: Docker, tmp_path: Path
) -> None:
    name = f"vllm-{time.monotonic_ns()}"
    started = (f"{name}-a", f"{name}-b", f"{name}-exporter")
    for each, service in zip(started, ("chat", "", "metrics"), strict=True):
        labels = {f"{COMPOSE}.project.working_dir": "/srv/chat", f"{COMPOSE}.service": service}
        docker.run_container(
            each,
            (sys.executable, "-c", f"import time; time.sleep(600)  # {SECRET}"),
            env={"HF_TOKEN": SECRET},
            labels=labels if service else None,
        )
    try:
        ended = init(with_docker, tmp_path)
    finally:
        for each in started:
            docker.rm(each)
    assert ended.code == 0, ended.err
    text = (tmp_path / "fleet.toml").read_text()
    fleet = validated(tmp_path)
    restarts = {
        server: each.restart.model_dump(mode="json", include={"kind", "name", "unit"})
        for server, each in fleet.servers.items()
        if each.restart is not None
    }
    assert restarts["chat"] == {"kind": "docker", "name": started[0]}
    assert restarts[started[1]] == {"kind": "docker", "name": started[1]}
    assert restarts["llm-worker-1"] == {"kind": "systemd", "unit": "llm-worker@1.service"}
    assert started[2] not in text
    assert fleet.policy("chat").mode == "dry_run"
    assert SECRET not in text + ended.out + ended.err


@pytest.mark.needs("docker.io")
def test_an_engine_is_read_at_its_own_pages_and_what_a_restart_would_harm_is_said(
    with_docker: Machine, docker: Docker, tmp_path: Path
) -> None:
    name = f"vllm-{time.monotonic_ns()}"
    sleep = (sys.executable, "-c", "import time; time.sleep(600)", "--port", "8123", SECRET)
    owner, joined, alone = (f"{name}-{each}" for each in ("owner", "joined", "alone"))
    started = {owner: "none", joined: f"container:{owner}", alone: "host"}
    for each, network in started.items():
        options = ("--rm",) if each == alone else ()
        docker.run_container(each, sleep, network=network, options=options)
    try:
        ended = init(with_docker, tmp_path, "--json")
    finally:
        for each in started:
            docker.rm(each)
    assert ended.code == 0, ended.err
    fleet = validated(tmp_path)
    sources = {
        server: each.source.model_dump(mode="json") for server, each in fleet.servers.items()
    }
    assert {each["kind"] for each in sources.values()} == {"vllm"}
    assert sources[alone]["url"] == "http://127.0.0.1:8123"
    assert sources[joined]["url"] == f"http://{joined}.example.invalid:8000"
    found = {each["name"]: each for each in ended.document["hosts"][0]["found"]}
    assert {name: each["url"] for name, each in found.items()} == {
        owner: None,
        joined: None,
        alone: "http://127.0.0.1:8123",
    }
    assert f"{alone} was started with --rm" in found[alone]["hindrance"]
    assert f"{joined} runs in its network" in found[owner]["hindrance"]
    assert f"runs in the network of {owner}" in found[joined]["hindrance"]
    text = " ".join((tmp_path / "fleet.toml").read_text().replace("\n# ", " ").split())
    for each in found.values():
        assert each["hindrance"] in text
    assert SECRET not in text + ended.out + ended.err


def test_what_was_found_is_printed_for_programs(with_units: Machine, tmp_path: Path) -> None:
    ended = init(with_units, tmp_path, "--json", "--out", "other.toml")
    assert ended.code == 0, ended.err
    assert ended.document == {
        "file": "other.toml",
        "hosts": [
            {
                "host": "127.0.0.1",
                "problem": None,
                "remarks": [],
                "found": [
                    {
                        "server": "llm-worker-1",
                        "kind": "systemd",
                        "name": "llm-worker@1.service",
                        "looks_like": "a worker",
                        "because": "its name",
                        "image": "",
                        "user": False,
                        "url": None,
                        "hindrance": "",
                    }
                ],
            }
        ],
    }
    assert (tmp_path / "other.toml").exists()


def test_a_host_whose_key_is_not_known_is_told_with_the_remedy_and_the_others_are_written(
    with_units: Machine, tmp_path: Path
) -> None:
    ended = init(with_units, tmp_path, hosts=("localhost", "127.0.0.1"))
    assert ended.code == 3
    [line] = ended.err.splitlines()
    assert line.startswith("localhost:")
    assert "is not in" in line
    assert "`steady ssh-scan` prints what to add" in line
    assert list(validated(tmp_path).hosts) == ["127-0-0-1"]
    assert "# localhost could not be looked at" in (tmp_path / "fleet.toml").read_text()


def test_where_no_host_is_reached_nothing_is_written(machine: Machine, tmp_path: Path) -> None:
    nobody = machine.ssh.host_at(free_port())
    ended = init(machine, tmp_path, "--port", str(nobody.port), "--known-hosts", nobody.known_hosts)
    assert ended.code == 3
    assert ended.err.endswith("nothing was written: no host could be looked at\n")
    assert "no SSH server listens there" in ended.err
    assert not (tmp_path / "fleet.toml").exists()


def test_a_host_without_inference_gives_no_file(machine: Machine, tmp_path: Path) -> None:
    ended = init(machine, tmp_path, "--json")
    assert ended.code == 1
    assert ended.document["file"] is None
    assert ended.document["hosts"][0]["remarks"] == []
    assert not (tmp_path / "fleet.toml").exists()


def test_a_file_that_is_there_is_kept_unless_force_is_given(
    with_units: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("mine")
    refused = init(with_units, tmp_path)
    assert refused.code == 2
    assert refused.err == (
        "fleet.toml is there already: --force replaces it, --out names another\n"
    )
    assert file.read_text() == "mine"
    assert init(with_units, tmp_path, "--force").code == 0
    assert "llm-worker-1" in validated(tmp_path).servers


def test_an_engine_that_refuses_the_user_hides_nothing_else(
    with_units: Machine, tmp_path: Path
) -> None:
    with_units.has("docker", "echo 'permission denied while trying to connect' >&2; exit 1")
    try:
        ended = init(with_units, tmp_path)
    finally:
        with_units.lacks("docker")
    assert ended.code == 0
    assert "127.0.0.1: Docker could not be asked: the container engine refuses" in ended.err
    assert "llm-worker-1" in validated(tmp_path).servers


def test_an_engine_that_prints_without_end_is_cut_off(with_units: Machine, tmp_path: Path) -> None:
    with_units.has("docker", "while :; do echo vllm vllm vllm vllm vllm vllm vllm vllm; done")
    try:
        ended = init(with_units, tmp_path)
    finally:
        with_units.lacks("docker")
    assert "127.0.0.1: Docker printed far too much" in ended.err
    assert "llm-worker-1" in validated(tmp_path).servers


def test_an_engine_that_hangs_is_given_up(with_units: Machine, tmp_path: Path) -> None:
    with_units.has("docker", "exec sleep 600")
    began = time.monotonic()
    try:
        ended = init(with_units, tmp_path)
    finally:
        with_units.lacks("docker")
    assert time.monotonic() - began < 90
    assert "127.0.0.1: Docker could not be asked" in ended.err
    assert "llm-worker-1" in validated(tmp_path).servers


def test_a_key_that_is_not_there_is_one_line(machine: Machine, tmp_path: Path) -> None:
    ended = init(machine, tmp_path, "--key", "nowhere")
    assert ended.code == 2
    assert ended.err == (
        "there is no key file nowhere: name one with --key, or make it with"
        " `ssh-keygen -t ed25519 -f nowhere`\n"
    )


@pytest.mark.parametrize("host", ["steady@gpu-1", "gpu-1:22", "-oProxyCommand=x"])
def test_a_host_that_is_more_than_an_address_is_one_line(
    machine: Machine, tmp_path: Path, host: str
) -> None:
    ended = init(machine, tmp_path, hosts=("--", host) if host.startswith("-") else (host,))
    assert ended.code == 2
    assert not (tmp_path / "fleet.toml").exists()
