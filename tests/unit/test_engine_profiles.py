"""What each engine's page says: in flight, waiting, and what of it is progress."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.engines.judge import find
from fleet.engines.page import read_page
from fleet.engines.profiles import PROFILES
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.engines.sighting import Change, Sighting, compare
from fleet.engines.windows import longest_window
from fleet.judge import Memory
from fleet.observing import observe
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict
from tests.parts import engine_pages as pages
from tests.parts import vllm_pages

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def read(page: bytes, kind: str = "engine") -> EngineReading:
    seen, said = read_page(page, PROFILES[kind])
    assert seen.page is Page.OK, said
    return seen


def one(page: bytes, kind: str = "engine") -> EngineState:
    (engine,) = read(page, kind).engines
    return engine


def between(before: bytes, after: bytes, kind: str = "engine") -> Change:
    return compare(read(after, kind), Sighting.of(read(before, kind)))


def verdicts(*looks: bytes, kind: str = "engine", every: float = 30) -> list[Verdict]:
    before: Memory | None = None
    said: list[Verdict] = []
    for number, page in enumerate(looks):
        reading = Reading(
            server="s", at=T0 + timedelta(seconds=every * number), engine=read(page, kind)
        )
        before, finding = observe(reading, before, Policy(), timedelta(seconds=every))
        said.append(finding.verdict)
    return said


# --- of every engine -----------------------------------------------------------------------------

Page_ = Callable[..., bytes]

#: An engine's page, the numbers that say work is in flight, and each number that is progress.
WORKING: list[tuple[str, Page_, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "sglang",
        pages.sglang,
        {"running": 2},
        [{"decode": 9}, {"prefill": 9}, {"used": 9}],
    ),
    ("llamacpp", pages.llamacpp, {"processing": 1}, [{"decodes": 9}]),
    ("llamacpp", pages.llamacpp, {"deferred": 1}, [{"decodes": 9}]),
    ("tgi", pages.tgi, {"batch": 3}, [{"prefills": (1, 1, 0)}, {"decodes": (1, 1, 0)}]),
    ("tgi", pages.tgi, {"queue": 3}, [{"decodes": (1, 1, 0)}]),
    ("triton", pages.triton, {"active": 1}, [{"iteration": 3}, {"executions": 1}]),
    ("triton", pages.triton, {"waiting": 1}, [{"iteration": 3}]),
    (
        "trtllm",
        pages.trtllm,
        {"running": 1},
        [{"missed": 1}, {"blocks": 1}, {"latency": 0.02}, {"finished": 1}],
    ),
    ("nim/1.x", pages.nim, {"running": 1}, [{"cache": 0.1}, {"prompt": 1}, {"output": 1}]),
    ("lmdeploy", pages.lmdeploy, {"running": 1}, [{"steps": 1}, {"cache": 0.1}]),
    ("lmdeploy", pages.lmdeploy, {"unrouted": 1}, [{"steps": 1}]),
]


@pytest.mark.parametrize(("name", "page", "working", "progress"), WORKING)
def test_work_in_flight_is_known_and_only_a_named_witness_is_progress(
    name: str, page: Page_, working: dict[str, Any], progress: list[dict[str, Any]]
) -> None:
    seen = read(page(**working))
    assert (seen.profile, seen.in_flight) == (name, True)
    assert not read(page()).in_flight
    still = between(page(**working), page(**working))
    assert (len(still.still), still.moved) == (1, ())
    for more in progress:
        change = between(page(**working), page(**working, **more))
        assert (change.still, len(change.moved), change.restarted) == ((), 1, ""), more


@pytest.mark.parametrize(("name", "page", "working", "progress"), WORKING)
def test_work_that_stands_still_for_the_window_is_suspect_and_work_that_moves_never_is(
    name: str, page: Page_, working: dict[str, Any], progress: list[dict[str, Any]]
) -> None:
    frozen = page(**working)
    looks = int(longest_window(read(frozen)) / timedelta(seconds=30)) + 2
    said = verdicts(*[frozen] * (looks + 1))
    assert said[0] is Verdict.BUSY, name
    assert said[-1] is Verdict.SUSPECT
    assert set(verdicts(frozen, *(page(**working, **more) for more in progress[:1]))) == {
        Verdict.BUSY
    }


@pytest.mark.parametrize(("name", "page", "working", "progress"), WORKING)
def test_an_idle_engine_is_idle_for_ever(
    name: str, page: Page_, working: dict[str, Any], progress: list[dict[str, Any]]
) -> None:
    assert set(verdicts(*[page()] * 6)) == {Verdict.IDLE}, (name, working, progress)


# --- SGLang --------------------------------------------------------------------------------------


def test_sglang_tensor_ranks_are_one_and_data_ranks_are_engines() -> None:
    ranks = [f'dp_rank="{dp}",tp_rank="{tp}"' for dp in (0, 1) for tp in (0, 1)]
    seen = read(pages.sglang(*ranks, running=3, decode=7))
    assert [(each.label, each.running) for each in seen.engines] == [("0", 3), ("1", 3)]
    assert [each.witnesses["step_tokens"] for each in seen.engines] == [7, 7]


def test_sglang_one_data_rank_that_stands_still_is_seen() -> None:
    def ranks(other: float) -> bytes:
        return pages.sglang('dp_rank="0"', running=1, decode=5) + pages.sglang(
            'dp_rank="1"', running=1, decode=other
        )

    change = between(ranks(100), ranks(900))
    assert [each.label for each in change.still] == ["0"]
    assert [each.label for each in change.moved] == ["1"]


def test_sglang_priorities_are_skipped_since_one_series_has_them_all() -> None:
    assert one(pages.sglang(running=2, priorities=("0", "5"))).running == 2


def test_sglang_counters_that_move_when_a_request_ends_are_no_progress() -> None:
    still = between(pages.sglang(running=1, finished=3), pages.sglang(running=1, finished=4))
    assert len(still.still) == 1


def test_sglang_without_realtime_counters_goes_by_the_tokens_in_use() -> None:
    before = pages.sglang(running=1, used=5, realtime=False)
    assert len(between(before, before).still) == 1
    assert len(between(before, pages.sglang(running=1, used=6, realtime=False)).moved) == 1


@pytest.mark.parametrize(
    ("series", "label"),
    [
        ("realtime_tokens_total", "mode"),
        ("cuda_graph_passes_total", "mode"),
        ("forward_execution_seconds_total", "category"),
    ],
)
def test_sglang_a_small_part_of_a_witness_is_progress_beside_a_large_one(
    series: str, label: str
) -> None:
    def page(small: float) -> bytes:
        labels = 'engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"'
        parts = {"large": 900.0, "small": small}
        lines = [f'sglang:{series}{{{labels},{label}="{of}"}} {n}\n' for of, n in parts.items()]
        return pages.sglang(running=1, realtime=False) + "".join(lines).encode()

    assert len(between(page(5), page(5)).still) == 1
    assert len(between(page(5), page(6)).moved) == 1


def test_sglang_requests_at_the_front_end_are_in_flight_where_the_gauges_show_none() -> None:
    seen = one(pages.sglang(active=3))
    assert (seen.open, seen.in_flight) == (3, True)
    assert "3 open at its front end" in seen.numbers()
    # The page that is read, and a health check, are requests too, but no work.
    assert not one(pages.sglang()).in_flight
    assert one(pages.sglang(running=2, active=3)).open == 0


def test_sglang_a_request_of_the_whole_page_is_of_no_rank_where_another_works() -> None:
    both = pages.sglang('dp_rank="0"', running=1, active=1) + pages.sglang('dp_rank="1"')
    assert [each.in_flight for each in read(both).engines] == [True, False]
    none = pages.sglang('dp_rank="0"', 'dp_rank="1"', active=1)
    assert [each.in_flight for each in read(none).engines] == [True, True]


def test_sglang_another_time_that_the_start_took_is_another_process() -> None:
    assert between(pages.sglang(startup=9.2), pages.sglang(startup=9.4)).restarted


# --- llama.cpp -----------------------------------------------------------------------------------


def test_llamacpp_tokens_stand_still_for_a_whole_request_and_are_no_witness() -> None:
    change = between(
        pages.llamacpp(processing=1, tokens=8), pages.llamacpp(processing=1, tokens=3000)
    )
    assert len(change.still) == 1
    assert between(pages.llamacpp(tokens=30), pages.llamacpp(tokens=8)).restarted


def test_llamacpp_one_long_batch_is_no_suspicion() -> None:
    batch = pages.llamacpp(processing=1, decodes=4)
    assert verdicts(batch, batch, pages.llamacpp(processing=1, decodes=5)) == [Verdict.BUSY] * 3


# --- Text Generation Inference -------------------------------------------------------------------


def test_tgi_a_first_prefill_is_in_flight_though_the_batch_says_zero() -> None:
    assert one(pages.tgi(prefills=(5, 4, 0))).in_flight
    # Called, and not returned: neither as a success nor as a failure.
    assert not one(pages.tgi(prefills=(5, 4, 1))).in_flight
    assert one(pages.tgi(prefills=(5, 4, 0), decodes=(9, 8, 0))).open == 2


def test_tgi_a_failed_call_is_no_progress() -> None:
    before, after = pages.tgi(batch=1, decodes=(5, 5, 0)), pages.tgi(batch=1, decodes=(6, 5, 1))
    assert len(between(before, after).still) == 1


def test_tgi_of_ibm_calls_a_decode_step_otherwise() -> None:
    before, after = (
        pages.tgi(batch=1, decodes=(n, n, 0)).replace(b'"decode"', b'"next_token"') for n in (5, 6)
    )
    assert len(between(before, after).moved) == 1


def test_tgi_counts_that_do_not_add_up_are_nothing_in_flight() -> None:
    assert not one(pages.tgi(prefills=(3, 5, 0))).in_flight


# --- Triton --------------------------------------------------------------------------------------


def test_triton_request_types_are_told_apart() -> None:
    (model,) = [each for each in read(pages.triton(active=2, waiting=3)).engines if each.in_flight]
    assert (model.label, model.running, model.waiting) == ("tensorrt_llm", 2, 3)


def test_triton_each_model_is_judged_by_itself() -> None:
    before, after = pages.triton(pending=4), pages.triton(pending=4, iteration=90)
    assert [each.label for each in between(before, after).still] == ["preprocessing"]


def test_triton_the_name_of_2023_is_known_and_the_date_is_no_witness() -> None:
    old = read(pages.triton(active=1, iteration=7, name="statistics"))
    model = next(each for each in old.engines if each.label == "tensorrt_llm")
    assert (model.witnesses["iterations"], model.steps) == (7, 7)


def test_triton_without_an_iteration_counter_waits_for_longer() -> None:
    plain = b"\n".join(
        line for line in pages.triton(pending=1).splitlines() if b"iteration_counter" not in line
    )
    assert longest_window(read(plain)) == timedelta(minutes=2)


# --- trtllm-serve --------------------------------------------------------------------------------


def test_trtllm_is_never_read_at_the_page_that_drains_its_queue() -> None:
    assert PROFILES["trtllm"].path == "/prometheus/metrics"


def test_trtllm_under_the_other_names_of_its_gauges() -> None:
    page = pages.trtllm(running=2, waiting=3)
    other = page.replace(b"num_requests_running", b"num_active_requests")
    other = other.replace(b"num_requests_waiting", b"server_queue_length")
    assert read(other).engines == read(page).engines


def test_trtllm_shows_only_ends_of_requests_so_it_waits_for_one_and_no_answer_proves_nothing() -> (
    None
):
    for page in (pages.trtllm(running=1), pages.trtllm(running=1, missed=None)):
        seen = read(page)
        assert longest_window(seen) == timedelta(minutes=2)
        silent = replace(seen, answer=Answer(came=Came.NONE))
        said = [
            find(Reading(server="s", at=T0, engine=silent), None, Policy(restart_unproven=acts))
            for acts in (False, True)
        ]
        assert [each.verdict for each in said] == [Verdict.UNPROVEN, Verdict.SUSPECT]
        assert "by the ends of requests, busy looks the same" in said[0].why


# --- NIM -----------------------------------------------------------------------------------------


def test_nim_is_read_at_its_own_path_with_or_without_vllms_prefix() -> None:
    assert PROFILES["nim"].path == "/v1/metrics"
    old = read(pages.nim(running=1, waiting=2), "nim")
    assert (old.profile, old.engines[0].waiting, old.started) == ("nim/1.x", 2, "1730312854.9")
    new = read(vllm_pages.page(vllm_pages.engine(running=1)), "nim")
    assert (new.profile, new.engines[0].running) == ("nim/vllm", 1)


# --- LMDeploy ------------------------------------------------------------------------------------


def test_lmdeploy_ranks_are_judged_by_themselves_and_what_is_routed_counts() -> None:
    seen = read(pages.lmdeploy("0", "1", running=1))
    assert [each.label for each in seen.engines] == ["0", "1"]
    assert one(pages.lmdeploy(routed=1)).in_flight
    assert one(pages.lmdeploy(running=1, routed=1)).open == 0


# --- Dynamo, Ray, and what only looks like vLLM --------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (vllm_pages.page(), "dynamo/vllm"),
        (pages.sglang(), "dynamo/sglang"),
        (pages.trtllm(), "dynamo/trtllm"),
    ],
)
@pytest.mark.parametrize("kind", ["dynamo", "engine"])
def test_dynamo_is_judged_by_the_engine_beneath(engine: bytes, name: str, kind: str) -> None:
    seen = read(pages.dynamo(engine, inflight=2), kind)
    assert (seen.profile, seen.engines[0].open) == (name, 2)
    assert not read(pages.dynamo(engine), kind).in_flight
    younger = between(pages.dynamo(engine, uptime=900), pages.dynamo(engine, uptime=30), kind)
    assert younger.restarted


def test_dynamo_a_frontend_tells_of_no_engine() -> None:
    frontend = b'dynamo_frontend_inflight_requests{model="m"} 3\n'
    assert read_page(frontend, PROFILES["dynamo"])[0].page is Page.BARE


def test_ray_replicas_of_one_page_are_engines_of_their_own() -> None:
    def replica(name: str, steps: int) -> bytes:
        labels = f'{{ReplicaId="{name}",WorkerId="w{name}",engine="0",model_name="m"}}'
        return (
            f"ray_vllm_num_requests_running{labels} 1\n"
            f"ray_vllm_iteration_tokens_total_sum{labels} {steps}\n"
        ).encode()

    before, after = replica("a", 5) + replica("b", 5), replica("a", 5) + replica("b", 9)
    seen = read(before)
    assert (seen.profile, len(seen.engines)) == ("vllm", 2)
    assert ["/a/" in each.label for each in between(before, after).still] == [True]


def test_a_fake_vllm_without_iterations_goes_by_its_tokens_and_waits_longer() -> None:
    before = pages.inference_sim(running=1, output=5)
    assert longest_window(read(before)) == timedelta(seconds=60)
    assert len(between(before, pages.inference_sim(running=1, output=6)).moved) == 1
    assert verdicts(before, before, before) == [Verdict.BUSY, Verdict.BUSY, Verdict.SUSPECT]


# --- vLLM's names since 0.8 ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b""),
        (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc"),
        (b"vllm:", b"ray_vllm_"),
        (b"vllm:", b"vllm_"),
        (b'engine="0",', b""),
    ],
)
def test_vllm_under_each_of_its_names(old: bytes, new: bytes) -> None:
    def page(**numbers: Any) -> bytes:
        return vllm_pages.page(vllm_pages.engine(running=1, **numbers)).replace(old, new)

    assert len(between(page(kv=0.1), page(kv=0.1)).still) == 1
    for more in ({"kv": 0.2}, {"kv": 0.1, "steps": 1}, {"kv": 0.1, "prompt": 1}):
        assert len(between(page(kv=0.1), page(**more)).moved) == 1, more


def test_vllm_0_9_has_both_names_of_the_cache_and_one_is_enough() -> None:
    page = vllm_pages.page(vllm_pages.engine(running=1, kv=0.3))
    both = page + b'vllm:gpu_cache_usage_perc{engine="0",model_name="tiny"} 0.3\n'
    assert one(both).witnesses["kv"] == 0.3


def test_vllm_swapped_requests_of_v0_are_in_flight() -> None:
    page = vllm_pages.page() + b'vllm:num_requests_swapped{engine="0",model_name="tiny"} 2\n'
    assert one(page).running == 2


def test_vllm_the_flops_of_a_prefill_are_progress() -> None:
    name = b'vllm:estimated_flops_per_gpu_total{engine="0",model_name="tiny"} '
    page = vllm_pages.page(vllm_pages.engine(running=1))
    assert len(between(page + name + b"1e+012\n", page + name + b"2e+012\n").moved) == 1
