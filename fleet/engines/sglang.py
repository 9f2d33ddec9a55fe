"""SGLang 0.4 and 0.5, started with ``--enable-metrics``.

Why these witnesses. ``realtime_tokens_total`` moves with every prefill batch and every decode step,
``cuda_graph_passes_total`` with every pass. Older versions have neither: of those the tokens that
are in use move. ``prompt_tokens_total`` and ``generation_tokens_total`` move only when a request
ends, so they prove a restart where they fall, and nothing where they stand still.

Gauges are written with every prefill batch, and in decode every 40 steps (``decode_log_interval``);
after the last request they may say for 30 s that it still runs. Hence the window.

Every tensor- and pipeline-parallel rank writes the same series again: the highest counts. Ranks of
data parallelism are engines of their own. With priorities on, each has a series beside that of all.

``num_paused_reqs`` are held back while weights are synchronised. An engine that has nothing else is
paused, which looks as stuck as can be.

Nothing on the page says when the process began but the time that its start took.

A request names its rank of data parallelism by ``X-Data-Parallel-Rank``, as vLLM's does, since
0.5.10 (sgl-project/sglang#19832); older versions pass it over, and any rank answers. No page says
its version. Those after 0.5.10 have ``kv_used_tokens``, and the front end that reads the header has
``http_requests_active``: the one in Rust has neither the header nor that series.

``http_requests_active`` is the front end's own count, by path; the path of this very page is there
as well, so only those paths count that make an engine work.
"""

from datetime import timedelta

from fleet.engines.profile import Profile, Series, Witness, named

_PREFIXES = ("sglang:", "sglang_")
_ALL_PRIORITIES = (("priority", ""),)
_WORK = (
    "/generate",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
    "/encode",
    "/classify",
    "/api/chat",
    "/api/generate",
)


def _series(*stems: str, added: tuple[str, ...] = ()) -> Series:
    return Series(named(_PREFIXES, *stems), _ALL_PRIORITIES, added)


SGLANG = Profile(
    name="sglang",
    engine_labels=("dp_rank", "model_name", "engine_type"),
    in_flight=(_series("num_running_reqs"),),
    waiting=(
        _series("num_queue_reqs"),
        _series("num_grammar_queue_reqs"),
        _series("num_prefill_bootstrap_queue_reqs", "num_prefill_prealloc_queue_reqs"),
        _series("num_prefill_inflight_queue_reqs"),
        _series("num_decode_prealloc_queue_reqs"),
        _series("num_decode_transfer_queue_reqs"),
    ),
    witnesses=(
        Witness("step_tokens", _series("realtime_tokens_total", added=("mode",))),
        Witness("passes", _series("cuda_graph_passes_total", added=("mode",))),
        Witness("forward", _series("forward_execution_seconds_total", added=("category",))),
        Witness("flops", _series("estimated_flops_per_gpu_total")),
        Witness("used", _series("num_used_tokens"), counts=False),
        Witness("kv", _series("token_usage"), counts=False),
        Witness("mamba", _series("mamba_used_tokens"), counts=False),
    ),
    started=Series(named(_PREFIXES, "engine_startup_time")),
    counters=(
        Witness("prompt", _series("prompt_tokens_total")),
        Witness("output", _series("generation_tokens_total")),
        Witness("done", _series("num_requests_total")),
    ),
    paused=_series("num_paused_reqs"),
    open=(
        Series(
            named(_PREFIXES, "http_requests_active"),
            (("endpoint", *_WORK),),
            added=("endpoint", "method"),
        ),
    ),
    window=timedelta(seconds=35),
    ranks=True,
    ranks_since=(named(_PREFIXES, "kv_used_tokens"), named(_PREFIXES, "http_requests_active")),
    marks=_PREFIXES,
)
