"""What says that an engine was started anew, and what is believed first."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.engines.page import read_page
from fleet.engines.profile import Profile, Witness
from fleet.engines.profiles import PROFILES, profile_named
from fleet.engines.reading import EngineReading, EngineState
from fleet.engines.sighting import Change, Sighting, compare

NAMES = ("vllm", "sglang", "llamacpp", "tgi", "triton", "trtllm", "nim/1.x", "lmdeploy")
COUNTERS = [(profile_named(name), each) for name in NAMES for each in profile_named(name).falling]


def looked(profile: Profile, witness: Witness, value: float, **more: float) -> EngineReading:
    """One engine, of which all that never falls stands at 1000 but for the one named."""
    numbers = {each.name: 1000.0 for each in profile.falling} | {witness.name: value} | more
    of_engine = {each.name for each in profile.witnesses}
    return EngineReading(
        profile=profile.name,
        engines=(
            EngineState(
                running=1, witnesses={name: n for name, n in numbers.items() if name in of_engine}
            ),
        ),
        counters={name: n for name, n in numbers.items() if name not in of_engine},
    )


def change(before: EngineReading, after: EngineReading) -> Change:
    return compare(after, Sighting.decode(Sighting.of(before).encode()))


@pytest.mark.parametrize(("profile", "counter"), COUNTERS, ids=lambda each: each.name)
def test_any_counter_that_fell_is_a_restart(profile: Profile, counter: Witness) -> None:
    before = looked(profile, counter, 1000)
    assert change(before, looked(profile, counter, 990)).restarted == (
        f"its counter {counter.name} fell"
    )
    assert not change(before, looked(profile, counter, 1001)).restarted
    assert not change(before, before).restarted


def test_a_gauge_that_falls_is_none() -> None:
    for name in NAMES:
        profile = profile_named(name)
        for gauge in (each for each in profile.witnesses if not each.counts):
            first = profile.falling[0]
            before = looked(profile, first, 1000, **{gauge.name: 0.9})
            after = looked(profile, first, 1000, **{gauge.name: 0.1})
            assert not change(before, after).restarted
            assert change(before, after).moved


def ranks(*tokens: float) -> EngineReading:
    return EngineReading(
        profile="vllm",
        engines=tuple(
            EngineState(label=str(n), witnesses={"step_tokens": count})
            for n, count in enumerate(tokens)
        ),
    )


def test_one_rank_that_was_started_anew_is_one_though_the_others_counted_on() -> None:
    assert change(ranks(800, 900), ranks(3, 9000)).restarted


def test_of_very_many_ranks_the_total_is_compared() -> None:
    assert change(ranks(*[800] * 40), ranks(*[3] * 40)).restarted
    assert not change(ranks(*[800] * 40), ranks(*[801] * 40)).restarted


def test_a_counter_that_was_not_there_before_or_is_not_any_more_says_nothing() -> None:
    with_it, without = looked(PROFILES["tgi"], PROFILES["tgi"].falling[0], 1000), ranks()
    fewer = replace(with_it, counters={})
    assert not change(with_it, fewer).restarted
    assert not change(fewer, with_it).restarted
    assert not change(without, without).restarted


def test_a_counter_below_zero_breaks_nothing() -> None:
    assert not change(ranks(-5), ranks(-5)).restarted
    assert change(ranks(5), ranks(-5)).restarted


@given(
    before=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    more=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
)
def test_a_counter_that_grew_is_never_taken_for_one_that_fell(before: float, more: float) -> None:
    after = min(before + more, 1.7e308)
    assert not change(ranks(before), ranks(max(before, after))).restarted


@given(before=st.floats(min_value=1, max_value=1e15), share=st.floats(min_value=0, max_value=0.999))
def test_a_fall_by_a_thousandth_is_seen(before: float, share: float) -> None:
    assert change(ranks(before), ranks(before * share - 1)).restarted


def test_what_a_sweep_remembered_before_counters_were_kept_is_still_a_last_look() -> None:
    old = ".".join(Sighting.of(ranks(800)).encode().split(".")[:5])
    seen = Sighting.decode(old)
    assert seen is not None
    assert seen.counters == ()
    assert compare(ranks(3), seen).known


# --- the start, best first -----------------------------------------------------------------------

_VLLM = """\
vllm:num_requests_running{engine="0",model_name="m"} 1
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 9
"""
_CREATED = 'vllm:iteration_tokens_total_created{engine="%d",model_name="m"} %s\n'
_PROCESS = "process_start_time_seconds %s\n"


def started(text: str, kind: str = "vllm", header: str | None = None) -> str | None:
    return read_page(text.encode(), PROFILES[kind], header)[0].started


def test_the_start_of_the_process_comes_first_then_the_stamps_of_creation() -> None:
    both = _VLLM + _CREATED % (0, 17.5) + _PROCESS % 16.25
    assert started(both) == "16.25"
    assert started(_VLLM + _CREATED % (0, 17.5)) == "17.5"
    assert started(_VLLM) is None


def test_the_stamps_of_every_rank_count_and_stay_short() -> None:
    first, second = _CREATED % (0, 17.5), _CREATED % (1, 18.5)
    assert started(_VLLM + first + second) != started(_VLLM + first + _CREATED % (1, 19.5))
    many = "".join(_CREATED % (n, 1.7960232668599858e9 + n) for n in range(16))
    said = started(_VLLM + many)
    assert said is not None
    assert len(said) <= 40


def test_a_marker_of_the_engines_own_is_the_last_resort() -> None:
    sglang = (
        'sglang:num_used_tokens{model_name="m"} 1\nsglang:engine_startup_time{tp_rank="0"} %s\n'
    )
    assert started(sglang % 9.2, "sglang") == "9.2"
    llamacpp = "llamacpp:n_decode_total 4\n"
    assert started(llamacpp, "llamacpp", "4711") == "4711"
    assert started(llamacpp, "llamacpp") is None
    assert PROFILES["llamacpp"].start_header == "Process-Start-Time-Unix"
