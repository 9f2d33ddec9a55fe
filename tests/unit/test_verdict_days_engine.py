"""The simulated engine: what it does, and that its pages say what real ones do, when they do."""

import re
from dataclasses import replace

import pytest

from benchmarks.verdict_days.core import Halt, Request, Shape
from benchmarks.verdict_days.days import (
    KINDS,
    OTHERS,
    abort,
    ask,
    deploy,
    halted,
    hang,
    job,
    slow,
    stall,
)
from benchmarks.verdict_days.server import (
    FOUND_BY_HAND,
    Build,
    Event,
    Refused,
    Server,
    Slow,
    Unwell,
)

#: Reads 512 tokens a second, in chunks of 512.
READER = Shape(step=0.001, per_token=0.999 / 512, chunk=512)
RUNNING = {
    "vllm": "vllm:num_requests_running",
    "vllm-v0": "vllm:num_requests_running",
    "sglang": "sglang:num_running_reqs",
    "llamacpp": "llamacpp:requests_processing",
    "tgi": "tgi_batch_current_size",
    "triton": "nv_trt_llm_request_metrics",
    "nim": "num_requests_running",
    "lmdeploy": "lmdeploy:num_requests_running",
}
#: Reads 16,384 tokens in one step of 20 s.
ONE_STEP = Shape(chunk=16_384, per_token=20 / 16_384)


def server(*script: Event, kind: str = "vllm", shape: Shape | None = None, **how: object) -> Server:
    return Server(Build(kind=kind, shape=shape or Shape(), **how), script)  # type: ignore[arg-type]


def shown(of: Server, name: str, at: float, part: str = "") -> float:
    of.advance(at)
    found = re.findall(
        rf"^{re.escape(name)}(\{{[^}}]*{part}[^}}]*\}})? (\S+)$", of.page(5), re.MULTILINE
    )
    return sum(float(value) for _, value in found)


def test_a_request_takes_its_steps() -> None:
    one = server(shape=Shape(step=0.1, per_token=0.001, chunk=100))
    request = one.post(250, 11)
    one.advance(60)
    # Three steps read 250 tokens, and the last of them writes the first of eleven.
    assert request.done_at == pytest.approx(3 * 0.1 + 250 * 0.001 + 10 * 0.1)


def test_requests_beyond_the_slots_wait_in_line() -> None:
    one = server(shape=Shape(slots=1, step=0.1, per_token=0))
    first, second = one.post(1, 10), one.post(1, 10)
    one.advance(10)
    assert first.done_at == pytest.approx(1.0)
    assert second.done_at == pytest.approx(2.0)


def test_a_request_that_comes_during_a_long_chunk_waits_until_the_prompt_is_read() -> None:
    one = server(ask(0, 512 * 10, 5), shape=READER)
    one.advance(2.5)
    late = one.post(2, 1)
    one.advance(9.5)
    assert late.done_at is None
    assert shown(one, "vllm:num_requests_waiting", 9.5) == 1
    one.advance(12)
    assert late.done_at is not None


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_time_in_one_go_and_in_small_steps_comes_to_the_same(kind: str) -> None:
    script = [ask(n * 3.7, 100 + n * 40, 60) for n in range(30)]
    small, large = server(*script, kind=kind), server(*script, kind=kind)
    for at in range(1, 400):
        small.advance(at * 0.5)
    large.advance(199.5)
    assert small.page(5) == large.page(5)


def test_the_step_counter_of_v1_stands_still_in_a_prefill_and_its_cache_use_moves() -> None:
    one = server(ask(1, 512 * 60, 5), shape=READER)
    steps = [shown(one, "vllm:iteration_tokens_total_count", at) for at in (20, 40)]
    tokens = [shown(one, "vllm:prompt_tokens_total", at) for at in (40, 41)]
    kv = [shown(one, "vllm:kv_cache_usage_perc", at) for at in (41, 50)]
    assert steps == [0, 0]
    assert tokens == [0, 0]
    assert kv[0] < kv[1]
    assert shown(one, "vllm:iteration_tokens_total_count", 70) == 5
    assert shown(one, "vllm:prompt_tokens_total", 70) == 512 * 60


def test_a_cache_use_that_stays_flat_moves_nothing_in_a_prefill() -> None:
    shape = replace(READER, flat_kv=True)
    one = server(ask(1, 512 * 60, 5), shape=shape)
    one.advance(20)
    before = one.page(5)
    one.advance(40)
    assert one.page(5) == before


