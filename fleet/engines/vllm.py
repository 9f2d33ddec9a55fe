"""vLLM: V1 from 0.8 on, V0's names where they differ, and Ray Serve's, which allows no colon.

Why these witnesses. ``iteration_tokens_total`` counts only steps that gave a request its output:
while a long prompt is read, it stands still, and so do the token counters. What moves then is the
KV cache use, and the FLOPs counter where ``--enable-mfu-metrics`` has it. Of the histogram the sum
is the witness and not the count: V0 adds an empty sample about every 10 s, also while it hangs.
An imitation without that histogram may write all else only when a request ends, hence the windows.

Gauges are written after a step. So they stay at zero through a first long step, and in an engine
that froze while idle. So, too, a queue of another length is a step's work while requests run: of a
model whose cache use stays flat while it reads a prompt, nothing else may move, and a request that
is sent to it then is seen to be counted.

A request names its rank of data parallelism by ``X-data-parallel-rank`` since 0.11.1
(vllm-project/vllm#24945), and ``engine_sleep_state`` is on the page since the same version. Before
Ray Serve's proxy nobody knows who takes the header, so of its names none tells that.

With several API servers, or ranks, the page has neither the start of the process nor stamps of
creation, and a restart is a counter that fell. The start is the API server's: an engine that was
started anew behind it shows by its counters alone.
"""

from datetime import timedelta

from fleet.engines.profile import Profile, Series, Witness, named

_PREFIXES = ("vllm:", "ray_vllm_", "vllm_")
_WHEN_A_REQUEST_ENDS = timedelta(seconds=60)


def _series(*stems: str, where: tuple[tuple[str, ...], ...] = ()) -> Series:
    return Series(named(_PREFIXES, *stems), where)


VLLM = Profile(
    name="vllm",
    engine_labels=("engine", "model_name", "ReplicaId", "WorkerId"),
    in_flight=(_series("num_requests_running"), _series("num_requests_swapped")),
    waiting=(_series("num_requests_waiting"),),
    witnesses=(
        Witness("step_tokens", _series("iteration_tokens_total_sum")),
        Witness(
            "kv",
            _series("kv_cache_usage_perc", "gpu_cache_usage_perc"),
            counts=False,
            window=_WHEN_A_REQUEST_ENDS,
        ),
        Witness("flops", _series("estimated_flops_per_gpu_total")),
        Witness("prompt", _series("prompt_tokens_total"), window=_WHEN_A_REQUEST_ENDS),
        Witness("output", _series("generation_tokens_total"), window=_WHEN_A_REQUEST_ENDS),
    ),
    steps=_series("iteration_tokens_total_count"),
    started=Series(
        (
            "process_start_time_seconds",
            *named(_PREFIXES, "iteration_tokens_total_created", "prompt_tokens_created"),
        )
    ),
    counters=(
        Witness("steps", _series("iteration_tokens_total_count")),
        Witness(
            "done", Series(named(_PREFIXES, "request_success_total"), added=("finished_reason",))
        ),
    ),
    queue_by_steps=True,
    ranks=True,
    ranks_since=(("vllm:engine_sleep_state",),),
    awake=_series("engine_sleep_state", where=(("sleep_state", "awake"),)),
    marks=_PREFIXES,
)
