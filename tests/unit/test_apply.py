"""What applying a fleet would change."""

from typing import Any

import pytest

from fleet.apply import MOST_SERVERS, Change, check, compare
from fleet.config import Fleet


def fleet(**changes: Any) -> Fleet:
    servers = {
        name: {
            "source": {"kind": "redis", "key": name},
            "restart": {"kind": "docker", "host": "box", "name": name},
        }
        for name in ("a", "b")
    }
    hosts = {"box": {"address": "10.0.0.1", "user": "ops", "key": "/key"}}
    return Fleet.model_validate({"servers": servers, "hosts": hosts, **changes})


def test_a_first_fleet_is_all_new() -> None:
    assert compare(None, fleet()) == Change(added=["a", "b"], anything=True)


def test_the_same_fleet_changes_nothing() -> None:
    assert compare(fleet(), fleet()) == Change()


def test_the_same_fleet_written_otherwise_changes_nothing() -> None:
    minutes, seconds = fleet(defaults={"cooldown": "10m"}), fleet(defaults={"cooldown": "600s"})

    assert compare(minutes, seconds) == Change()


def test_servers_come_go_and_change() -> None:
    after = fleet(
        servers={
            "b": {"source": {"kind": "redis", "key": "another"}},
            "c": {"source": {"kind": "redis", "key": "c"}},
        }
    )

    change = compare(fleet(), after)

    assert change == Change(added=["c"], removed=["a"], altered=["b"], anything=True)


@pytest.mark.parametrize(
    "shared",
    [
        {"defaults": {"mode": "dry_run"}},
        {"hosts": {"box": {"address": "10.0.0.2", "user": "ops", "key": "/key"}}},
    ],
)
def test_what_servers_share_alters_each_that_uses_it(shared: dict[str, Any]) -> None:
    assert compare(fleet(), fleet(**shared)).altered == ["a", "b"]


def test_what_no_server_sees_alters_none_and_is_a_change() -> None:
    change = compare(fleet(), fleet(fleet={"sweep_every": "10s"}))

    assert change == Change(anything=True)


@pytest.mark.parametrize(("count", "padding"), [(MOST_SERVERS + 1, 1), (1900, 480)])
def test_what_does_not_fit_into_one_message_is_refused_with_a_remedy(
    count: int, padding: int
) -> None:
    key = "k" * padding
    servers = {f"s{n}": {"source": {"kind": "redis", "key": f"{key}{n}"}} for n in range(count)}

    with pytest.raises(ValueError, match="several Temporal namespaces"):
        check(Fleet.model_validate({"servers": servers}))
