"""What is asked of a host: argument lists, and the last comparison before a restart."""

import shlex
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.actions import CommandRestart, ComposeRestart, DockerRestart, Restart, SystemdRestart
from fleet.contracts.host import HostState, HostStatus
from fleet.hosts import (
    find_argv,
    must_not_restart,
    restart_argv,
    restart_timeout,
)

DOCKER = DockerRestart(kind="docker", host="h", name="gpu-1", stop_timeout=timedelta(seconds=10))
PODMAN = DockerRestart(kind="podman", host="h", name="gpu-1")
SUDO = DockerRestart(kind="docker", host="h", name="gpu-1", cli=("sudo", "-n", "docker"))
COMPOSE = ComposeRestart(kind="compose", host="h", directory="/srv/my models/", service="vllm")
UNIT = SystemdRestart(kind="systemd", host="h", unit="vllm.service")
USER_UNIT = SystemdRestart(kind="systemd", host="h", unit="vllm.service", user=True)
COMMAND = CommandRestart(kind="command", host="h", argv=("/opt/restart it", "a;b"))
NAMED = CommandRestart(kind="command", host="h", argv=("/opt/restart",), identity=("/opt/id",))
RUNNING = HostState(status=HostStatus.RUNNING, identity="c1", started="t1")


@pytest.mark.parametrize(
    ("restart", "argv"),
    [
        (DOCKER, "docker restart -t 10 gpu-1"),
        (PODMAN, "podman restart -t 10 gpu-1"),
        (SUDO, "sudo -n docker restart -t 10 gpu-1"),
        (
            COMPOSE,
            "docker compose --project-directory '/srv/my models/' restart -t 10 vllm",
        ),
        (UNIT, "systemctl restart -- vllm.service"),
        (USER_UNIT, "systemctl --user restart -- vllm.service"),
        (COMMAND, "'/opt/restart it' 'a;b'"),
    ],
)
def test_each_kind_is_restarted_by_its_own_program(restart: Restart, argv: str) -> None:
    assert restart_argv(restart) == tuple(shlex.split(argv))


def test_a_stop_timeout_below_a_second_is_rounded_up_and_never_to_zero() -> None:
    quick = DOCKER.model_copy(update={"stop_timeout": timedelta(milliseconds=200)})
    assert restart_argv(quick)[-2] == "1"


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=1)))
def test_the_bound_on_the_command_is_always_longer_than_the_stop_timeout(stop: timedelta) -> None:
    restart = DOCKER.model_copy(update={"stop_timeout": stop})
    given_to_docker = timedelta(seconds=int(restart_argv(restart)[-2]))
    assert restart_timeout(restart) > given_to_docker >= stop


def test_a_compose_service_is_found_by_its_folder_without_the_trailing_slash() -> None:
    assert "label=com.docker.compose.project.working_dir=/srv/my models" in find_argv(COMPOSE)


def test_exactly_the_expected_process_may_be_restarted() -> None:
    assert must_not_restart(DOCKER, RUNNING, RUNNING) is None


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (RUNNING.model_copy(update={"started": "t2"}), "started anew"),
        (RUNNING.model_copy(update={"identity": "c2"}), "replaced"),
        *(
            (RUNNING.model_copy(update={"status": status}), f"it is {status} now")
            for status in HostStatus
            if status is not HostStatus.RUNNING
        ),
    ],
)
def test_anything_else_is_left_alone(now: HostState, reason: str) -> None:
    assert reason in (must_not_restart(DOCKER, RUNNING, now) or "")


def test_what_was_never_seen_is_not_restarted() -> None:
    unseen = HostState(status=HostStatus.UNKNOWN)
    assert must_not_restart(DOCKER, unseen, RUNNING)
    assert must_not_restart(DOCKER, unseen, unseen)
    assert must_not_restart(DOCKER, RUNNING.model_copy(update={"identity": ""}), RUNNING)


def test_a_command_without_identity_has_nothing_to_compare() -> None:
    assert must_not_restart(COMMAND, HostState(status=HostStatus.UNKNOWN), RUNNING) is None
    assert must_not_restart(NAMED, HostState(status=HostStatus.UNKNOWN), RUNNING)
