"""The ladder of a server: which step comes when, its times, and what the host shows of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.actions import ComposeRestart, DockerRestart, RebootRestart, machine
from fleet.config import Fleet
from fleet.contracts.host import HostErrorType, HostState, HostStatus
from fleet.host_replies import Reply, ReplyError, project, project_state
from fleet.hosts import must_not_restart, project_argv, restart_argv, restart_timeout, settle_time
from fleet.ladder import beneath

HOSTS = {
    "box": {"address": "box.internal", "user": "ops", "key": "/k"},
    "box-root": {"address": "BOX.internal.", "user": "root", "key": "/k"},
}
SOURCE = {"kind": "redis", "key": "worker:1"}
DOCKER = {"kind": "docker", "host": "box", "name": "vllm"}
PROJECT = {"kind": "compose", "host": "box", "directory": "/srv/models", "cooldown": "20m"}
REBOOT = {"kind": "reboot", "host": "box-root", "load_limit": "1h", "verify_after": "20m"}
MINUTE = timedelta(minutes=1)
AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


FAR = {"address": "far.internal", "user": "ops", "key": "/k"}


def fleet(ladder: list[dict[str, Any]], **others: dict[str, Any]) -> Fleet:
    first = {"source": SOURCE, "restart": DOCKER, "ladder": ladder, "policy": {"load_limit": "30m"}}
    hosts = {**HOSTS, "far": FAR}
    return Fleet.model_validate({"hosts": hosts, "servers": {"gpu-1": first, **others}})


def other(**changes: Any) -> dict[str, Any]:
    restart = {"kind": "docker", "host": "box", "name": "other"}
    return {"source": {"kind": "redis", "key": "worker:2"}, "restart": restart, **changes}


def test_each_restart_that_did_not_help_takes_the_next_step_and_the_last_one_repeats() -> None:
    spec = fleet([PROJECT, REBOOT]).spec("gpu-1")
    steps = [str(spec.step(rung)) for rung in range(5)]
    assert steps == [
        "container vllm",
        "compose project /srv/models",
        "reboot of box-root",
        "reboot of box-root",
        "reboot of box-root",
    ]


def test_without_a_ladder_the_one_restart_is_every_step() -> None:
    spec = fleet([]).spec("gpu-1")
    assert [spec.step(rung) for rung in range(3)] == [spec.step(0)] * 3


def test_each_step_has_its_own_times_and_else_the_policys() -> None:
    spec = fleet([PROJECT, REBOOT]).spec("gpu-1")
    policies = [step.action.policy(spec.policy) for step in spec.steps]
    minutes = [
        (p.cooldown // MINUTE, p.verify_after // MINUTE, p.load_limit // MINUTE) for p in policies
    ]
    assert minutes == [(10, 10, 30), (20, 10, 30), (10, 20, 60)]


def test_two_users_of_one_machine_are_one_machine() -> None:
    hosts = fleet([REBOOT]).hosts
    assert machine(hosts["box"]) == machine(hosts["box-root"])


def test_a_step_may_take_along_what_it_names() -> None:
    reboot = {**REBOOT, "also_restarts": ["gpu-2"]}
    assert fleet([reboot], **{"gpu-2": other()}).spec("gpu-1").ladder[0].action.also_restarts


@pytest.mark.parametrize(
    "second",
    [
        {"ladder": [{"kind": "docker", "host": "box", "name": "vllm"}]},
        {"restart": {"kind": "reboot", "host": "box-root"}},
        {"ladder": [{**REBOOT}]},
    ],
)
def test_a_step_that_would_restart_another_server_in_silence_is_refused(
    second: dict[str, Any],
) -> None:
    with pytest.raises(ValueError, match="restarts gpu-1 as well"):
        fleet([], **{"gpu-2": other(**second)})


def test_naming_it_makes_no_second_lock_for_one_container() -> None:
    twin = {**DOCKER, "also_restarts": ["gpu-1"]}
    with pytest.raises(ValueError, match="two locks and two budgets"):
        fleet([], **{"gpu-2": other(restart=twin)})


def test_a_project_beside_a_service_of_it_is_refused_unless_named() -> None:
    service = {"kind": "compose", "host": "box", "directory": "/srv/models/", "service": "b"}
    with pytest.raises(ValueError, match="project /srv/models restarts gpu-2 as well"):
        fleet([PROJECT], **{"gpu-2": other(restart=service)})


def test_a_command_may_stand_anywhere_and_steps_of_one_strength_may_follow_each_other() -> None:
    script = {"kind": "command", "host": "box", "argv": ["/opt/reset-gpu"]}
    assert len(fleet([DOCKER, script, PROJECT, script, REBOOT]).spec("gpu-1").steps) == 6


def test_a_server_on_another_machine_is_not_taken_along() -> None:
    far = other(restart={"kind": "docker", "host": "far", "name": "vllm"})
    assert fleet([REBOOT], **{"gpu-2": far}).servers.keys() == {"gpu-1", "gpu-2"}


# --- what is asked of the host, and what it answers ----------------------------------------------

WHOLE = ComposeRestart(kind="compose", host="box", directory="/srv/models/")
BOOT = RebootRestart(kind="reboot", host="box")


def test_of_a_project_only_the_services_that_run_are_restarted() -> None:
    assert restart_argv(WHOLE, ("api", "vllm"))[-4:] == ("-t", "10", "api", "vllm")
    assert "label=com.docker.compose.project.working_dir=/srv/models" in project_argv(WHOLE)
    listed = (
        "b2 running vllm False\na1 running api False\nc3 exited migrate False\nd4 running x True"
    )
    running = project(Reply(0, listed))
    assert (running.containers, running.services) == (("a1", "b2"), ("api", "vllm"))


def test_a_project_with_a_service_half_of_which_was_stopped_is_refused() -> None:
    with pytest.raises(ReplyError, match="would start what somebody stopped") as caught:
        project(Reply(0, "a1 running api False\na2 exited api False\n"))
    assert caught.value.kind is HostErrorType.MISCONFIGURED


def test_a_project_is_known_by_all_its_containers() -> None:
    line = '{"id":"%s","status":"%s","started":"2026-11-30T09:24:38Z","exit":0,"restarts":0}\n'
    state = project_state(Reply(0, line % ("a1", "running") + line % ("b2", "running")))
    assert (state.status, state.identity) == (HostStatus.RUNNING, "a1 b2")
    assert state.started == "2026-11-30T09:24:38Z 2026-11-30T09:24:38Z"
    odd = project_state(Reply(0, line % ("a1", "running") + line % ("b2", "paused")))
    assert odd.status is HostStatus.PAUSED
    assert project_state(Reply(0, "")).status is HostStatus.GONE


def test_a_reboot_is_ordered_at_once_and_waited_for_as_long_as_the_host_may_take() -> None:
    assert restart_argv(BOOT) == ("systemctl", "reboot")
    assert restart_timeout(BOOT) < settle_time(BOOT) == timedelta(minutes=10)
    sudo = BOOT.model_copy(update={"cli": ("sudo", "-n", "systemctl")})
    assert restart_argv(sudo) == ("sudo", "-n", "systemctl", "reboot")


SERVER = HostState(status=HostStatus.RUNNING, identity="c1", started="t1", started_at=AT)
STEP = HostState(status=HostStatus.RUNNING, identity="boot", started="b1")


def test_a_stronger_step_is_known_by_its_own_words_and_carries_the_servers_start() -> None:
    state = beneath(STEP, SERVER)
    assert (state.identity, state.started, state.own_start) == ("boot", "b1", "t1")
    assert state.started_at == AT


@pytest.mark.parametrize("status", [HostStatus.STOPPED, HostStatus.PAUSED, HostStatus.GONE])
def test_what_somebody_stopped_is_not_started_by_a_stronger_step(status: HostStatus) -> None:
    down = HostState(status=status, identity="c1", started="t1", detail="exited")
    state = beneath(STEP, down)
    assert (state.status, state.detail) == (status, "exited")
    assert "is now" not in (must_not_restart(BOOT, beneath(STEP, SERVER), state) or "is now")


def test_a_step_without_an_identity_goes_by_the_servers() -> None:
    assert beneath(HostState(status=HostStatus.UNKNOWN), SERVER) == SERVER


def test_a_server_that_was_started_anew_is_not_hit_by_a_stronger_step() -> None:
    anew = beneath(STEP, SERVER.model_copy(update={"started": "t2"}))
    said = must_not_restart(BOOT, beneath(STEP, SERVER), anew)
    assert said == "the server was started anew meanwhile: t2"


def test_a_docker_step_names_its_container() -> None:
    step = fleet([]).spec("gpu-1").step(0)
    assert step is not None
    assert isinstance(step.action, DockerRestart)
    assert str(step) == "container vllm"
