"""``trtllm-serve`` of TensorRT-LLM, with ``return_perf_metrics`` or ``enable_iter_perf_stats``.

Its page lies at ``/prometheus/metrics``. ``/metrics`` is another one, in JSON, and whoever reads it
takes statistics out of a queue: it is never asked for.

Why these witnesses. There is no counter of steps. Blocks of the KV cache are taken as a prompt is
read and as tokens are made, and how many are in use moves with them; the latency of the last
iteration changes with every one. But the server takes all of that out of the engine when a request
ends, and only then, as it counts tokens then: hence the window, and that no answer proves nothing.

Nothing on the page says when the process began.
"""

from datetime import timedelta

from fleet.engines.profile import Profile, Series, Witness


def _series(*stems: str) -> Series:
    return Series(tuple(f"trtllm_{stem}" for stem in stems))


TRTLLM = Profile(
    name="trtllm",
    engine_labels=("model_name", "engine_type"),
    in_flight=(_series("num_requests_running", "num_active_requests"),),
    waiting=(_series("num_requests_waiting", "server_queue_length"),),
    witnesses=(
        Witness("missed", _series("kv_cache_iter_missed_blocks_total")),
        Witness("allocated", _series("kv_cache_gen_alloc_blocks_total")),
        Witness("used", _series("kv_cache_used_blocks"), counts=False),
        Witness("kv", _series("kv_cache_utilization"), counts=False),
        Witness("prefills", _series("prefill_batch_tokens_count")),
        Witness("latency", _series("iteration_latency_seconds"), counts=False),
        Witness("prompt", _series("prompt_tokens_total")),
        Witness("output", _series("generation_tokens_total")),
    ),
    counters=(
        Witness("done", _series("num_requests_completed_total")),
        Witness(
            "ended",
            Series(("trtllm_request_success_total",), added=("finished_reason",)),
        ),
    ),
    by_ends=True,
    window=timedelta(minutes=2),
    path="/prometheus/metrics",
    marks=("trtllm_",),
)
