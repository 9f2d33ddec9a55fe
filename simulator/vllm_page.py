"""The metrics page of a simulated vLLM server, under the names and in the form of vLLM 0.32."""

from collections.abc import Callable, Mapping, Sequence

from simulator.vllm_core import Core

_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

#: Name, kind, suffix and value of what each engine exports.
_FAMILIES: Sequence[tuple[str, str, str, Callable[[Core], float]]] = (
    ("num_requests_running", "gauge", "", lambda core: core.shown.running),
    ("num_requests_waiting", "gauge", "", lambda core: core.shown.waiting),
    ("kv_cache_usage_perc", "gauge", "", lambda core: core.shown.kv),
    ("estimated_flops_per_gpu", "counter", "_total", lambda core: core.shown.flops),
    ("prompt_tokens", "counter", "_total", lambda core: core.shown.prompt),
    ("generation_tokens", "counter", "_total", lambda core: core.shown.output),
    ("num_preemptions", "counter", "_total", lambda _: 0),
)


def page(  # noqa: PLR0913 - it is all that a page says
    cores: Sequence[Core],
    model: str,
    *,
    started: float | None,
    cpu: float,
    requests: Mapping[str, int],
    mfu: bool = False,
    old: bool = False,
) -> str:
    """``started`` none: several API servers, whose page says nothing of the process. ``mfu`` adds
    the FLOPs counter, which vLLM has only behind a flag. An ``old`` version does not say who
    sleeps.
    """
    lines: list[str] = []
    if started is not None:
        lines += _family("process_start_time_seconds", "gauge", [("", started)])
        lines += _family("process_cpu_seconds_total", "counter", [("", cpu)])
    labels = [f'engine="{number}",model_name="{model}"' for number in range(len(cores))]
    for name, kind, suffix, value in _FAMILIES:
        if name.startswith("estimated_") and not mfu:
            continue
        rows = [(each, value(core)) for each, core in zip(labels, cores, strict=True)]
        lines += _family(f"vllm:{name}", kind, rows, suffix)
    lines += _sleep(cores, labels) if not old else []
    lines += _iterations(cores, labels)
    rows = [(f'handler="{path}",method="POST",status="2xx"', n) for path, n in requests.items()]
    lines += _family("http_requests", "counter", rows, "_total")
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, rows: Sequence[tuple[str, float]], suffix: str = "") -> list[str]:
    head = [f"# HELP {name}{suffix} {name}.", f"# TYPE {name}{suffix} {kind}"]
    return head + [f"{name}{suffix}{_braced(labels)} {float(value)!r}" for labels, value in rows]


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _sleep(cores: Sequence[Core], labels: Sequence[str]) -> list[str]:
    rows: list[tuple[str, float]] = []
    for core, each in zip(cores, labels, strict=True):
        rows.append((f'{each},sleep_state="awake"', not core.asleep))
        rows.append((f'{each},sleep_state="weights_offloaded"', core.asleep))
        rows.append((f'{each},sleep_state="discard_all"', 0))
    return _family("vllm:engine_sleep_state", "gauge", rows)


def _iterations(cores: Sequence[Core], labels: Sequence[str]) -> list[str]:
    name = "vllm:iteration_tokens_total"
    lines = [
        f"# HELP {name} Histogram of number of tokens per engine_step.",
        f"# TYPE {name} histogram",
    ]
    for core, each in zip(cores, labels, strict=True):
        shown = core.shown
        lines += [f'{name}_bucket{{{each},le="{bound}.0"}} {shown.steps}.0' for bound in _BOUNDS]
        lines.append(f'{name}_bucket{{{each},le="+Inf"}} {shown.steps}.0')
        lines.append(f"{name}_count{{{each}}} {shown.steps}.0")
        lines.append(f"{name}_sum{{{each}}} {shown.step_tokens}.0")
    return lines
