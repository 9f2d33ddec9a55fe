"""Pages of the shape and size of a vLLM server's, written by the library that vLLM writes with."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_GAUGES = {
    "vllm:num_requests_running": "Number of requests in model execution batches.",
    "vllm:num_requests_waiting": "Number of requests waiting to be processed.",
    "vllm:kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
_COUNTERS = {
    "vllm:prefix_cache_queries": "Prefix cache queries, in number of queried tokens.",
    "vllm:prefix_cache_hits": "Prefix cache hits, in number of cached tokens.",
    "vllm:mm_cache_queries": "Multi-modal cache queries, in number of queried items.",
    "vllm:mm_cache_hits": "Multi-modal cache hits, in number of cached items.",
    "vllm:num_preemptions": "Cumulative number of preemptions of the engine.",
    "vllm:prompt_tokens": "Number of prefill tokens processed.",
    "vllm:prompt_tokens_cached": "Number of prompt tokens that were in the cache.",
    "vllm:generation_tokens": "Number of generation tokens processed.",
}
#: Families that have one more label, with its values.
_SPLIT = {
    "vllm:request_success": ("finished_reason", "stop", "length", "abort", "error", "repetition"),
    "vllm:prompt_tokens_by_source": ("source", "local_compute", "local_cache", "external"),
    "vllm:admission_rejections": ("reason", "queue_full", "queue_tokens"),
}
_SECONDS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
_HISTOGRAMS: dict[str, Sequence[float]] = {
    "vllm:iteration_tokens_total": (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    "vllm:request_prompt_tokens": _TOKENS,
    "vllm:request_generation_tokens": _TOKENS,
    "vllm:request_max_num_generation_tokens": _TOKENS,
    "vllm:request_params_max_tokens": _TOKENS,
    "vllm:request_prefill_kv_computed_tokens": _TOKENS,
    "vllm:request_params_n": (1, 2, 5, 10, 20),
    "vllm:request_num_preemptions": (0, 1, 2, 5, 10, 20, 50),
    "vllm:time_to_first_token_seconds": (0.001, 0.005, *_SECONDS),
    "vllm:inter_token_latency_seconds": (0.01, *_SECONDS[:18]),
    "vllm:request_time_per_output_token_seconds": (0.01, *_SECONDS[:18]),
    "vllm:e2e_request_latency_seconds": (*_SECONDS, 7680),
    "vllm:request_queue_time_seconds": (*_SECONDS, 7680),
    "vllm:request_inference_time_seconds": (*_SECONDS, 7680),
    "vllm:request_prefill_time_seconds": (*_SECONDS, 7680),
    "vllm:request_decode_time_seconds": (*_SECONDS, 7680),
}
_SLEEP = ("awake", "weights_offloaded", "discard_all")
_HANDLERS = ("/v1/completions", "/v1/chat/completions", "/v1/models", "none")


def vllm_page(engines: int, *, turn: int = 0, model: str = "org/model-70b-instruct") -> bytes:
    """A busy server's page; a later ``turn`` is a later page, on which its counters have moved."""
    registry = CollectorRegistry()
    ranks = [(str(rank), model) for rank in range(engines)]
    for name, text in _GAUGES.items():
        gauge = Gauge(name, text, ["engine", "model_name"], registry=registry)
        for at, rank in enumerate(ranks):
            gauge.labels(*rank).set((turn + at + 1) / 8)
    state = ["engine", "model_name", "sleep_state"]
    sleep = Gauge("vllm:engine_sleep_state", "Engine sleep state.", state, registry=registry)
    for rank in ranks:
        for each in _SLEEP:
            sleep.labels(*rank, each).set(each == "awake")
    _count(registry, ranks, turn)
    _observe(registry, ranks, turn)
    _of_the_process(registry, turn)
    return generate_latest(registry)


def _count(registry: CollectorRegistry, ranks: list[tuple[str, str]], turn: int) -> None:
    for name, text in _COUNTERS.items():
        counter = Counter(name, text, ["engine", "model_name"], registry=registry)
        for rank in ranks:
            counter.labels(*rank).inc(1000 + turn)
    for name, (label, *values) in _SPLIT.items():
        counter = Counter(name, name, ["engine", label, "model_name"], registry=registry)
        for rank in ranks:
            for value in values:
                counter.labels(rank[0], value, rank[1]).inc(turn)


def _observe(registry: CollectorRegistry, ranks: list[tuple[str, str]], turn: int) -> None:
    for name, buckets in _HISTOGRAMS.items():
        text = f"Histogram of {name.partition(':')[2].replace('_', ' ')}."
        labels = ["engine", "model_name"]
        histogram = Histogram(name, text, labels, buckets=buckets, registry=registry)
        for rank in ranks:
            histogram.labels(*rank).observe(turn + 0.7)


def _of_the_process(registry: CollectorRegistry, turn: int) -> None:
    start = Gauge("process_start_time_seconds", "Start time of the process.", registry=registry)
    start.set(1796023212.11)
    cpu = Counter("process_cpu_seconds", "Total CPU time spent in seconds.", registry=registry)
    cpu.inc(10.04 + turn)
    labels = ["handler", "method", "status"]
    done = Counter("http_requests", "Number of requests.", labels, registry=registry)
    took = Histogram(
        "http_request_duration_seconds", "Latency.", labels[:2], registry=registry, buckets=_SECONDS
    )
    for handler in _HANDLERS:
        done.labels(handler, "POST", "2xx").inc(turn)
        took.labels(handler, "POST").observe(0.2)
