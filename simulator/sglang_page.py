"""The same engines on a page of SGLang's: its names, and what newer versions have beside them."""

from collections.abc import Sequence

from simulator.vllm_core import Core


def sglang_page(cores: Sequence[Core], model: str, *, old: bool) -> str:
    """An ``old`` version is one up to 0.5.9."""
    lines: list[str] = []
    for number, core in enumerate(cores):
        shown = core.shown
        labels = f'dp_rank="{number}",engine_type="unified",model_name="{model}"'
        labels += ',pp_rank="0",tp_rank="0"'
        lines += [
            f"sglang:num_running_reqs{{{labels}}} {float(shown.running)}",
            f"sglang:num_queue_reqs{{{labels}}} {float(shown.waiting)}",
            f"sglang:token_usage{{{labels}}} {shown.kv!r}",
            f'sglang:realtime_tokens_total{{{labels},mode="decode"}} {float(shown.output)}',
            f'sglang:realtime_tokens_total{{{labels},mode="prefill_compute"}} {shown.flops!r}',
        ]
        if not old:
            lines.append(f"sglang:kv_used_tokens{{{labels}}} 0.0")
    if not old:
        lines.append('sglang:http_requests_active{endpoint="/metrics",method="GET"} 1.0')
    return "\n".join(lines) + "\n"
