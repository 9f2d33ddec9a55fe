"""What would change is told key by key, as the fleet file has it."""

from typing import Any

import pytest

from fleet.config import Fleet
from fleet.difference import Edit, difference
from worker.commands.apply import _show as shown


def fleet(**tables: Any) -> Fleet:
    servers = {"a": {"source": {"kind": "redis", "key": "a"}}}
    return Fleet.model_validate({"servers": servers, **tables})


def test_the_same_fleet_is_no_difference() -> None:
    assert not difference(fleet(), fleet())


def test_a_first_fleet_is_all_new() -> None:
    change = difference(None, fleet())
    assert change.added == ["a"]
    assert change.edits == []
    assert change


def test_servers_come_and_go_by_name() -> None:
    other = fleet(servers={"b": {"source": {"kind": "redis", "key": "b"}}})
    change = difference(fleet(), other)
    assert (change.added, change.removed, change.edits) == (["b"], ["a"], [])


def test_a_key_that_changed_is_told_with_both_values() -> None:
    before, after = fleet(defaults={"cooldown": "5m"}), fleet(defaults={"cooldown": "6m"})
    change = difference(before, after)
    assert change.edits == [Edit("defaults.cooldown", "5m", "6m")]
    assert change.altered == ["a"]


def test_a_key_at_its_default_counts_as_not_there() -> None:
    change = difference(fleet(), fleet(fleet={"sweep_every": "10s"}))
    assert change.edits == [Edit("fleet.sweep_every", None, "10s")]
    assert difference(fleet(), fleet(fleet={"sweep_every": "30s"})).edits == []


def test_another_spelling_of_the_same_is_no_difference() -> None:
    assert not difference(fleet(defaults={"cooldown": "300s"}), fleet(defaults={"cooldown": "5m"}))


def test_keys_of_one_server_are_told_below_its_name() -> None:
    def at(key: str) -> Fleet:
        return fleet(servers={"a": {"source": {"kind": "redis", "key": key}}})

    assert difference(at("x"), at("y")).edits == [Edit("servers.a.source.key", "x", "y")]


def test_where_gateways_would_serve_something_else_that_is_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def serving(path: str = "/", **tables: Any) -> Fleet:
        chat = {"path": path, "backends": {"a": {"url": "http://a:1"}}}
        return fleet(endpoints={"chat": chat}, **tables)

    said = "a gateway that runs serves what its file said when it began: start it anew"
    for after, is_said in (
        (serving("/chat"), True),
        (serving(gateway={"max_clients": 9}), True),
        (fleet(), True),
        (serving(defaults={"cooldown": "6m"}), False),
        (serving(), False),
    ):
        shown(difference(serving(), after), 1)
        assert (said in capfd.readouterr().out) is is_said
