"""What the other engines write on their pages, and when. See ``exports``.

Text Generation Inference: its router counts a call to the shards before it is made, and a success
when it has returned; the size of the batch is written after a call, the queue at once. The shards
may stand still, the router never does.

Triton with TensorRT-LLM: gauges and the counter of iterations after each iteration, executions and
requests when a request ends. Beside the model there are a tokenizer and the ensemble.

trtllm-serve: the statistics of iterations are taken out of the engine when a request ends, and only
then: its gauges are as old as that. Tokens are counted for each request that ended.

NIM 1.x: vLLM's names without a prefix, tokens with every iteration, and no counter of iterations.

LMDeploy: the API server writes the gauges every 10 s, whatever the engine does. Each output that a
request is given counts as an iteration, so a chunk of a prompt does not.
"""

import math
from dataclasses import replace

from benchmarks.verdict_days.core import Core, Counts, Halt
from benchmarks.verdict_days.exports import Gauges

_BLOCK = 16
#: Seconds between two times that LMDeploy writes its gauges.
_WRITE_EVERY = 10


class TgiGauges(Gauges):
    def __init__(self, *, keeps_stale: bool = False) -> None:
        super().__init__(keeps_stale=keeps_stale)
        self.prefills = 0

    def prefilled(self, core: Core) -> None:
        self.prefills += 1
        self.write(core)

    def turned(self, core: Core) -> None:
        """Nothing: the batch is written after a call."""


class TritonGauges(Gauges):
    def __init__(self, *, keeps_stale: bool = False) -> None:
        super().__init__(keeps_stale=keeps_stale)
        self.taken = 0

    def looked_at(self, core: Core) -> None:
        """Its tokenizer has worked on whatever came."""
        self.taken = max(self.taken, core.counts.finished + core.in_flight)


class TrtllmGauges(Gauges):
    """``seen`` are the counts when a request last ended."""

    def __init__(self, *, keeps_stale: bool = False) -> None:
        super().__init__(keeps_stale=keeps_stale)
        self.seen = Counts()
        self.used = 0
        self.prefills = self._prefills = 0

    def write(self, core: Core) -> None:
        if core.counts.finished > self.seen.finished:
            super().write(core)
            self.seen = replace(core.counts)
            self.used = sum(each.blocks for each in core.running)
            self.prefills = self._prefills

    def prefilled(self, core: Core) -> None:
        self._prefills += 1
        self.write(core)


class LmdeployGauges(Gauges):
    """``routed`` is what its API server has handed to the engine."""

    def __init__(self, *, keeps_stale: bool = False) -> None:
        super().__init__(keeps_stale=keeps_stale)
        self.routed = 0
        self._written = 0.0

    def cut(self, steps: int, begin: float, span: float) -> int:
        """Up to the first that ends when it is time to write."""
        due = self._written + _WRITE_EVERY - begin
        return max(1, min(steps, math.ceil(due / span - 1e-9)))

    def write(self, core: Core) -> None:
        if core.now < self._written + _WRITE_EVERY:
            return
        self._written = core.now // _WRITE_EVERY * _WRITE_EVERY
        super().write(core)
        self.routed = core.in_flight

    def comes(self, core: Core) -> None:
        """What was due by now was written without it."""
        self.write(core)

    def looked_at(self, core: Core) -> None:
        self.write(core)


