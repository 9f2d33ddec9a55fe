"""A request of steady's own makes an engine move: that is never the progress of others' work.

For each engine that has counters, by the pages that it writes. Before, work is in flight and stands
still. The request is taken in, its step is written series by series with a look after each, and no
answer comes.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.engines.asking import Watched, concluded
from fleet.engines.dynamo import DYNAMO
from fleet.engines.nim import NIM
from fleet.engines.page import read_page
from fleet.engines.profiles import PROFILES, profile_named
from fleet.engines.proof import proof_of
from fleet.engines.reading import Answer, Came, EngineState
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict
from tests.parts import engine_pages as pages
from tests.parts.vllm_pages import engine, page

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

Says = dict[str, Any]
Story = tuple[Says, tuple[Says, ...], tuple[Says, ...]]


def _vllm(**says: Any) -> bytes:
    return page(engine(**says))


def _beneath(write: Callable[..., bytes]) -> Callable[..., bytes]:
    def dynamo(**says: Any) -> bytes:
        return pages.dynamo(write(**says), inflight=1)

    return dynamo


#: What vLLM writes of one step that reads a prompt, and then of its output.
_VLLM = (
    {"running": 3, "waiting": 0, "steps": 90, "kv": 0.5},
    ({"kv": 0.51}, {"steps": 91}, {"kv": 0.5}),
    ({"kv": 0.52}, {"steps": 92, "kv": 0.53}),
)
_SGLANG = (
    {"running": 3, "decode": 90, "prefill": 900, "used": 500},
    ({"prefill": 902}, {"used": 502}, {"used": 500}),
    ({"prefill": 904}, {"decode": 95}),
)
_TRTLLM = (
    {"running": 3, "missed": 7, "blocks": 30, "latency": 0.01},
    ({"missed": 8}, {"blocks": 31}, {"latency": 0.03}, {"blocks": 30}),
    ({"latency": 0.02, "missed": 9}, {"blocks": 33}),
)

#: The profile, who writes its page, what it says before, what the request's own step adds look by
#: look, and what a step of the others' adds.
_ENGINES: dict[str, tuple[Callable[..., bytes], Story]] = {
    "vllm": (_vllm, _VLLM),
    "nim/vllm": (_vllm, _VLLM),
    "dynamo/vllm": (_beneath(_vllm), _VLLM),
    "sglang": (pages.sglang, _SGLANG),
    "dynamo/sglang": (_beneath(pages.sglang), _SGLANG),
    "trtllm": (pages.trtllm, _TRTLLM),
    "dynamo/trtllm": (_beneath(pages.trtllm), _TRTLLM),
    "nim/1.x": (
        pages.nim,
        (
            {"running": 3, "cache": 0.5, "prompt": 900, "output": 90},
            ({"cache": 0.51}, {"prompt": 902}, {"output": 91}, {"cache": 0.5}),
            ({"output": 95}, {"cache": 0.52}),
        ),
    ),
    "lmdeploy": (
        pages.lmdeploy,
        (
            {"running": 3, "steps": 90, "cache": 0.5},
            ({"cache": 0.51}, {"steps": 91}, {"cache": 0.5}),
            ({"steps": 92}, {"cache": 0.52}),
        ),
    ),
    "llamacpp": (
        pages.llamacpp,
        ({"processing": 3, "decodes": 90}, ({"decodes": 91},), ({"decodes": 92},)),
    ),
    "tgi": (
        pages.tgi,
        (
            {"batch": 3, "prefills": (9, 9, 0), "decodes": (90, 90, 0)},
            (
                {"prefills": (10, 9, 0)},
                {"prefills": (10, 10, 0)},
                {"decodes": (91, 91, 0)},
            ),
            ({"decodes": (92, 92, 0)},),
        ),
    ),
    "triton": (
        pages.triton,
        (
            {"active": 3, "iteration": 90, "executions": 20},
            ({"iteration": 91}, {"executions": 21}),
            ({"iteration": 92},),
        ),
    ),
}


def looks(name: str) -> tuple[Reading, list[Reading], list[Reading]]:
    write, (before, own, others) = _ENGINES[name]
    said = dict(before)
    first = _look(name, write(**said))
    return (
        first,
        [_look(name, write(**(said := said | more))) for more in own],
        [_look(name, write(**(said := said | more))) for more in others],
    )


def _look(name: str, text: bytes) -> Reading:
    seen, wrong = read_page(text, profile_named(name))
    assert not wrong
    return Reading(server="s", at=AT, engine=seen)


def at_work(reading: Reading) -> EngineState:
    assert reading.engine is not None
    return next(each for each in reading.engine.engines if each.in_flight)


def watch(name: str, *, meant: EngineState | None = None) -> tuple[Watched, list[Reading]]:
    """The request's own step has been watched; what the others' looks like is given back."""
    first, own, others = looks(name)
    assert first.engine is not None
    watched = Watched(first.engine, meant or at_work(first))
    for each in own:
        watched.saw(each)
    return watched, others


def test_every_engine_with_counters_is_among_them() -> None:
    known = (*PROFILES.values(), *NIM.among, *DYNAMO.among)
    assert {each.name for each in known if each.witnesses} == set(_ENGINES)


@pytest.mark.parametrize("name", _ENGINES)
def test_its_own_step_is_no_progress_of_others_however_many_looks_it_is_seen_in(name: str) -> None:
    first, own, _ = looks(name)
    watched, _ = watch(name)
    assert watched.may_be_own
    assert not watched.others_moved
    said = concluded(own[-1], watched, Answer(came=Came.NONE))
    assert said.engine is not None
    assert said.engine.answer is not None
    assert said.engine.answer.came is Came.NONE
    assert said.engine.engines != (first.engine.engines if first.engine is not None else ())
    proof = proof_of(said.engine, Policy(restart_unproven=True))
    assert proof is not None
    assert proof.verdict is Verdict.STUCK
    # Where only ends of requests show, none is proved unless the operator has said so.
    assert (proof_of(said.engine, Policy()) is None) == profile_named(name).by_ends


@pytest.mark.parametrize("name", _ENGINES)
def test_its_own_step_is_none_either_where_no_engine_of_the_page_is_meant(name: str) -> None:
    watched, others = watch(name, meant=EngineState())
    assert not watched.others_moved
    for each in others:
        watched.saw(each)
    assert watched.others_moved


@pytest.mark.parametrize("name", _ENGINES)
def test_a_step_after_it_is_the_work_of_others(name: str) -> None:
    watched, others = watch(name)
    for each in others:
        watched.saw(each)
    assert watched.others_moved
    said = concluded(others[-1], watched, Answer(came=Came.NONE))
    assert said.engine is not None
    assert said.engine.answer is not None
    assert said.engine.answer.came is Came.MOVED


def test_a_step_that_takes_the_request_out_of_the_queue_is_its_own() -> None:
    """Stale gauges said that five wait. The step that reads the prompt counts them anew."""
    before = _look("vllm", _vllm(running=3, waiting=5, kv=0.5))
    after = _look("vllm", _vllm(running=1, waiting=0, kv=0.1))
    assert before.engine is not None
    watched = Watched(before.engine, before.engine.engines[0])
    watched.saw(after)
    assert watched.may_be_own
    assert not watched.others_moved
