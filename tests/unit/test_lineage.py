"""Whose ledger goes on under another name, and which machines need one."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet import lineage
from fleet.config import Fleet
from fleet.contracts.fleet import FleetState, FoundingRequest
from fleet.ledger import MEMORY

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def fleet(**containers: str | None) -> Fleet:
    """Servers by name, each with the container that its restart is of, on the one host."""
    return fleet_on({"rack": {"address": "10.0.0.1"}}, containers)


def fleet_on(given: dict[str, dict[str, Any]], containers: Mapping[str, str | None]) -> Fleet:
    host = next(iter(given))
    return Fleet.model_validate(
        {
            "hosts": {n: {"user": "ops", "key": "/key", **each} for n, each in given.items()},
            "servers": {
                name: {
                    "source": {"kind": "redis", "key": f"worker:{name}"},
                    "restart": {"kind": "docker", "host": host, "name": container}
                    if container
                    else None,
                }
                for name, container in containers.items()
            },
        }
    )


class Applied:
    """The state of ``fleet`` over several applies, as the workflow keeps it."""

    def __init__(self) -> None:
        self.state, self.now = FleetState(), NOON

    def apply(self, after: Fleet, later: timedelta = timedelta(0)) -> FoundingRequest:
        self.now += later
        request = lineage.founding(self.state, after, self.now)
        departed = lineage.departed(self.state, after, self.now)
        machines = [*self.state.machines, *request.machines]
        self.state = FleetState(fleet=after, departed=departed, machines=machines)
        return request


def test_a_server_that_was_renamed_is_the_heir_of_its_old_name() -> None:
    applied = Applied()
    first = applied.apply(fleet(a="vllm", c="other"))
    renamed = applied.apply(fleet(b="vllm", c="other"))

    assert (first.servers, first.heirs) == (["a", "c"], {})
    assert (renamed.servers, renamed.heirs) == (["b"], {"b": ["a"]})


def test_also_where_the_old_name_was_removed_some_days_before() -> None:
    applied = Applied()
    applied.apply(fleet(a="vllm", c="other"))
    applied.apply(fleet(c="other"), 2 * DAY)
    assert applied.apply(fleet(b="vllm", c="other"), 5 * DAY).heirs == {"b": ["a"]}


def test_but_not_when_everything_that_it_took_has_been_forgotten() -> None:
    applied = Applied()
    applied.apply(fleet(a="vllm", c="other"))
    applied.apply(fleet(c="other"))
    later = applied.apply(fleet(a="new", b="vllm", c="other"), MEMORY + DAY)
    assert (later.heirs, later.returning, later.servers) == ({}, [], ["a", "b"])
    assert applied.state.departed == []


def test_a_name_that_comes_back_is_no_new_server_and_takes_over_what_happened_meanwhile() -> None:
    applied = Applied()
    applied.apply(fleet(a="vllm"))
    applied.apply(fleet(b="vllm"), DAY)
    again = applied.apply(fleet(a="vllm"), DAY)
    assert (again.servers, again.returning, again.heirs) == ([], ["a"], {"a": ["b"]})


def test_a_name_that_comes_back_unchanged_inherits_from_nobody() -> None:
    applied = Applied()
    applied.apply(fleet(a="vllm", c=None))
    applied.apply(fleet(c=None))
    again = applied.apply(fleet(a="vllm", c=None))
    assert (again.servers, again.returning, again.heirs) == ([], ["a"], {})


def test_a_name_without_a_restart_that_comes_back_is_no_new_server_either() -> None:
    applied = Applied()
    applied.apply(fleet(a="vllm", c=None))
    applied.apply(fleet(a="vllm"))
    assert applied.apply(fleet(a="vllm", c="other")).returning == ["c"]


def test_two_servers_that_swap_their_containers_swap_what_was_taken_of_them() -> None:
    applied = Applied()
    applied.apply(fleet(a="one", b="two"))
    swapped = applied.apply(fleet(a="two", b="one"))
    assert (swapped.servers, swapped.heirs) == ([], {"a": ["b"], "b": ["a"]})
    assert applied.apply(fleet(a="two", b="one")).heirs == {}


def test_a_name_that_passes_through_several_is_the_heir_of_them_all() -> None:
    applied = Applied()
    for name in ("a", "b"):
        applied.apply(fleet(**{name: "vllm"}), DAY)
    assert applied.apply(fleet(c="vllm"), DAY).heirs == {"c": ["a", "b"]}


def test_a_machine_is_founded_once_whatever_its_table_is_called() -> None:
    applied = Applied()
    first = applied.apply(fleet_on({"rack": {"address": "10.0.0.1"}}, {"a": "vllm"}))
    renamed = applied.apply(fleet_on({"shelf": {"address": "10.0.0.1"}}, {"a": "vllm"}))
    moved = applied.apply(fleet_on({"shelf": {"address": "10.0.0.1", "port": 2222}}, {"a": "vllm"}))
    back = applied.apply(fleet_on({"rack": {"address": "10.0.0.1."}}, {"a": "vllm"}))

    assert first.machines == {"10.0.0.1:22": []}
    assert renamed.machines == {}
    assert moved.machines == {"10.0.0.1:2222": ["a"]}
    assert back.machines == {}


def test_a_fleet_from_before_there_were_guards_of_machines_founds_them_with_its_servers() -> None:
    old = fleet(a="vllm", b="other", c=None)
    request = lineage.founding(FleetState(fleet=old), old, NOON)
    assert (request.servers, request.machines) == ([], {"10.0.0.1:22": ["a", "b"]})


def test_a_machine_without_a_restart_needs_no_guard() -> None:
    assert Applied().apply(fleet(a=None)).machines == {}


def test_who_left_is_remembered_within_a_bound() -> None:
    applied = Applied()
    count = lineage.MOST_DEPARTURES
    applied.apply(fleet(first="c0"))
    applied.apply(fleet(**{f"s{n}": f"c{n}" for n in range(count)}), DAY)
    applied.apply(fleet(last=None), DAY)
    left = [each.server for each in applied.state.departed]
    assert len(left) == count
    assert "first" not in left