def tgi(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del label, now
    assert isinstance(gauges, TgiGauges)
    counts, waiting = core.counts, len(core.waiting)
    decodes = counts.steps - gauges.prefills
    is_new = not core.running and waiting > 0 and core.halt is not Halt.ADMISSION
    prefilling = int(is_new or any(each.read < each.prompt for each in core.running))
    decoding = int(bool(core.running) and not prefilling)
    return (
        f"tgi_queue_size {waiting - is_new}\n"
        f"tgi_batch_current_size {gauges.running}\n"
        f'tgi_batch_inference_count{{method="prefill"}} {gauges.prefills + prefilling}\n'
        f'tgi_batch_inference_success{{method="prefill"}} {gauges.prefills}\n'
        f'tgi_batch_inference_count{{method="decode"}} {decodes + decoding}\n'
        f'tgi_batch_inference_success{{method="decode"}} {decodes}\n'
        f"tgi_request_generated_tokens_sum {counts.finished_output}\n"
        f"tgi_request_generated_tokens_count {counts.finished}\n"
    )


def triton(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del label, now
    assert isinstance(gauges, TritonGauges)
    counts, model = core.counts, 'model="tensorrt_llm",version="1"'
    tokenizer, ensemble = (f'model="{name}",version="1"' for name in ("preprocessing", "ensemble"))
    request, general = "nv_trt_llm_request_metrics", "nv_trt_llm_general_metrics"
    return (
        f"nv_inference_request_success{{{model}}} {counts.finished}\n"
        f"nv_inference_request_success{{{tokenizer}}} {gauges.taken}\n"
        f"nv_inference_request_success{{{ensemble}}} {counts.finished}\n"
        f"nv_inference_exec_count{{{model}}} {counts.finished}\n"
        f"nv_inference_exec_count{{{tokenizer}}} {gauges.taken}\n"
        f"nv_inference_exec_count{{{ensemble}}} 0\n"
        f"nv_inference_pending_request_count{{{model}}} 0\n"
        f"nv_inference_pending_request_count{{{tokenizer}}} 0\n"
        f'{request}{{{model},request_type="active"}} {gauges.running}\n'
        f'{request}{{{model},request_type="scheduled"}} {gauges.running}\n'
        f'{request}{{{model},request_type="waiting"}} {gauges.waiting}\n'
        f'{request}{{{model},request_type="max"}} {core.shape.slots}\n'
        f'{general}{{{model},general_type="iteration_counter"}} {counts.steps}\n'
        f'{general}{{{model},general_type="timestamp"}} {1_790_000_000 + int(core.worked_at)}\n'
    )


def trtllm(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del label, now
    assert isinstance(gauges, TrtllmGauges)
    seen, who = gauges.seen, '{engine_type="pytorch",model_name="m"}'
    ended = '{engine_type="pytorch",finished_reason="stop",model_name="m"}'
    # Whatever an iteration takes, the next one takes a little more or less.
    latency = core.shape.step + seen.steps % 997 * 1e-6
    return (
        f"trtllm_request_success_total{ended} {seen.finished}.0\n"
        f"trtllm_prompt_tokens_total{who} {seen.finished_prompt}.0\n"
        f"trtllm_generation_tokens_total{who} {seen.finished_output}.0\n"
        f"trtllm_kv_cache_iter_missed_blocks_total{who} {seen.read // _BLOCK}.0\n"
        f"trtllm_kv_cache_gen_alloc_blocks_total{who} {seen.output // _BLOCK}.0\n"
        f"trtllm_num_requests_running{who} {gauges.running}.0\n"
        f"trtllm_num_requests_waiting{who} {gauges.waiting}.0\n"
        f"trtllm_num_requests_completed_total{who} {seen.finished}.0\n"
        f"trtllm_iteration_latency_seconds{who} {latency!r}\n"
        f"trtllm_kv_cache_used_blocks{who} {gauges.used}.0\n"
        f"trtllm_kv_cache_utilization{who} {gauges.kv!r}\n"
        f"trtllm_prefill_batch_tokens_count{who} {gauges.prefills}.0\n"
    )


def nim(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del label, now
    counts, who = core.counts, '{model_name="m"}'
    return (
        f"num_requests_running{who} {gauges.running}.0\n"
        f"num_requests_waiting{who} {gauges.waiting}.0\n"
        f"num_request_max{who} {core.shape.slots}.0\n"
        f"gpu_cache_usage_perc{who} {gauges.kv!r}\n"
        f"prompt_tokens_total{who} {counts.prompt}.0\n"
        f"generation_tokens_total{who} {counts.output}.0\n"
        f"request_success_total{who} {counts.finished}.0\n"
    )


def lmdeploy(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del now
    assert isinstance(gauges, LmdeployGauges)
    counts, who = core.counts, f'{{engine="{label}",model_name="m"}}'
    return (
        f"lmdeploy:num_api_requests_routed{who} {gauges.routed}.0\n"
        f"lmdeploy:num_api_requests_waiting{who} 0.0\n"
        f"lmdeploy:num_requests_running{who} {gauges.running}.0\n"
        f"lmdeploy:num_requests_waiting{who} {gauges.waiting}.0\n"
        f"lmdeploy:gpu_cache_usage_perc{who} {gauges.kv!r}\n"
        f"lmdeploy:iteration_tokens_total_count{who} {counts.output}.0\n"
        f"lmdeploy:iteration_tokens_total_sum{who} {counts.prompt + counts.output}.0\n"
        f"lmdeploy:prompt_tokens_total{who} {counts.prompt}.0\n"
        f"lmdeploy:generation_tokens_total{who} {counts.output}.0\n"
    )
