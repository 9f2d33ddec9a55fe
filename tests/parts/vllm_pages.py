"""Pages as vLLM 0.32 writes them, with the numbers that a test gives."""

from collections.abc import Iterable

_HEAD = """\
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 14893.0
"""

_PROCESS = """\
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds %s
# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total %s
"""

_HTTP = """\
# HELP http_requests_total Total number of requests by method, status and handler.
# TYPE http_requests_total counter
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} %s
"""


def engine(
    label: str = "0",
    *,
    running: float = 0,
    waiting: float = 0,
    steps: float = 0,
    tokens: float | None = None,
    kv: float = 0.0,
    output: float | None = None,
    prompt: float = 0,
    awake: int = 1,
    model: str = "tiny",
) -> dict[str, float | str]:
    """The numbers of one engine; those that follow from the steps may be left out."""
    return {
        "engine": label,
        "model": model,
        "running": running,
        "waiting": waiting,
        "steps": steps,
        "tokens": steps * 2 if tokens is None else tokens,
        "kv": kv,
        "output": steps if output is None else output,
        "prompt": prompt,
        "awake": awake,
    }


def page(
    *engines: dict[str, float | str], started: float | None = 1796023212.11, cpu: float = 10.04
) -> bytes:
    """``started`` none: as with several API servers, where nothing of the process is exported."""
    parts = [_HEAD]
    if started is not None:
        parts.append(_PROCESS % (started, cpu))
    parts += _families(engines or (engine(),), started)
    parts.append(_HTTP % (cpu * 10))
    return "".join(parts).encode()


def _families(engines: Iterable[dict[str, float | str]], created: float | None) -> list[str]:
    rows = [{**row, "created": created or 0.0} for row in engines]

    def family(name: str, kind: str, key: str, suffix: str = "", extra: str = "") -> str:
        lines = [f"# HELP vllm:{name} {name}", f"# TYPE vllm:{name} {kind}"]
        lines += [
            f'vllm:{name}{suffix}{{engine="{row["engine"]}",model_name="{row["model"]}"{extra}}}'
            f" {float(row[key])!r}"
            for row in rows
        ]
        return "\n".join(lines) + "\n"

    return [
        family("num_requests_running", "gauge", "running"),
        family("num_requests_waiting", "gauge", "waiting"),
        family("num_requests_waiting_by_reason", "gauge", "waiting", extra=',reason="capacity"'),
        family("engine_sleep_state", "gauge", "awake", extra=',sleep_state="awake"'),
        family("engine_sleep_state", "gauge", "kv", extra=',sleep_state="weights_offloaded"'),
        family("kv_cache_usage_perc", "gauge", "kv"),
        family("prompt_tokens", "counter", "prompt", "_total"),
        family("generation_tokens", "counter", "output", "_total"),
        family("iteration_tokens_total", "histogram", "steps", "_bucket", ',le="+Inf"'),
        family("iteration_tokens_total", "histogram", "steps", "_count"),
        family("iteration_tokens_total", "histogram", "tokens", "_sum"),
        *([family("iteration_tokens_total", "gauge", "created", "_created")] if created else []),
    ]
