"""The story of a doubt, told without a clock: what is waited for, read and asked, in turn."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.contracts.engine import AskRequest
from fleet.engines.asking import Watched, at_rest, checked, concluded, left_of, whom
from fleet.engines.proving import (
    WAITS,
    Ask,
    Conclusion,
    Confirming,
    ForPeople,
    Known,
    Look,
    NotSo,
    Pause,
    Proved,
    Step,
    confirm,
)
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.engines.sighting import compare
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def engine(moved: float = 1, running: float = 1, answer: Came | None = None) -> EngineReading:
    state = EngineState(label="0", running=running, witnesses={"step_tokens": moved})
    said = Answer(came=answer) if answer is not None else None
    return EngineReading(profile="vllm", engines=(state,), answer=said)


def reading(of: EngineReading) -> Reading:
    return Reading(server="s", at=AT, engine=of)


def told(story: Confirming, *came: Reading | None) -> tuple[list[Step], Conclusion | None]:
    """The steps that the story wants while it is sent what came of each look and request."""
    sent, steps = iter(came), [next(story)]
    while True:
        try:
            steps.append(story.send(None if isinstance(steps[-1], Pause) else next(sent)))
        except StopIteration as end:
            return steps, end.value


def test_a_doubt_is_waited_for_twice_and_asked_once() -> None:
    still = reading(engine())
    story = confirm(Known(), engine(), Policy())
    steps, said = told(story, still, still, reading(engine(answer=Came.NONE)))
    wait = Policy().confirm_wait
    asked = Ask(suspected=True, ranks=("0",))
    assert steps == [Pause(wait, 1), Look(), Pause(wait, 2), Look(), asked]
    assert len([step for step in steps if isinstance(step, Pause)]) == WAITS
    assert isinstance(said, Proved)
    assert said.verdict is Verdict.STUCK


def test_a_witness_that_moves_ends_it_without_a_request() -> None:
    steps, said = told(confirm(Known(), engine(), Policy()), reading(engine(moved=2)))
    assert steps == [Pause(Policy().confirm_wait, 1), Look()]
    assert isinstance(said, NotSo)


def test_an_answer_where_nothing_moved_names_the_stale_gauges() -> None:
    still = reading(engine())
    answered = reading(engine(answer=Came.GIVEN))
    _, said = told(confirm(Known(), engine(), Policy()), still, still, answered)
    assert isinstance(said, NotSo)
    assert said.why.endswith("its gauges are stale")


def test_a_front_end_that_takes_no_more_does_not_clear_an_engine_that_stands_still() -> None:
    still = reading(engine())
    full = reading(engine(answer=Came.FULL))
    _, said = told(confirm(Known(), engine(), Policy()), still, still, full)
    assert isinstance(said, ForPeople)
    assert said.why.startswith("unproven: it takes no more requests, and work in flight")
    moves = reading(engine(moved=2, answer=Came.FULL))
    _, said = told(confirm(Known(), engine(), Policy()), still, still, moves)
    assert isinstance(said, NotSo)


def test_a_front_end_that_takes_no_more_says_nothing_against_a_proof() -> None:
    known = Known()
    known.judge(reading(engine(running=0)), Policy())
    known.heard(reading(engine(running=0, answer=Came.NONE)), Policy())
    queued = reading(engine(running=0, answer=Came.FULL))
    assert known.heard(queued, Policy()).verdict is Verdict.UNRESPONSIVE
    assert known.proof is not None
    moved = reading(engine(moved=2, running=0, answer=Came.FULL))
    assert known.heard(moved, Policy()).verdict is Verdict.BUSY
    assert known.proof is None


def test_an_idle_engine_whose_front_end_takes_no_more_is_busy() -> None:
    known = Known()
    known.judge(reading(engine(running=0)), Policy())
    full = reading(engine(running=0, answer=Came.FULL))
    assert known.heard(full, Policy()).verdict is Verdict.BUSY


def test_the_request_itself_is_no_work_that_an_idle_engine_is_stuck_with() -> None:
    def proved(before: float, now: float) -> Verdict | None:
        known = Known()
        known.judge(reading(engine(running=before)), Policy())
        known.heard(reading(engine(running=now, answer=Came.NONE)), Policy())
        return known.proof.verdict if known.proof is not None else None

    assert proved(0, 0) is proved(0, 1) is Verdict.UNRESPONSIVE
    assert proved(1, 1) is proved(1, 2) is Verdict.STUCK


def test_a_lost_request_concludes_nothing() -> None:
    still = reading(engine())
    _, said = told(confirm(Known(), engine(), Policy()), still, still, None)
    assert isinstance(said, NotSo)


def test_only_engines_that_stand_still_are_asked_of_a_server_with_several() -> None:
    before = _pair(1, 1)
    request = AskRequest(server="s", since=before, suspected=True)
    asked = whom(reading(_pair(1, 2)), request, probes=True)
    assert isinstance(asked, tuple)
    assert [each.label for each in asked] == ["0"]


def test_only_who_stood_still_over_the_last_wait_is_asked_though_all_do_at_a_glance() -> None:
    """Between the last look and the request lies no time in which a slow engine would move."""
    looks = [reading(_pair(1, 2)), reading(_pair(1, 3)), reading(_pair(1, 4))]
    known = Known()
    story = confirm(known, _pair(1, 1), Policy())
    steps, _ = told(story, looks[0], looks[1], None)
    assert steps[-1] == Ask(suspected=True, ranks=("0",))
    request = AskRequest(server="s", since=known.last, suspected=True, ranks=("0",))
    asked = whom(looks[1], request, probes=True)
    assert isinstance(asked, tuple)
    assert [each.label for each in asked] == ["0"]


def test_an_idle_engine_is_probed_beside_one_that_works() -> None:
    asked = whom(reading(_beside()), AskRequest(server="s", since=_beside()), probes=True)
    assert isinstance(asked, tuple)
    assert [each.label for each in asked] == ["0"]
    other = replace(_beside(), profile="sglang")
    assert isinstance(
        whom(reading(other), AskRequest(server="s", since=other), probes=True), Reading
    )


@pytest.mark.parametrize("profile", ["vllm", "sglang"])
def test_an_idle_engine_that_gave_no_answer_is_asked_again_while_the_other_works(
    profile: str,
) -> None:
    def beside(moved: float, **more: Any) -> EngineReading:
        return replace(_beside(moved), profile=profile, named=True, **more)

    none = Answer(came=Came.NONE, rank="0", sent=1)
    doubt = beside(1, answer=none)
    looks = [reading(beside(moved)) for moved in (2, 3)]
    asked = beside(4, answer=none)
    steps, said = told(confirm(Known(), doubt, Policy()), *looks, reading(asked))
    assert steps[-1] == Ask(suspected=True, ranks=("0",))
    assert isinstance(said, Proved)
    assert said.verdict is Verdict.UNRESPONSIVE


def test_a_queue_that_is_counted_anew_while_requests_run_is_the_work_of_others() -> None:
    """The request that was sent stands in it, behind a prompt that moves nothing else."""
    counted = [
        EngineReading(profile="vllm", engines=(each,))
        for each in (
            EngineState(label="0", running=1, waiting=queue, witnesses={"kv": 1, "queue": queue})
            for queue in (0, 1)
        )
    ]
    watched = Watched(counted[0], counted[0].engines[0])
    watched.saw(reading(counted[1]))
    assert watched.others_moved


def _beside(moved: float = 1) -> EngineReading:
    """An idle engine, and one that works."""
    states = (
        EngineState(label="0", witnesses={"kv": 0}),
        EngineState(label="1", running=2, witnesses={"kv": moved}),
    )
    return EngineReading(profile="vllm", engines=states)


def test_work_in_flight_is_never_probed() -> None:
    seen = whom(reading(engine()), AskRequest(server="s"), probes=True)
    assert isinstance(seen, Reading)
    assert seen.engine is not None
    assert seen.engine.answer is not None
    assert seen.engine.answer.came is Came.BUSY


@pytest.mark.parametrize("page", [Page.OK, Page.LISTED])
@pytest.mark.parametrize("suspected", [True, False])
def test_who_sleeps_is_never_asked_whatever_is_suspected(page: Page, suspected: bool) -> None:
    """Also where no other page of the server says so: a request would hang, crash or wake it."""
    asleep = EngineState(label="0", running=1, witnesses={"kv": 0}, asleep=True)
    before = EngineReading(profile="sglang", page=page, engines=(asleep,))
    request = AskRequest(server="s", since=before, suspected=suspected, ranks=("0",))
    seen = whom(reading(before), request, probes=True)
    assert isinstance(seen, Reading)
    assert seen.engine == before


def test_an_answer_from_another_engine_is_none_of_the_one_that_was_meant() -> None:
    before, answer = _pair(1, 1), Answer(came=Came.GIVEN)
    elsewhere = checked(answer, reading(_pair(1, 2)), before, before.engines[0])
    assert elsewhere.came is Came.ELSEWHERE
    assert checked(answer, reading(_pair(2, 1)), before, before.engines[0]).came is Came.GIVEN


def test_an_answer_from_another_says_nothing_of_an_idle_one_where_a_name_may_be_passed_over() -> (
    None
):
    answer = Answer(came=Came.GIVEN)
    for running, named, came in (
        (0, False, Came.GIVEN),
        (0, True, Came.ELSEWHERE),
        (2, False, Came.ELSEWHERE),
        (2, True, Came.ELSEWHERE),
    ):
        before = _ranks(1, 1, running=running, named=named)
        after = _ranks(1, 2, running=running, named=named)
        assert checked(answer, reading(after), before, before.engines[0]).came is came


@pytest.mark.parametrize("profile", ["vllm", "sglang"])
@pytest.mark.parametrize(("named", "beside"), [(True, ["0"]), (False, [])])
def test_an_idle_rank_is_asked_beside_one_that_works_only_where_its_name_is_sure_to_reach_it(
    profile: str,
    named: bool,
    beside: list[str],
) -> None:
    all_idle = _ranks(1, 1, named=named, profile=profile)
    assert [each.label for each in at_rest(all_idle, compare(all_idle, None))] == ["0", "1"]
    one_works = _at_work(all_idle, "1")
    assert [each.label for each in at_rest(one_works, compare(one_works, None))] == beside


def test_a_reading_of_before_names_were_looked_for_is_taken_as_it_was_then() -> None:
    for profile, beside in (("vllm", ["0"]), ("nim/vllm", ["0"]), ("sglang", [])):
        seen = _at_work(_ranks(1, 1, named=None, profile=profile), "1")
        assert [each.label for each in at_rest(seen, compare(seen, None))] == beside


def test_an_idle_rank_to_which_work_came_meanwhile_is_no_longer_asked() -> None:
    for named, left in ((True, ["2"]), (False, [])):
        before = _ranks(1, 1, 1, 1, named=named)
        others = before.engines[1:]
        # One has moved, one works by now, and of one nothing is known.
        after = _at_work(_ranks(2, 2, 1, 1, named=named), "3")
        assert [each.label for each in left_of(others, before, reading(after))] == left
        assert left_of(others, before, reading(before)) == others


def test_of_suspected_ranks_each_is_asked_until_one_does_not_answer() -> None:
    before = _ranks(1, 1, running=2)
    assert left_of(before.engines[1:], before, reading(before)) == before.engines[1:]


@pytest.mark.parametrize("named", [True, False])
def test_a_suspected_rank_that_moved_while_another_was_asked_is_asked_no_more(named: bool) -> None:
    before = _ranks(1, 1, 1, running=2, named=named)
    after = _ranks(2, 2, 1, running=2, named=named)
    left = left_of(before.engines[1:], before, reading(after))
    assert [each.label for each in left] == ["2"]


def _at_work(seen: EngineReading, label: str) -> EngineReading:
    states = (replace(each, running=2) if each.label == label else each for each in seen.engines)
    return replace(seen, engines=tuple(states))


def _ranks(
    *moved: float, running: float = 0, named: bool | None = False, profile: str = "sglang"
) -> EngineReading:
    states = tuple(
        EngineState(label=str(at), running=running, witnesses={"step_tokens": each})
        for at, each in enumerate(moved)
    )
    return EngineReading(profile=profile, engines=states, named=named)


def _unanswered(*moved: float) -> Came:
    """What an unanswered request came to, where its engine moved so at the looks beside it."""
    before = engine()
    watched = Watched(before, before.engines[0])
    last = reading(before)
    for each in moved:
        last = reading(engine(moved=each))
        watched.saw(last)
    said = concluded(last, watched, Answer(came=Came.NONE))
    assert said.engine is not None
    assert said.engine.answer is not None
    return said.engine.answer.came


def test_what_moved_once_may_be_the_requests_own_step_and_what_moved_twice_is_not() -> None:
    start = engine().engines[0].witnesses["step_tokens"]
    assert _unanswered(start, start) is Came.NONE
    assert _unanswered(start, 2, 2, 2) is Came.NONE
    assert _unanswered(2, 2, 3) is Came.MOVED


def test_an_engine_that_is_started_anew_meanwhile_has_moved() -> None:
    before = replace(engine(), started="one")
    watched = Watched(before, before.engines[0])
    watched.saw(reading(replace(before, started="another")))
    assert watched.others_moved


def _pair(first: float, second: float) -> EngineReading:
    states = [
        EngineState(label=str(number), running=1, witnesses={"kv": value})
        for number, value in enumerate((first, second))
    ]
    return EngineReading(profile="vllm", engines=tuple(states))


def test_waits_follow_the_policy() -> None:
    story = confirm(Known(), engine(), Policy(confirm_wait=timedelta(seconds=40)))
    assert next(story) == Pause(timedelta(seconds=40), 1)


def test_where_a_request_can_name_no_engine_an_idle_server_is_asked_as_a_whole() -> None:
    def several(profile: str, kv: float = 1) -> EngineReading:
        states = [EngineState(label=each, witnesses={"kv": kv}) for each in ("a", "b")]
        return EngineReading(profile=profile, engines=tuple(states))

    def asked(profile: str) -> tuple[EngineState, ...] | Reading:
        return whom(reading(several(profile)), AskRequest(server="s"), probes=True)

    each, whole = asked("vllm"), asked("triton")
    assert isinstance(each, tuple)
    assert [one.label for one in each] == ["a", "b"]
    assert isinstance(whole, tuple)
    (any_of_them,) = whole
    # No model of the page has to move by the answer, and any that moves without one is at work.
    answer = Answer(came=Came.GIVEN)
    before = several("triton")
    assert checked(answer, reading(before), before, any_of_them) == answer
    watched = Watched(before, any_of_them)
    for kv in (2, 3):
        watched.saw(reading(several("triton", kv)))
    assert watched.others_moved


def test_the_work_of_a_tokenizer_is_not_that_of_the_model_behind_it() -> None:
    def pipeline(taken: float, steps: float = 7) -> EngineReading:
        tokenizer = EngineState(label="preprocessing", witnesses={"executions": taken})
        model = EngineState(label="llm", steps=steps, witnesses={"iterations": steps})
        return EngineReading(profile="triton", engines=(tokenizer, model))

    before = pipeline(0)
    asked = whom(reading(before), AskRequest(server="s"), probes=True)
    assert isinstance(asked, tuple)
    (any_of_them,) = asked
    frozen, works = Watched(before, any_of_them), Watched(before, any_of_them)
    for number in (1, 2, 3):
        frozen.saw(reading(pipeline(number)))
        works.saw(reading(pipeline(number, 7 + number)))
    assert (frozen.others_moved, works.others_moved) == (False, True)

    known = Known()
    known.judge(reading(pipeline(3)), Policy())
    silent = replace(pipeline(4), answer=Answer(came=Came.NONE))
    assert known.heard(reading(silent), Policy()).verdict is Verdict.UNRESPONSIVE
    assert known.judge(reading(pipeline(9)), Policy()).verdict is Verdict.UNRESPONSIVE
    assert known.judge(reading(pipeline(9, 8)), Policy()).verdict is Verdict.IDLE
