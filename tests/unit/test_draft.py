"""The fleet file that `steady init` writes: valid as it stands, careful, and honest about gaps."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.actions import Host
from fleet.config import Fleet
from fleet.discovery import Found
from fleet.draft import Looked, distinct, draft, entries
from fleet.engine_sources import EngineSource
from fleet.listening import Listening
from fleet.policy import Mode
from tests.parts.fleet_files import write_fleet
from worker.loading import examine

VLLM = Found("docker", "vllm-1", "vLLM", "its image", image="vllm/vllm-openai:v0.11.0", id="a")
COMPOSE = Found(
    *("docker", "chat-sglang-1", "SGLang", "its image"),
    image="lmsysorg/sglang",
    directory="/srv/chat",
    service="sglang",
    id="b",
)
UNIT = Found("systemd", "llm@2.service", "a worker", "its name", stop_timeout="1m30s")
OWN_UNIT = Found("systemd", "ollama.service", "Ollama", "its name", user=True)
POD = Found("podman", "tgi", "TGI", "its name", id="c")


def host(address: str = "10.0.0.1", **changes: object) -> Host:
    facts = {"address": address, "user": "steady", "key": "key", "known_hosts": "known_hosts"}
    return Host.model_validate({**facts, **changes})


def fleet(*looked: Looked, sudo: bool = False) -> Fleet:
    return Fleet.model_validate(tomllib.loads(draft(looked, sudo=sudo, file="fleet.toml")))


ALL = (
    Looked(host(), (VLLM, COMPOSE, UNIT), ("Podman could not be asked: no",)),
    Looked(host("10.0.0.2"), (VLLM, OWN_UNIT, POD)),
    Looked(host("10.0.0.3", port=2222)),
    Looked(host("gpu-4.internal"), problem="gpu-4.internal:22: no answer within 10 s"),
)


@pytest.mark.parametrize("sudo", [False, True])
def test_is_valid_as_it_stands(tmp_path: Path, sudo: bool) -> None:
    file = write_fleet(tmp_path, draft(ALL, sudo=sudo, file="fleet.toml"))
    examined = examine(file)
    assert [str(each) for each in examined.problems] == []
    assert [each.key for each in examined.warnings] == ["alerts.webhook"]


def test_restarts_nothing_before_a_person_says_so() -> None:
    written = fleet(*ALL)
    assert {written.policy(name).mode for name in written.servers} == {Mode.DRY_RUN}


def test_every_server_has_a_name_a_key_and_a_restart_of_its_own() -> None:
    written = fleet(*ALL)
    assert list(written.servers) == [
        *("10-0-0-1-vllm-1", "sglang", "llm-2", "10-0-0-2-vllm-1", "ollama", "tgi")
    ]
    shown = {name: each.model_dump(mode="json") for name, each in written.servers.items()}
    assert {shown[name]["source"]["key"] for name in shown} == {f"worker:{name}" for name in shown}
    restarts = [each["restart"] for each in shown.values()]
    assert [each["kind"] for each in restarts] == [
        *("docker", "docker", "systemd", "docker", "systemd", "podman")
    ]
    assert (restarts[2]["unit"], restarts[2]["stop_timeout"]) == ("llm@2.service", "1m30s")
    assert restarts[4]["user"] is True


def test_a_container_of_a_compose_project_may_be_restarted_as_a_service_instead() -> None:
    text = draft(ALL, sudo=False, file="fleet.toml")
    plain = '\nrestart = { kind = "docker", host = "10-0-0-1", name = "chat-sglang-1" }'
    service = '#restart = { kind = "compose", host = "10-0-0-1", directory = "/srv/chat"'
    assert plain in text
    other = text.replace(plain, "").replace(service, service[1:])
    assert Fleet.model_validate(tomllib.loads(other)).servers["sglang"].restart is not None


def test_with_sudo_the_restart_goes_through_it_too() -> None:
    written = fleet(*ALL, sudo=True)
    shown = {name: each.model_dump(mode="json") for name, each in written.servers.items()}
    assert shown["tgi"]["restart"]["cli"] == ["sudo", "-n", "podman"]
    assert shown["llm-2"]["restart"]["cli"] == ["sudo", "-n", "systemctl"]
    assert shown["ollama"]["restart"]["cli"] == ["systemctl"]


def test_what_could_not_be_looked_at_stands_in_it_as_a_comment() -> None:
    text = draft(ALL, sudo=False, file="fleet.toml")
    assert "# gpu-4.internal could not be looked at: gpu-4.internal:22: no answer" in text
    assert "# 10.0.0.3 is left out: nothing there looks like inference." in text
    assert "# 10.0.0.1: Podman could not be asked: no" in text
    assert list(fleet(*ALL).hosts) == ["10-0-0-1", "10-0-0-2"]


def test_a_machine_that_was_named_twice_is_written_down_once() -> None:
    both = [Looked(host("gpu-1"), (VLLM, UNIT)), Looked(host("10.0.0.1"), (UNIT, VLLM))]
    first, second = distinct(both)
    assert first.found == (VLLM, UNIT)
    assert second.found == ()
    assert second.remarks[0].startswith("is the same machine as gpu-1, by its containers")
    assert list(fleet(first, second).hosts) == ["gpu-1"]


def test_machines_without_containers_may_have_units_of_the_same_name() -> None:
    both = [Looked(host("gpu-1"), (UNIT,)), Looked(host("gpu-2"), (UNIT,))]
    assert distinct(both) == both


# --- engines -------------------------------------------------------------------------------------


def engine(name: str, **said: Any) -> Found:
    on = Listening(**{"kind": "vllm", "port": 8000, **said})
    return Found("docker", name, "vLLM", "its image", id=name, listens=on)


def said_of(text: str, server: str) -> str:
    """The lines of the server, with the comment before it, in one."""
    part = next(part for part in text.split("\n\n") if f"[servers.{server}]" in part)
    return " ".join(part.replace("\n# ", " ").split())


def test_an_engine_is_read_at_its_own_pages_and_needs_no_store() -> None:
    on = Listening("sglang", 30001, scheme="https", has_key=True, lacks="--enable-metrics")
    chat = Found("docker", "chat", "SGLang", "its image", id="s", listens=on)
    looked = (Looked(host(), (engine("vllm-1"), chat)),)
    written = fleet(*looked)
    sources = {name: each.source for name, each in written.servers.items()}
    assert [(each.kind, getattr(each, "url", "")) for each in sources.values()] == [
        ("vllm", "http://10.0.0.1:8000"),
        ("sglang", "https://10.0.0.1:30001"),
    ]
    assert written.stores == {}
    text = draft(looked, sudo=False, file="fleet.toml")
    assert "started without --enable-metrics" in said_of(text, "chat")
    assert 'add api_key = { env = "VARIABLE" }' in said_of(text, "chat")
    assert "TODO: check that steady reaches it there" in said_of(text, "vllm-1")
    assert "--enable-metrics" not in said_of(text, "vllm-1")


def test_the_page_of_an_engine_may_have_a_port_of_its_own() -> None:
    on = Listening("triton", 8000, metrics_port=8002)
    [server] = fleet(
        Looked(host("fe80::1"), (Found("docker", "t", "Triton", "its image", listens=on),))
    ).servers.values()
    assert isinstance(server.source, EngineSource)
    assert server.source.url == "http://[fe80::1]:8000"
    assert server.source.metrics_url == "http://[fe80::1]:8002/metrics"


def test_what_cannot_be_reached_or_is_another_s_is_left_to_a_person(tmp_path: Path) -> None:
    hidden = engine("hidden", port=None, why="its port 8000 is not published on the host")
    looked = (Looked(host(), (engine("vllm.1"), engine("Twin_"), hidden)),)
    text = draft(looked, sudo=False, file="fleet.toml")
    assert [str(each) for each in examine(write_fleet(tmp_path, text)).problems] == []
    assert "http://10.0.0.1:8000 is that of another server" in said_of(text, "Twin")
    assert "runs: its port 8000 is not published on the host." in said_of(text, "hidden")
    assert 'url = "http://hidden.example.invalid:8000"' in text


def test_what_a_restart_would_harm_stands_with_the_server() -> None:
    each = replace(VLLM, hindrance="vllm-1 was started with --rm:\nonce\x07 stopped it is removed")
    text = draft([Looked(host(), (each,))], sudo=False, file="fleet.toml")
    said = said_of(text, "vllm-1")
    assert "TODO: a restart would do harm, so steady pages." in said
    assert "vllm-1 was started with --rm: once stopped it is removed." in said
    assert "do harm" not in draft([Looked(host(), (VLLM,))], sudo=False, file="fleet.toml")


def test_each_gap_is_marked_and_named() -> None:
    text = draft(ALL, sudo=False, file="fleet.toml")
    marked = [line for line in text.splitlines() if line.startswith("# TODO: ")]
    assert len(marked) == len(entries(ALL)) + 2
    assert 'url = "redis://redis.example.invalid:6379/0"' in text


def test_nothing_that_a_host_says_leaves_its_comment() -> None:
    evil = Found(*("docker", "vllm", "vLLM", "its image"), image="x\n[servers.evil]\n" + "y" * 300)
    told = Looked(host("b"), problem="went\n[hosts.evil]\nwrong")
    written = fleet(Looked(host(), (evil,), ("a\nb = 1",)), told)
    assert list(written.servers) == ["vllm"]
    assert list(written.hosts) == ["10-0-0-1"]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("gpu-1.internal", "gpu-1"),
        ("gpu-1", "gpu-1"),
        ("10.0.0.1", "10-0-0-1"),
        ("fe80::1", "fe80-1"),
        ("::1", "1"),
        ("_x.y", "x"),
    ],
)
def test_a_host_is_named_by_its_first_label_or_its_address(address: str, name: str) -> None:
    assert [entry.host for entry in entries([Looked(host(address), (VLLM,))])] == [name]


def test_hosts_with_the_same_first_label_get_numbers() -> None:
    both = [Looked(host("gpu.a"), (VLLM,)), Looked(host("gpu.b"), (COMPOSE,))]
    assert [entry.host for entry in entries(both)] == ["gpu", "gpu-2"]


def test_names_that_differ_only_by_case_or_are_too_long_are_mended() -> None:
    long = "vllm-" + "x" * 100
    names = ("vLLM", "vllm", long, f"{long}y")
    found = tuple(Found("docker", name, "vLLM", "its name", id=name) for name in names)
    written = fleet(Looked(host(), found))
    assert len({name.lower() for name in written.servers}) == 4


def test_a_key_that_is_no_bare_word_is_quoted() -> None:
    dotted = Found("docker", "vllm.a", "vLLM", "its name", id="d")
    assert list(fleet(Looked(host(), (dotted,))).servers) == ["vllm.a"]
