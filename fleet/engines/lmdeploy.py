"""LMDeploy, whose metrics are on unless ``--disable-metrics`` says otherwise.

Its names are vLLM's under a prefix of its own, with an own count of what the API server has taken
in and not yet handed on. ``iteration_tokens_total`` counts each output that a request is given, and
no chunk of a prompt; the gauges are written every 10 s. The API server has the start of its process
on the page where it is a single one.
"""

from fleet.engines.profile import Profile, Series, Witness, named

_PREFIXES = ("lmdeploy:", "lmdeploy_")


def _series(*stems: str) -> Series:
    return Series(named(_PREFIXES, *stems))


LMDEPLOY = Profile(
    name="lmdeploy",
    engine_labels=("engine", "model_name"),
    in_flight=(_series("num_requests_running"),),
    waiting=(_series("num_requests_waiting"), _series("num_api_requests_waiting")),
    witnesses=(
        Witness("steps", _series("iteration_tokens_total_count")),
        Witness("step_tokens", _series("iteration_tokens_total_sum")),
        Witness("kv", _series("gpu_cache_usage_perc"), counts=False),
        Witness("prompt", _series("prompt_tokens_total")),
        Witness("output", _series("generation_tokens_total")),
    ),
    steps=_series("iteration_tokens_total_count"),
    started=Series(
        (
            "process_start_time_seconds",
            *named(_PREFIXES, "iteration_tokens_total_created", "prompt_tokens_created"),
        )
    ),
    open=(_series("num_api_requests_routed"),),
    marks=_PREFIXES,
)
