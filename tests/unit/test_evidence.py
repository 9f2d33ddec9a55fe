"""What is asked of a host for evidence, and what its first answer says of the process."""

import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from fleet.actions import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Host,
    Restart,
    SystemdRestart,
)
from fleet.contracts.host import HostStatus
from fleet.engine_sources import EngineSource
from fleet.evidence import (
    GPU_LOOK,
    GPU_TABLE,
    RECENT,
    Subject,
    bounded,
    first_look,
    kernel_looks,
    last_looks,
    log_look,
    pages,
    subject,
)
from fleet.host_replies import Reply
from fleet.secret_refs import SecretRef
from fleet.sources import RedisSource, StatusSource

DOCKER = DockerRestart(kind="docker", host="h", name="gpu-1")
PODMAN = DockerRestart(kind="podman", host="h", name="gpu-1")
COMPOSE = ComposeRestart(kind="compose", host="h", directory="/srv/models", service="vllm")
UNIT = SystemdRestart(kind="systemd", host="h", unit="vllm.service")
USER_UNIT = SystemdRestart(kind="systemd", host="h", unit="vllm.service", user=True)
COMMAND = CommandRestart(kind="command", host="h", argv=("/opt/restart",))
NAMED = CommandRestart(kind="command", host="h", argv=("/opt/restart",), identity=("/opt/id",))
HOST = Host(address="h", user="steady", key="/key")
DUMPING = HOST.model_copy(update={"stack_dump": ("py-spy", "dump", "--pid")})
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SHOWN = {
    "id": "c1",
    "state": {"Running": True, "Pid": 4242, "StartedAt": "2026-11-30T09:00:00.123456789Z"},
    "host": {"DeviceRequests": None},
}


def all_looks(restart: Restart, container: str | None = "c1") -> dict[str, tuple[str, ...]]:
    looks = [first_look(restart, container), log_look(restart, container), GPU_LOOK, GPU_TABLE]
    looks += last_looks(restart, container, DUMPING, Subject(pid=4242))
    return {look.name: look.argv for look in looks if look is not None}


@pytest.mark.parametrize("restart", [DOCKER, PODMAN, COMPOSE, UNIT, USER_UNIT])
def test_no_environment_is_ever_asked_for(restart: Restart) -> None:
    for argv in all_looks(restart).values():
        assert not any(word in " ".join(argv) for word in (".Config", ".Env", "Environment"))
        assert "inspect" not in argv or "--format" in argv
        assert "show" not in argv or any(part.startswith("--property=") for part in argv)


@pytest.mark.parametrize(
    ("restart", "names"),
    [
        (DOCKER, {"container.json", "logs.txt", "processes.txt"}),
        (PODMAN, {"container.json", "logs.txt", "processes.txt"}),
        (COMPOSE, {"container.json", "logs.txt", "processes.txt"}),
        (UNIT, {"unit.txt", "journal.txt", "processes.txt"}),
        (COMMAND, set()),
        (NAMED, {"identity.txt"}),
    ],
)
def test_each_kind_has_its_own_looks_and_all_have_the_gpus(
    restart: Restart, names: set[str]
) -> None:
    assert set(all_looks(restart)) == names | {"nvidia-smi-q.txt", "nvidia-smi.txt", "stack.txt"}


def test_evidence_of_a_service_without_a_container_is_what_the_host_alone_shows() -> None:
    assert first_look(COMPOSE, None) is None
    assert log_look(COMPOSE, None) is None
    assert list(last_looks(COMPOSE, None, HOST, Subject())) == []


def test_evidence_of_a_user_unit_comes_from_the_users_journal() -> None:
    assert all_looks(USER_UNIT)["journal.txt"][:2] == ("journalctl", "--user")


def test_sudo_before_systemctl_is_kept_for_the_journal() -> None:
    unit = UNIT.model_copy(update={"cli": ("sudo", "-n", "systemctl")})
    assert all_looks(unit)["journal.txt"][:3] == ("sudo", "-n", "journalctl")


def test_a_stack_is_dumped_only_where_the_operator_names_a_tool_and_the_process_is_known() -> None:
    assert all_looks(DOCKER)["stack.txt"] == ("py-spy", "dump", "--pid", "4242")
    for host, known in ((HOST, Subject(pid=4242)), (DUMPING, Subject())):
        assert "stack.txt" not in {look.name for look in last_looks(DOCKER, None, host, known)}


