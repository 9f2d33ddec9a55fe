"""A budget of a machine has to be able to cap something; a fleet that stands goes on standing."""

from typing import Any

import pytest
from pydantic import ValidationError

from fleet.actions import Host, machine
from fleet.config import Fleet

KEYS = {"user": "ops", "key": "/key"}


def fleet(own_budget: object = None, servers: int = 2, **defaults: Any) -> dict[str, Any]:
    own = {"budget": own_budget} if own_budget is not None else {}
    return {
        "hosts": {"rack": {"address": "10.0.0.1", **KEYS, **own}},
        "defaults": defaults,
        "servers": {
            f"gpu-{n}": {
                "source": {"kind": "redis", "key": f"worker:{n}"},
                "restart": {"kind": "docker", "host": "rack", "name": f"c{n}"},
            }
            for n in range(servers)
        },
    }


@pytest.mark.parametrize(
    ("budget", "defaults", "most"),
    [
        ({"limit": 7}, {}, 6),
        ({"limit": 100, "window": "1h"}, {}, 6),
        ({"limit": 12, "window": "48h"}, {}, None),
        ({"limit": 13, "window": "48h"}, {}, 12),
        ({"limit": 5}, {"budget": {"limit": 2, "per_day_in": "UTC"}}, None),
        ({"limit": 9}, {"budget": {"limit": 2, "per_day_in": "UTC"}}, 8),
        ({"limit": 99, "window": "20m"}, {"budget": {"limit": 2, "window": "25m"}}, 4),
        ({"limit": 0}, {}, None),
        ({"limit": 50}, {"budget": {"limit": 0}}, None),
    ],
)
def test_one_that_can_never_be_reached_is_refused(
    budget: dict[str, Any], defaults: dict[str, Any], most: int | None
) -> None:
    if most is None:
        Fleet.model_validate(fleet(budget, **defaults))
        return
    with pytest.raises(ValidationError) as told:
        Fleet.model_validate(fleet(budget, **defaults))
    assert "can never be reached" in str(told.value)
    assert f"allow {most} in" in str(told.value)


@pytest.mark.parametrize("servers", [1, 2, 9])
def test_the_default_makes_no_fleet_invalid(servers: int) -> None:
    """Fleets are in force that were applied before there was a budget for machines."""
    applied = Fleet.model_validate(fleet(servers=servers, budget={"limit": 6}))
    carried = Fleet.model_validate_json(applied.model_dump_json())
    assert (carried, carried.hosts["rack"].budget.limit) == (applied, 6)


def test_one_machine_has_one_budget() -> None:
    both = fleet({"limit": 2})
    both["hosts"]["shelf"] = {"address": "10.0.0.1", "user": "root", "key": "/key"}
    with pytest.raises(ValidationError, match="the same machine"):
        Fleet.model_validate(both)
    both["hosts"]["shelf"]["budget"] = {"limit": 2}
    assert Fleet.model_validate(both).hosts["shelf"].budget.limit == 2


@pytest.mark.parametrize(
    ("address", "port", "name"),
    [
        ("Rack-1.Internal.", 22, "rack-1.internal:22"),
        ("10.0.0.1", 2222, "10.0.0.1:2222"),
        ("fe80::1", 22, "[fe80::1]:22"),
    ],
)
def test_a_machine_is_its_address_and_port(address: str, port: int, name: str) -> None:
    assert machine(Host(address=address, port=port, **KEYS)) == name