def test_the_gauges_of_v1_are_at_zero_through_a_first_long_step() -> None:
    one = server(ask(1, 16_384, 5), shape=Shape(chunk=16_384, per_token=20 / 16_384))
    assert shown(one, "vllm:num_requests_running", 15) == 0
    assert one.in_flight == 1
    assert shown(one, "vllm:num_requests_running", 21.05) == 1


def test_v0_counts_the_steps_of_a_prefill_and_goes_on_counting_while_it_hangs() -> None:
    one = server(ask(1, 512 * 60, 500), hang(30, Halt.FROZEN), kind="vllm-v0", shape=READER)
    count, total = "vllm:iteration_tokens_total_count", "vllm:iteration_tokens_total_sum"
    assert shown(one, count, 10) < shown(one, count, 29)
    hung = [(shown(one, count, at), shown(one, total, at)) for at in (31, 60)]
    assert hung[0][0] < hung[1][0]
    assert hung[0][1] == hung[1][1]


def test_sglang_writes_its_gauges_every_40_steps_of_decoding_and_counts_each() -> None:
    one = server(ask(0, 10, 20), ask(1, 10, 190), kind="sglang", shape=Shape(step=0.1))
    running, tokens = "sglang:num_running_reqs", "sglang:realtime_tokens_total"
    # The first ended after two seconds and nothing wrote that down until now.
    assert shown(one, running, 2.5) == 2
    assert shown(one, running, 4.5) == 1
    assert shown(one, tokens, 4.5) < shown(one, tokens, 4.8)
    assert shown(one, "sglang:generation_tokens_total", 4.8) == 20
    assert [shown(one, running, at) for at in (45, 60)] == [1, 0]


def test_the_token_counters_of_llamacpp_stand_still_through_a_request() -> None:
    one = server(ask(0, 10, 1000), kind="llamacpp", shape=Shape(step=0.1))
    predicted, decodes = "llamacpp:tokens_predicted_total", "llamacpp:n_decode_total"
    assert [shown(one, predicted, at) for at in (10, 90)] == [0, 0]
    assert shown(one, decodes, 90.5) > shown(one, decodes, 90.5) - 1 > 800
    assert shown(one, predicted, 110) == 1000


def test_a_first_call_of_tgi_is_counted_while_its_batch_is_empty_and_its_success_after_it() -> None:
    one = server(ask(1, 16_384, 5), kind="tgi", shape=ONE_STEP)
    calls, successes = "tgi_batch_inference_count", "tgi_batch_inference_success"
    names = (calls, successes, "tgi_batch_current_size", "tgi_queue_size")
    assert [shown(one, name, 15) for name in names] == [1, 0, 0, 0]
    assert [shown(one, name, 21.04) for name in names] == [2, 1, 1, 0]
    assert [shown(one, name, 60) for name in names] == [5, 5, 0, 0]
    by_method = [shown(one, successes, 60, f'method="{each}"') for each in ("prefill", "decode")]
    assert by_method == [1, 4]


def test_the_router_of_tgi_goes_on_where_its_shards_froze() -> None:
    one = server(hang(5, Halt.FROZEN), *(ask(10 + n, 10, 5) for n in range(4)), kind="tgi")
    calls = shown(one, "tgi_batch_inference_count", 60, 'method="prefill"')
    assert (calls, shown(one, "tgi_queue_size", 60)) == (1, 3)
    assert shown(one, "tgi_batch_inference_success", 60) == 0


def test_triton_counts_iterations_as_a_prompt_is_read_and_executions_at_its_end() -> None:
    one = server(ask(1, 512 * 60, 50), kind="triton", shape=READER)
    iterations, ended = "nv_trt_llm_general_metrics", "nv_inference_exec_count"
    steps = [shown(one, iterations, at, "iteration_counter") for at in (20, 40)]
    assert 0 < steps[0] < steps[1]
    parts = ("tensorrt_llm", "preprocessing", "ensemble")
    assert [shown(one, ended, 40, part) for part in parts] == [0, 1, 0]
    assert [shown(one, ended, 90, part) for part in parts] == [1, 1, 0]
    assert shown(one, "nv_inference_request_success", 90, "ensemble") == 1


