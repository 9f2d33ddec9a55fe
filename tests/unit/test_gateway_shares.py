"""What several gateway processes share, and how often one is started anew."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.endpoints import Gateway, PairedSamples
from gateway.chunks import Budget
from gateway.limits import Share, limits
from gateway.pairing import Pairs
from worker.gateway_member import BACK_OFF, pause_before


@given(st.integers(0, 10**12), st.integers(1, 64))
def test_the_parts_are_the_whole_and_even(total: int, of: int) -> None:
    parts = [Share(place, of).part(total) for place in range(of)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1


def test_what_bounds_the_whole_gateway_is_shared_and_what_bounds_a_request_is_not() -> None:
    settings = Gateway(max_clients=101, processes=2)
    one, other, alone = (limits(settings, each) for each in (Share(0, 2), Share(1, 2), Share()))
    for name in ("clients", "mirror_budget", "paired_budget"):
        parts = getattr(one, name) + getattr(other, name)
        assert parts == getattr(alone, name)
        assert getattr(one, name) < getattr(alone, name)
    for name in ("head", "body", "replay", "finish_within"):
        assert getattr(one, name) == getattr(alone, name)


def test_paired_samples_a_day_are_of_all_processes_together() -> None:
    spec = PairedSamples(file="/pairs.jsonl", a_day=100)

    def between(processes: int) -> float:
        pairs = Pairs("chat", spec, Budget(1), lambda *_: True, processes=processes)
        pairs.due = 0.0
        assert pairs.begin(b"/", []) is not None
        return pairs.due - time.monotonic()

    assert between(1) == pytest.approx(864, abs=60)
    assert between(4) == pytest.approx(4 * 864, abs=60)


def test_each_process_may_have_a_client() -> None:
    with pytest.raises(ValidationError, match="3 processes share 2 max_clients"):
        Gateway(max_clients=2, processes=3)


def test_it_is_started_anew_later_and_later_and_at_last_not_any_more() -> None:
    pauses = [pause_before(lives) for lives in range(1, len(BACK_OFF) + 2)]
    assert pauses.pop() is None
    assert all(one < other for one, other in pairwise(p for p in pauses if p is not None))
