"""Thresholds as somebody types them: what is taken, and what is said of the rest."""

from datetime import timedelta

import pytest

from fleet.policy import DailyBudget, RollingBudget
from fleet.whatif import NoSuchChange, applied, changes

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ([], {}),
        (["persist=1m"], {"persist_hung": "1m"}),
        (["persist_hung = 1m", "persist=2m"], {"persist_hung": "2m"}),
        (["observations=3"], {"observations": 3}),
        (['stale_after="5m"'], {"stale_after": "5m"}),
        (["stalled_after=off"], {"stalled_after": "off"}),
        (["budget.limit=2", "budget.window=12h"], {"budget": {"limit": 2, "window": "12h"}}),
        (["budget={ limit = 1 }"], {"budget": {"limit": 1}}),
    ],
)
def test_what_is_typed_is_what_a_fleet_file_would_have(
    typed: list[str], expected: dict[str, object]
) -> None:
    assert changes(typed) == expected


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("persist", "'persist' is no change: write KEY=VALUE, like persist=1m"),
        ("persist=", "'persist=' is no change"),
        ("persist_hang=1m", "there is no threshold 'persist_hang': did you mean persist_hung?"),
        ("xyz=1m", "there is no threshold 'xyz': there are stale_after, observations"),
        ("mode=act", "'mode' changes nothing that a replay shows; these do: stale_after"),
        ("verify_after=1m", "'verify_after' changes nothing that a replay shows"),
        ("budget.size=2", "there is no 'budget.size'; a budget has limit, window, per_day_in"),
        ("cooldown.limit=2", "there is no 'cooldown.limit'"),
    ],
)
def test_what_can_not_be_tried_is_said_with_what_can(typed: str, said: str) -> None:
    with pytest.raises(NoSuchChange) as refused:
        changes([typed])
    assert said in str(refused.value)


def test_changes_come_over_the_servers_own_policy_and_leave_the_rest() -> None:
    own = {"persist_error": "10m", "budget": {"limit": 5, "window": "12h"}}
    policy = applied(own, changes(["persist=1m", "budget.limit=2"]))
    assert (policy.persist_hung, policy.persist_error) == (MINUTE, 10 * MINUTE)
    assert policy.budget == RollingBudget(limit=2, window=timedelta(hours=12))
    daily = applied({}, changes(["budget.per_day_in=Europe/Berlin"]))
    assert daily.budget == DailyBudget(per_day_in="Europe/Berlin")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("persist=soon", "persist_hung: 'soon' is no duration — write a number and a unit"),
        ("observations=1", "observations: "),
        ("budget=3", "budget: write budget.limit=2"),
        ("cooldown=9h", "can never be reached"),
    ],
)
def test_a_value_that_is_no_good_is_refused_with_the_remedy(typed: str, said: str) -> None:
    with pytest.raises(NoSuchChange) as refused:
        applied({}, changes([typed]))
    assert said in str(refused.value)
