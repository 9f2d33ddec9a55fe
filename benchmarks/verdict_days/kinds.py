"""Every kind of engine that is simulated: how its pages are written, and who finds what there."""

from collections.abc import Mapping

from benchmarks.verdict_days.exports import (
    Export,
    Gauges,
    LlamaGauges,
    SglangGauges,
    llamacpp,
    sglang,
    v0,
    v1,
)
from benchmarks.verdict_days.more_exports import (
    LmdeployGauges,
    TgiGauges,
    TritonGauges,
    TrtllmGauges,
    lmdeploy,
    nim,
    tgi,
    triton,
    trtllm,
)

EXPORTS: Mapping[str, tuple[Export, type[Gauges]]] = {
    "vllm": (v1, Gauges),
    "vllm-v0": (v0, Gauges),
    "sglang": (sglang, SglangGauges),
    "llamacpp": (llamacpp, LlamaGauges),
    "tgi": (tgi, TgiGauges),
    "triton": (triton, TritonGauges),
    "trtllm": (trtllm, TrtllmGauges),
    "nim": (nim, Gauges),
    "lmdeploy": (lmdeploy, LmdeployGauges),
}

_MODEL = 'model="tensorrt_llm",version="1"'

#: Under these names the checks that look at one series find it, by kind. Triton counts no tokens:
#: there it is the requests that ended. NIM 1.x counts no steps, but tokens with each of them;
#: trtllm-serve none either, so it is the blocks that are taken as tokens are made.
OUTPUT = {
    "vllm": "vllm:generation_tokens_total",
    "vllm-v0": "vllm:generation_tokens_total",
    "sglang": "sglang:generation_tokens_total",
    "llamacpp": "llamacpp:tokens_predicted_total",
    "tgi": "tgi_request_generated_tokens_sum",
    "triton": "nv_inference_request_success",
    "trtllm": "trtllm_generation_tokens_total",
    "nim": "generation_tokens_total",
    "lmdeploy": "lmdeploy:generation_tokens_total",
}
STEPS = {
    "vllm": "vllm:iteration_tokens_total_count",
    "vllm-v0": "vllm:iteration_tokens_total_count",
    "sglang": "sglang:realtime_tokens_total",
    "llamacpp": "llamacpp:n_decode_total",
    "tgi": "tgi_batch_inference_success",
    "triton": f'nv_trt_llm_general_metrics{{{_MODEL},general_type="iteration_counter"}}',
    "trtllm": "trtllm_kv_cache_gen_alloc_blocks_total",
    "nim": "generation_tokens_total",
    "lmdeploy": "lmdeploy:iteration_tokens_total_count",
}
IN_FLIGHT = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "vllm-v0": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    "llamacpp": ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    "tgi": ("tgi_batch_current_size", "tgi_queue_size"),
    "triton": (
        f'nv_trt_llm_request_metrics{{{_MODEL},request_type="active"}}',
        f'nv_trt_llm_request_metrics{{{_MODEL},request_type="waiting"}}',
    ),
    "trtllm": ("trtllm_num_requests_running", "trtllm_num_requests_waiting"),
    "nim": ("num_requests_running", "num_requests_waiting"),
    "lmdeploy": ("lmdeploy:num_requests_running", "lmdeploy:num_requests_waiting"),
}

#: What only those versions of SGLang write that take the name of a rank; vLLM's page has its own.
TAKES_NAMES = {
    "sglang": 'sglang:kv_used_tokens{dp_rank="0"} 0.0\n'
    'sglang:http_requests_active{endpoint="/metrics",method="GET"} 1.0\n'
}

#: Only these say when their process began, those of several ranks or API servers aside.
SAYS_ITS_START = frozenset({"vllm", "vllm-v0", "nim", "lmdeploy"})

#: Whose ``/health`` watches its scheduler: the seconds for which that may stand still with work.
UNHEALTHY_AFTER = {"lmdeploy": 90.0}
