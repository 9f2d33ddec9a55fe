"""NVIDIA NIM for language models: 1.x, whose names carry no prefix, and 2.x with vLLM's names.

Its page lies at ``/v1/metrics``. 1.x has no counter of steps; its counters of tokens move with
every iteration, and the KV cache use as a prompt is read. As with vLLM the counters of tokens stand
still while a long prompt is read.
"""

from dataclasses import replace

from fleet.engines.profile import Profile, Series, Witness
from fleet.engines.vllm import VLLM

_OLD = Profile(
    name="nim/1.x",
    engine_labels=("model_name",),
    in_flight=(Series(("num_requests_running",)),),
    waiting=(Series(("num_requests_waiting",)),),
    witnesses=(
        Witness("kv", Series(("gpu_cache_usage_perc", "kv_cache_usage_perc")), counts=False),
        Witness("prompt", Series(("prompt_tokens_total",))),
        Witness("output", Series(("generation_tokens_total",))),
    ),
    started=Series(("process_start_time_seconds", "prompt_tokens_created")),
    counters=(
        Witness("done", Series(("request_success_total",))),
        Witness("ended", Series(("request_finish_total",), added=("finished_reason",))),
    ),
    path="/v1/metrics",
    marks=("num_requests_running",),
)

_NEW = replace(VLLM, name="nim/vllm", path="/v1/metrics")

NIM = Profile(name="nim", path="/v1/metrics", among=(_NEW, _OLD))