def test_the_operators_way_to_the_kernels_log_is_the_only_one() -> None:
    own = HOST.model_copy(update={"kernel_log": ("sudo", "-n", "dmesg")})
    assert kernel_looks(own, NOW) == (("sudo", "-n", "dmesg"),)
    assert [argv[0] for argv in kernel_looks(HOST, NOW)] == ["journalctl", "dmesg"]


def test_a_container_says_its_process_its_start_and_its_gpus() -> None:
    given = {"DeviceRequests": [{"Driver": "nvidia", "Count": 0, "DeviceIDs": ["1", "GPU-a"]}]}
    found = subject(DOCKER, Reply(0, json.dumps({**SHOWN, "host": given})))
    assert found.process is not None
    assert (found.process.identity, found.process.status) == ("c1", HostStatus.RUNNING)
    assert found.process.started == "2026-11-30T09:00:00.123456789Z"
    assert found.since(NOW) == datetime(2026, 11, 30, 9, 0, 0, 123456, tzinfo=UTC)
    assert (found.pid, found.devices) == (4242, ("1", "GPU-a"))


@pytest.mark.parametrize(
    "requests",
    [
        None,
        [],
        "odd",
        [{"Count": -1, "DeviceIDs": None}],
        [{"Count": 2}],
        [{"DeviceIDs": ["0"]}, {"Count": -1}],
        [{"DeviceIDs": ["all"]}],
    ],
)
def test_gpus_that_are_not_named_one_by_one_are_not_known(requests: object) -> None:
    shown = {**SHOWN, "host": {"DeviceRequests": requests}}
    assert subject(DOCKER, Reply(0, json.dumps(shown))).devices is None


@pytest.mark.parametrize(
    "reply", [Reply(1, ""), Reply(0, "no JSON"), Reply(0, "[]"), Reply(None, "{"), Reply(0, "{}")]
)
def test_an_answer_that_says_nothing_leaves_all_unknown(reply: Reply) -> None:
    found = subject(DOCKER, reply)
    assert (found.pid, found.devices) == (None, None)
    assert found.since(NOW) == NOW - RECENT


def test_a_unit_says_its_main_process() -> None:
    text = (
        "Id=vllm.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
        "InvocationID=first\nMainPID=4242\nExecMainStartTimestamp=Mon 2026-11-30 09:12:27 UTC\n"
    )
    found = subject(UNIT, Reply(0, text))
    assert found.pid == 4242
    assert found.since(NOW) == datetime(2026, 11, 30, 9, 12, 27, tzinfo=UTC)
    stopped = text.replace("=4242", "=0")
    assert subject(UNIT, Reply(0, stopped)).pid is None
    assert subject(UNIT, Reply(1, "")) == Subject()


def test_a_command_of_the_operators_has_no_process_to_dump() -> None:
    found = subject(NAMED, Reply(0, "4242 1764497547\n"))
    assert found.process is not None
    assert found.process.started == "4242 1764497547"
    assert found.pid is None


def test_the_page_of_a_status_source_is_kept() -> None:
    token = SecretRef(env="TOKEN")
    source = StatusSource(kind="status", url="http://h:9000/status", token=token)
    assert pages(source) == {"status-page.txt": ("http://h:9000/status", token)}
    assert pages(RedisSource(key="k")) == {}


def test_the_pages_of_an_engine_are_kept_and_none_of_them_is_a_request_for_work() -> None:
    key = SecretRef(env="KEY")
    kept = pages(EngineSource(url="http://h:8000/", api_key=key))
    assert kept["engine-metrics.txt"] == ("http://h:8000/metrics", key)
    paths = {url.removeprefix("http://h:8000") for url, _ in kept.values()}
    assert paths == {"/metrics", "/health", "/version", "/v1/models"}


@pytest.mark.parametrize(
    ("script", "status", "out"),
    [
        ("echo 'a b'; exit 3", {3}, "a b\n"),
        # On a machine that is busy the second signal may overtake the first.
        ("sleep 60", {124, 137}, ""),
        ("trap '' TERM; echo on; while :; do sleep 0.1; done", {137}, "on\n"),
    ],
)
def test_the_host_itself_ends_a_command_in_time(script: str, status: set[int], out: str) -> None:
    argv = bounded(("sh", "-c", script), 1.5)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode in status
    assert done.stdout == out


def test_a_child_that_a_command_leaves_behind_is_ended_with_its_group() -> None:
    leaves = "(trap '' TERM; sleep 60) & echo $!"
    argv = bounded(("sh", "-c", leaves), 5)
    began = datetime.now(UTC)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0
    # It held the output open: that it came to an end says that nobody is left.
    assert datetime.now(UTC) - began < timedelta(seconds=20)
