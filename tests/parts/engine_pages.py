"""Pages as engines other than vLLM write them, small: with the numbers that a test gives."""

from collections.abc import Iterable


def _lines(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def sglang(
    *ranks: str,
    running: float = 0,
    queued: float = 0,
    paused: float = 0,
    decode: float = 0,
    prefill: float = 0,
    used: float = 0,
    finished: float = 0,
    active: float = 0,
    startup: float = 9.2,
    priorities: Iterable[str] = (),
    realtime: bool = True,
) -> bytes:
    """SGLang 0.5.10. ``ranks`` are label texts such as ``dp_rank="0",tp_rank="1"``."""
    lines = [
        "# HELP sglang:http_requests_active Number of currently active HTTP requests",
        "# TYPE sglang:http_requests_active gauge",
        f'sglang:http_requests_active{{endpoint="/v1/chat/completions",method="POST"}} {active}',
        'sglang:http_requests_active{endpoint="/metrics",method="GET"} 1.0',
        'sglang:http_requests_active{endpoint="/health",method="GET"} 2.0',
        'sglang:process_cpu_seconds_total{component="scheduler"} 400.5',
    ]
    for rank in ranks or ('tp_rank="0"',):
        labels = f'engine_type="unified",model_name="m",pp_rank="0",{rank}'
        every = "" if not priorities else ',priority=""'
        lines += [
            f"sglang:num_running_reqs{{{labels}{every}}} {running}",
            f"sglang:num_queue_reqs{{{labels}{every}}} {queued}",
            *(f'sglang:num_running_reqs{{{labels},priority="{p}"}} 5.0' for p in priorities),
            f"sglang:num_grammar_queue_reqs{{{labels}}} 0.0",
            f"sglang:num_paused_reqs{{{labels}}} {paused}",
            f"sglang:num_used_tokens{{{labels}}} {used}",
            f"sglang:token_usage{{{labels}}} {used / 1000}",
            f"sglang:gen_throughput{{{labels}}} 425.5",
            f"sglang:engine_startup_time{{{labels}}} {startup}",
        ]
        if realtime:
            lines += [
                f'sglang:realtime_tokens_total{{{labels},mode="decode"}} {decode}',
                f'sglang:realtime_tokens_total{{{labels},mode="prefill_compute"}} {prefill}',
                f'sglang:realtime_tokens_total{{{labels},mode="prefill_cache"}} 0.0',
            ]
    lines += [
        f'sglang:prompt_tokens_total{{model_name="m"}} {finished * 30}',
        f'sglang:generation_tokens_total{{model_name="m"}} {finished * 20}',
        f'sglang:num_requests_total{{model_name="m"}} {finished}',
    ]
    return _lines(*lines)


def llamacpp(
    *,
    processing: float = 0,
    deferred: float = 0,
    decodes: float = 0,
    tokens: float = 8,
    seconds: float = 0,
) -> bytes:
    return _lines(
        "# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed",
        "# TYPE llamacpp:prompt_tokens_total counter",
        f"llamacpp:prompt_tokens_total {tokens}",
        f"llamacpp:prompt_seconds_total {seconds}",
        f"llamacpp:tokens_predicted_total {tokens}",
        f"llamacpp:n_decode_total {decodes}",
        "llamacpp:n_tokens_max 169",
        "llamacpp:predicted_tokens_seconds 0",
        f"llamacpp:requests_processing {processing}",
        f"llamacpp:requests_deferred {deferred}",
        "llamacpp:n_busy_slots_per_decode 1",
    )


def tgi(
    *,
    batch: float = 0,
    queue: float = 0,
    prefills: tuple[float, float, float] = (0, 0, 0),
    decodes: tuple[float, float, float] = (0, 0, 0),
) -> bytes:
    """Text Generation Inference: of each method the calls, their successes and their failures."""
    names = ("count", "success", "failure")
    calls = [
        f'tgi_batch_inference_{name}{{method="{method}"}} {value:g}'
        for method, values in (("prefill", prefills), ("decode", decodes))
        for name, value in zip(names, values, strict=True)
    ]
    return _lines(
        "# TYPE tgi_queue_size gauge",
        f"tgi_queue_size {queue}",
        "",
        "# TYPE tgi_batch_current_size gauge",
        f"tgi_batch_current_size {batch}",
        *calls,
        "tgi_request_count 12",
        'tgi_request_duration_bucket{le="+Inf"} 12',
    )


def triton(
    *,
    active: float = 0,
    waiting: float = 0,
    iteration: float = 0,
    executions: float = 0,
    pending: float = 0,
    name: str = "metrics",
) -> bytes:
    """Triton with TensorRT-LLM: an ensemble, a tokenizer and the model."""
    model = 'model="tensorrt_llm",version="1"'
    pre = 'model="preprocessing",version="1"'
    request = "nv_trt_llm_request_metrics"
    return _lines(
        "# TYPE nv_inference_exec_count counter",
        f"nv_inference_exec_count{{{model}}} {executions}",
        f"nv_inference_exec_count{{{pre}}} 40",
        'nv_inference_exec_count{model="ensemble",version="1"} 0',
        f"nv_inference_pending_request_count{{{model}}} 0",
        f"nv_inference_pending_request_count{{{pre}}} {pending}",
        f"nv_inference_request_success{{{model}}} {executions}",
        f'nv_inference_request_failure{{{model},reason="OTHER"}} 0',
        f'{request}{{{model},request_type="active"}} {active}',
        f'{request}{{{model},request_type="scheduled"}} {active}',
        f'{request}{{{model},request_type="waiting"}} {waiting}',
        f'{request}{{{model},request_type="max"}} 64',
        f'nv_trt_llm_general_{name}{{{model},general_type="iteration_counter"}} {iteration}',
        f'nv_trt_llm_general_{name}{{{model},general_type="timestamp"}} 1700074049',
        'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.9',
    )


def trtllm(
    *,
    running: float = 0,
    waiting: float = 0,
    missed: float | None = 0,
    blocks: float = 0,
    latency: float = 0.01,
    finished: float = 0,
) -> bytes:
    """``missed`` none: without statistics of the cache, as older versions write it."""
    labels = '{engine_type="pytorch",model_name="m"}'
    lines = [
        f"trtllm_num_requests_running{labels} {running}",
        f"trtllm_num_requests_waiting{labels} {waiting}",
        f"trtllm_prompt_tokens_total{labels} {finished * 30}",
        f"trtllm_generation_tokens_total{labels} {finished * 20}",
        f'trtllm_request_success_total{{model_name="m",finished_reason="stop"}} {finished}',
    ]
    if missed is not None:
        lines += [
            f"trtllm_kv_cache_iter_missed_blocks_total{labels} {missed}",
            f"trtllm_kv_cache_gen_alloc_blocks_total{labels} 3.0",
            f"trtllm_kv_cache_used_blocks{labels} {blocks}",
            f"trtllm_iteration_latency_seconds{labels} {latency}",
        ]
    return _lines(*lines)


def nim(
    *,
    running: float = 0,
    waiting: float = 0,
    cache: float = 0,
    prompt: float = 0,
    output: float = 0,
) -> bytes:
    """NIM 1.x: names without a prefix, exponents of three digits."""
    labels = '{model_name="meta/llama"}'
    return _lines(
        'python_info{implementation="CPython",major="3",minor="10"} 1.0',
        "process_resident_memory_bytes 1.0463768576e+010",
        "process_start_time_seconds 1.7303128549e+09",
        f"num_requests_running{labels} {running}",
        f"num_requests_waiting{labels} {waiting}",
        f"num_request_max{labels} 64.0",
        f"gpu_cache_usage_perc{labels} {cache}",
        f"prompt_tokens_total{labels} {prompt}",
        f"generation_tokens_total{labels} {output}",
        f"request_success_total{labels} 5.0",
    )


def lmdeploy(
    *ranks: str,
    running: float = 0,
    waiting: float = 0,
    routed: float = 0,
    unrouted: float = 0,
    steps: float = 0,
    cache: float = 0,
) -> bytes:
    lines = ["process_start_time_seconds 1.7960232e+09"]
    for rank in ranks or ("0",):
        labels = f'{{engine="{rank}",model_name="m"}}'
        lines += [
            f"lmdeploy:num_api_requests_routed{labels} {routed}",
            f"lmdeploy:num_api_requests_waiting{labels} {unrouted}",
            f"lmdeploy:num_requests_running{labels} {running}",
            f"lmdeploy:num_requests_waiting{labels} {waiting}",
            f"lmdeploy:num_requests_failed{labels} 0.0",
            f"lmdeploy:gpu_cache_usage_perc{labels} {cache}",
            f"lmdeploy:iteration_tokens_total_count{labels} {steps}",
            f"lmdeploy:iteration_tokens_total_sum{labels} {steps * 3}",
            f"lmdeploy:prompt_tokens_total{labels} 90.0",
            f"lmdeploy:generation_tokens_total{labels} {steps}",
        ]
    return _lines(*lines)


def dynamo(engine: bytes, *, inflight: float = 0, uptime: float = 100) -> bytes:
    """A worker's page: what the engine beneath writes, and what Dynamo adds to it."""
    common = 'dynamo_component="backend",dynamo_namespace="dynamo"'
    name = "dynamo_component_inflight_requests"
    own = _lines(
        f'{name}{{{common},dynamo_endpoint="generate",model="m"}} {inflight}',
        f'{name}{{{common},dynamo_endpoint="clear_kv_blocks"}} 9',
        f"dynamo_component_uptime_seconds{{{common}}} {uptime}",
    )
    return own + engine


def inference_sim(*, running: float = 0, prompt: float = 0, output: float = 0) -> bytes:
    """llm-d-inference-sim: vLLM's names from a program in Go that counts no iterations."""
    labels = '{model_name="m"}'
    return _lines(
        "go_goroutines 12",
        "process_start_time_seconds 1.79602321e+09",
        f"vllm:num_requests_running{labels} {running}",
        f"vllm:num_requests_waiting{labels} 0",
        f"vllm:kv_cache_usage_perc{labels} 0",
        f"vllm:prompt_tokens_total{labels} {prompt}",
        f"vllm:generation_tokens_total{labels} {output}",
    )
