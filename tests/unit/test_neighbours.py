"""Containers that hang together: what is refused, and in which order a group may start."""

import json
from collections.abc import Sequence

import pytest

from fleet.host_replies import Reply, ReplyError
from fleet.neighbours import Neighbour, hindrance, neighbours

OWNER = Neighbour("a" * 64, "proxy", "bridge", removes_itself=False)
JOINED = Neighbour("b" * 64, "vllm", f"container:{OWNER.id}", removes_itself=False)
ALONE = Neighbour("c" * 64, "other", "host", removes_itself=False)
FLEETING = Neighbour("d" * 64, "quick", "bridge", removes_itself=True)


@pytest.mark.parametrize(
    ("restarted", "running"),
    [
        ([ALONE], [ALONE, OWNER, JOINED, FLEETING]),
        ([OWNER], [OWNER, ALONE]),
        ([OWNER, JOINED], [ALONE, JOINED, OWNER]),
        ([ALONE], []),
    ],
)
def test_a_container_that_hangs_on_no_other_may_be_restarted_and_so_may_a_whole_group(
    restarted: Sequence[Neighbour], running: Sequence[Neighbour]
) -> None:
    assert hindrance(restarted, running) == ""


@pytest.mark.parametrize("others", [[], [ALONE, OWNER]])
def test_one_that_removes_itself_is_refused_with_what_to_do(others: list[Neighbour]) -> None:
    said = hindrance([FLEETING], [FLEETING, *others])
    assert said.startswith("quick was started with --rm")
    assert "Run it without --rm" in said
    assert hindrance([ALONE, FLEETING], []) == said


@pytest.mark.parametrize("network", [f"container:{OWNER.id}", "container:proxy"])
def test_the_owner_of_a_network_that_another_runs_in_is_refused(network: str) -> None:
    joined = Neighbour(JOINED.id, "vllm", network, removes_itself=False)
    assert "vllm runs in its network, and would lose it" in hindrance([OWNER], [OWNER, joined])


def test_one_that_runs_in_the_network_of_another_is_refused_by_the_others_name() -> None:
    assert "vllm runs in the network of proxy" in hindrance([JOINED], [OWNER, JOINED])
    assert f"vllm runs in the network of {OWNER.id}" in hindrance([JOINED], [])


def test_a_group_that_leaves_one_out_is_refused() -> None:
    third = Neighbour("e" * 64, "metrics", f"container:{OWNER.id}", removes_itself=False)
    said = hindrance([OWNER, JOINED], [OWNER, JOINED, third])
    assert "metrics runs in its network" in said


def test_a_group_that_would_start_the_owner_of_the_network_last_is_refused() -> None:
    assert "name proxy before vllm" in hindrance([JOINED, OWNER], [OWNER, JOINED])


def test_the_engines_list_is_read_whoever_went_away_in_between() -> None:
    line = json.dumps({"id": "a1", "name": "/vllm", "network": "host", "rm": True})
    reply = Reply(1, f"{line}\n\n", "Error: No such container: gone")
    assert neighbours(reply) == [Neighbour("a1", "vllm", "host", removes_itself=True)]


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"id": "a"}'])
def test_a_list_that_makes_no_sense_is_said_to(text: str) -> None:
    with pytest.raises(ReplyError, match="can't be understood"):
        neighbours(Reply(0, text))