def test_trtllm_serve_writes_nothing_until_a_request_ends() -> None:
    one = server(ask(0, 10, 300), ask(1, 10, 2000), kind="trtllm", shape=Shape(step=0.1))
    running, output = "trtllm_num_requests_running", "trtllm_generation_tokens_total"
    one.advance(2)
    before = one.page(5)
    one.advance(29)
    assert one.page(5) == before
    assert shown(one, running, 29) == 0
    seen = [[shown(one, name, at) for name in (running, output)] for at in (31, 199, 220)]
    assert seen == [[1, 300], [1, 300], [0, 2300]]
    assert shown(one, "trtllm_kv_cache_gen_alloc_blocks_total", 220) > 100


def test_nim_counts_tokens_with_each_iteration_and_has_no_prefix() -> None:
    one = server(ask(1, 512 * 20, 300), kind="nim", shape=replace(READER, step=0.1))
    kv = [shown(one, "gpu_cache_usage_perc", at) for at in (5, 15)]
    assert 0 < kv[0] < kv[1]
    assert shown(one, "prompt_tokens_total", 15) == 0
    assert shown(one, "prompt_tokens_total", 30) == 512 * 20
    output = [shown(one, "generation_tokens_total", at) for at in (30, 31)]
    assert 0 < output[0] < output[1] < 300
    assert "process_start_time_seconds" in one.page(5)


def test_lmdeploy_writes_its_gauges_every_ten_seconds_whatever_its_engine_does() -> None:
    script = [hang(5, Halt.FROZEN), *(ask(12 + n, 10, 5) for n in range(4))]
    one = server(*script, kind="lmdeploy")
    names = ("lmdeploy:num_requests_waiting", "lmdeploy:num_api_requests_routed")
    assert [[shown(one, name, at) for name in names] for at in (16, 21)] == [[0, 0], [4, 4]]


def test_lmdeploy_counts_outputs_and_not_the_chunks_of_a_prompt() -> None:
    one = server(ask(1, 512 * 60, 5), kind="lmdeploy", shape=READER)
    count = "lmdeploy:iteration_tokens_total_count"
    assert [shown(one, count, at) for at in (20, 40)] == [0, 0]
    kv = [shown(one, "lmdeploy:gpu_cache_usage_perc", at) for at in (41, 49, 52)]
    assert kv[0] == kv[1] < kv[2]
    assert shown(one, count, 70) == 5


def test_only_the_health_of_lmdeploy_watches_its_scheduler() -> None:
    hung = [job(0, 2, 10, 500), hang(100, Halt.FROZEN)]
    told, silent = server(*hung, kind="lmdeploy"), server(*hung, kind="nim")
    for at in (180, 195):
        told.advance(at)
        silent.advance(at)
        silent.health(1)
        if at == 180:
            told.health(1)
    with pytest.raises(Unwell):
        told.health(1)
    idle = server(hang(100, Halt.FROZEN), kind="lmdeploy")
    idle.advance(300)
    idle.health(1)


@pytest.mark.parametrize(("stale", "left"), [(True, 3), (False, 0)])
def test_gauges_are_stale_after_aborts_where_the_version_keeps_them(stale: bool, left: int) -> None:
    asked = [ask(n / 10, 10, 5000) for n in range(3)]
    one = server(*asked, abort(20), keeps_stale=stale)
    assert shown(one, "vllm:num_requests_running", 60) == left
    assert one.in_flight == 0


@pytest.mark.parametrize("kind", RUNNING)
def test_in_a_hang_in_admission_all_wait_and_none_runs(kind: str) -> None:
    one = server(hang(5, Halt.ADMISSION), *(ask(10 + n, 10, 5) for n in range(4)), kind=kind)
    part = "active" if kind == "triton" else ""
    assert shown(one, RUNNING[kind], 60, part) == 0
    assert one.in_flight == 4
    waiting = re.search(
        r"(?<!api_)(?:requests_waiting|\"waiting|queue_\w+|deferred)\S* (\d)", one.page(5)
    )
    assert waiting is not None
    assert waiting[1] == "4"


