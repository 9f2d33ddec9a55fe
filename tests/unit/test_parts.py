"""Restarts in parts: members of a group, their commands, and their states as one."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from fleet.actions import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Restart,
    SystemdRestart,
    named,
)
from fleet.config import Fleet
from fleet.contracts.host import HostState, HostStatus
from fleet.gpu_memory import GpuMemory
from fleet.parts import (
    by_hand,
    in_parts,
    is_stopped,
    members,
    of_member,
    own_place,
    start_argv,
    stop_argv,
    stop_time,
    together,
)

DOCKER = DockerRestart(kind="docker", host="h", name="vllm", group=("proxy", "vllm"))
COMPOSE = ComposeRestart(
    kind="compose", host="h", directory="/srv/x", service="rank0", group=("rank0", "rank1")
)
UNITS = SystemdRestart(kind="systemd", host="h", unit="b.service", group=("a.service", "b.service"))
ALONE = DockerRestart(kind="docker", host="h", name="vllm", gpu_memory=GpuMemory())


@pytest.mark.parametrize(
    ("action", "stops", "starts"),
    [
        (
            DOCKER,
            ["docker stop -t 10 proxy", "docker stop -t 10 vllm"],
            ["docker start proxy", "docker start vllm"],
        ),
        (
            COMPOSE,
            [
                "docker compose --project-directory /srv/x stop -t 10 rank0",
                "docker compose --project-directory /srv/x stop -t 10 rank1",
            ],
            [
                "docker compose --project-directory /srv/x start rank0",
                "docker compose --project-directory /srv/x start rank1",
            ],
        ),
        (
            UNITS,
            ["systemctl stop -- a.service", "systemctl stop -- b.service"],
            ["systemctl start -- a.service", "systemctl start -- b.service"],
        ),
        (ALONE, ["docker stop -t 10 vllm"], ["docker start vllm"]),
    ],
)
def test_each_member_is_stopped_and_started_by_a_command_of_its_own(
    action: Restart, stops: list[str], starts: list[str]
) -> None:
    assert in_parts(action)
    assert [" ".join(stop_argv(each)) for each in members(action)] == stops
    assert [" ".join(start_argv(each)) for each in members(action)] == starts
    assert by_hand(action) == " && ".join(starts)
    assert stop_time(action) == action.stop_timeout * len(stops)
    assert not any(in_parts(each) for each in members(action))


def test_an_action_alone_that_waits_for_nothing_is_one_command() -> None:
    alone = DockerRestart(kind="docker", host="h", name="vllm")
    command = CommandRestart(kind="command", host="h", argv=("x",))
    assert [in_parts(each) for each in (alone, command)] == [False, False]
    assert members(command) == [command]
    with pytest.raises(ValueError, match="in parts"):
        stop_argv(command)


@pytest.mark.parametrize(("action", "place"), [(DOCKER, 1), (COMPOSE, 0), (UNITS, 1), (ALONE, 0)])
def test_the_servers_own_member_is_known(action: Restart, place: int) -> None:
    assert own_place(action) == place


def test_a_group_is_named_by_its_members() -> None:
    assert named(DOCKER) == "group proxy, vllm"


def state(name: str, status: HostStatus = HostStatus.RUNNING) -> tuple[str, HostState]:
    started = f"{name} at 1"
    return name, HostState(status=status, identity=f"id-{name}", started=started, detail="so")


def test_the_states_of_a_group_are_one_whose_members_can_be_told_apart() -> None:
    whole = together([state("a"), state("b")], own=1)
    assert (whole.status, whole.running) == (HostStatus.RUNNING, 2)
    assert of_member(whole, 1) == ("id-b", "b at 1")
    assert of_member(whole, 2) == ("", "")
    one_anew = together([state("a"), ("b", state("b")[1].model_copy(update={"started": "2"}))], 1)
    assert one_anew.same_object(whole)
    assert not one_anew.same_process(whole)


@pytest.mark.parametrize("status", [HostStatus.STOPPED, HostStatus.GONE, HostStatus.PAUSED])
def test_one_member_that_does_not_run_is_the_state_of_all(status: HostStatus) -> None:
    whole = together([state("a"), state("b", status)], own=0)
    assert (whole.status, whole.running, is_stopped(whole)) == (status, 1, False)
    assert whole.detail.startswith("b: ")


def test_only_all_of_them_stopped_is_stopped() -> None:
    down = [state("a", HostStatus.STOPPED), state("b", HostStatus.STOPPED)]
    assert is_stopped(together(down, own=0))
    assert is_stopped(state("a", HostStatus.STOPPED)[1])
    assert not is_stopped(state("a", HostStatus.RESTARTING)[1])
    assert not is_stopped(state("a")[1])


# --- the fleet file ------------------------------------------------------------------------------

HOSTS = {"h": {"address": "10.0.0.1", "user": "ops", "key": "/k"}}


def fleet(**servers: dict[str, Any]) -> Fleet:
    table = {
        name: {"source": {"kind": "redis", "key": name}, "restart": {"host": "h", **restart}}
        for name, restart in servers.items()
    }
    return Fleet.model_validate({"hosts": HOSTS, "servers": table})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": ["a", "b"]}, "must hold vllm itself"),
        ({"group": ["vllm"]}, "at least one other"),
        ({"group": ["vllm", "a", "a"]}, "names one of them twice"),
        ({"group": ["vllm", "--all"]}, "'--all', which is no name"),
        ({"group": [f"a{n}" for n in range(20)]}, "at most 16"),
        ({"gpu_memory": {"within": "2h"}}, "out of range"),
        ({"gpu_memory": {"free": "lots"}}, "is no size"),
    ],
)
def test_a_group_or_a_wait_that_makes_no_sense_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        fleet(a={"kind": "docker", "name": "vllm", **changes})


def test_a_whole_project_has_no_group() -> None:
    with pytest.raises(ValidationError, match="neither group nor gpu_memory"):
        ComposeRestart(kind="compose", host="h", directory="/srv/x", gpu_memory=GpuMemory())


def test_ranks_of_one_group_are_one_server_and_else_refused() -> None:
    """Two servers whose restarts overlap would have two locks and two budgets for one engine."""
    group = {"kind": "docker", "name": "rank0", "group": ["rank0", "rank1"]}
    with pytest.raises(ValidationError, match=r"two locks and two budgets.*is one server"):
        fleet(a=group, b={"kind": "docker", "name": "rank1"})
    watched = {"source": {"kind": "redis", "key": "b"}}
    servers = {"a": {"source": {"kind": "redis", "key": "a"}, "restart": {"host": "h", **group}}}
    good = Fleet.model_validate({"hosts": HOSTS, "servers": {**servers, "b": watched}})
    assert good.spec("b").steps == ()


def test_the_bound_of_a_group_holds_for_all_its_stops() -> None:
    slow = DOCKER.model_copy(update={"stop_timeout": timedelta(minutes=5)})
    assert stop_time(slow) == timedelta(minutes=10)
