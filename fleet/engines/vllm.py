"""vLLM: V1 from 0.8 on, and V0's names where they differ.

Why these witnesses. ``iteration_tokens_total`` counts only steps that gave a request its output:
while a long prompt is read, it stands still, and so do the token counters. What moves then is the
KV cache use, and the FLOPs counter where ``--enable-mfu-metrics`` has it. Of the histogram the sum
is the witness and not the count: V0 adds an empty sample about every 10 s, also while it hangs.

Gauges are written after a step. So they stay at zero through a first long step, and in an engine
that froze while idle.
"""

from fleet.engines.profile import Profile, Series, Witness

#: As vLLM writes them, and as Ray Serve does, which allows no colon.
_PREFIXES = ("vllm:", "ray_vllm_", "vllm_")


def _series(*stems: str, where: tuple[tuple[str, str], ...] = ()) -> Series:
    return Series(tuple(prefix + stem for stem in stems for prefix in _PREFIXES), where)


VLLM = Profile(
    name="vllm",
    engine_labels=("engine", "model_name"),
    in_flight=(_series("num_requests_running"), _series("num_requests_swapped")),
    waiting=(_series("num_requests_waiting"),),
    witnesses=(
        Witness("step_tokens", _series("iteration_tokens_total_sum")),
        Witness("kv", _series("kv_cache_usage_perc", "gpu_cache_usage_perc")),
        Witness("flops", _series("estimated_flops_per_gpu_total")),
        Witness("prompt", _series("prompt_tokens_total")),
        Witness("output", _series("generation_tokens_total")),
    ),
    steps=_series("iteration_tokens_total_count"),
    started=Series(("process_start_time_seconds",)),
    awake=_series("engine_sleep_state", where=(("sleep_state", "awake"),)),
)