# SGLang writes that nothing runs any more only when it is idle.
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"sglang"}))
def test_what_runs_at_a_hang_in_admission_is_finished(kind: str) -> None:
    asked = [ask(1, 10, 500), *(ask(10 + n, 10, 5) for n in range(4))]
    one = server(*asked[:1], hang(5, Halt.ADMISSION), *asked[1:], kind=kind)
    assert shown(one, RUNNING[kind], 6) == 1
    assert shown(one, RUNNING[kind], 60) == 0
    assert one.in_flight == 4


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_that_froze_while_idle_shows_no_requests_that_come_later(kind: str) -> None:
    one = server(hang(5, Halt.FROZEN), *(ask(10 + n, 10, 5) for n in range(4)), kind=kind)
    assert shown(one, RUNNING[kind], 60) == 0
    assert one.in_flight == 4


def test_one_rank_hangs_and_the_other_goes_on() -> None:
    one = server(job(0, 2, 100, 5000), hang(30, Halt.FROZEN, 0), ranks=2)
    counts = [
        [shown(one, "vllm:iteration_tokens_total_count", at, f'engine="{rank}"') for at in at_]
        for rank, at_ in ((0, (31, 31)), (1, (31, 60)))
    ]
    again = shown(one, "vllm:iteration_tokens_total_count", 60, 'engine="0"')
    assert counts[0][0] == again > 0
    assert counts[1][0] < counts[1][1]
    assert "process_start_time_seconds" not in one.page(5)


def test_a_restart_ends_the_work_and_loads_the_model_anew() -> None:
    one = server(job(0, 2, 100, 500), deploy(100), load=40)
    one.advance(99)
    before, first = one.page(5), one.began_at
    one.advance(120)
    with pytest.raises(Refused):
        one.page(5)
    with pytest.raises(Refused):
        one.post(1, 1)
    steps = shown(one, "vllm:iteration_tokens_total_count", 141)
    assert steps < 40
    assert one.began_at > first
    assert one.in_flight == 2
    assert "process_start_time_seconds" in before


def test_who_sleeps_says_so_and_who_is_paused_does_not() -> None:
    asleep = server(*halted(10, 50, Halt.ASLEEP))
    awake = "vllm:engine_sleep_state"
    assert [shown(asleep, awake, at) for at in (5, 20, 60)] == [1, 0, 1]
    paused = server(job(0, 1, 10, 5000), *halted(10, 50, Halt.PAUSED))
    steps = [shown(paused, "vllm:iteration_tokens_total_count", at) for at in (11, 49, 60)]
    assert steps[0] == steps[1] < steps[2]
    assert paused.is_paused is False


def test_a_stall_delays_the_next_step_and_a_slow_front_end_only_itself() -> None:
    one = server(stall(1, 30), ask(2, 10, 1), *slow(100, 200, 8))
    one.advance(30)
    assert one.in_flight == 1
    one.advance(32)
    assert one.in_flight == 0
    one.advance(150)
    with pytest.raises(Slow):
        one.health(1)
    with pytest.raises(Slow):
        one.page(5)
    one.advance(201)
    one.health(1)


def test_a_hang_that_nobody_finds_is_found_by_a_person_and_missed() -> None:
    one = server(job(0, 1, 10, 5000), hang(100, Halt.FROZEN), load=60)
    one.advance(100 + FOUND_BY_HAND - 1)
    assert (one.truth.hangs, one.truth.missed) == (1, 0)
    one.advance(100 + FOUND_BY_HAND + 1)
    assert one.truth.missed == 1
    assert one.state == "loading"


def test_a_restart_is_true_only_where_it_hangs() -> None:
    one = server(hang(100, Halt.FROZEN), load=10)
    one.advance(50)
    one.order_restart()
    one.advance(150)
    one.order_restart()
    truth = one.truth
    assert (truth.false_restarts, truth.true_restarts, truth.detected) == (1, 1, [50.0])


def test_a_request_to_an_engine_at_work_counts_as_one_and_to_a_hung_one_not() -> None:
    one = server(job(10, 1, 10, 50_000), hang(100, Halt.FROZEN))
    for at in (5, 50, 150):
        one.advance(at)
        one.post(1, 1)
    assert (one.truth.requests, one.truth.to_busy) == (3, 1)


def test_who_hangs_up_leaves_the_queue() -> None:
    one = server(job(0, 16, 10, 5000))
    one.advance(10)
    request = one.post(1, 1)
    one.hang_up(request)
    assert isinstance(request, Request)
    assert one.in_flight == 16
