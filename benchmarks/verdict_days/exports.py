"""What real engines write on their metrics pages, and when: the difference decides who is fooled.

vLLM V1 writes its gauges after a step, and counts only steps that gave a request its output. V0
counts every step, and adds an empty sample about every 10 s, also while it hangs. SGLang writes its
gauges after a prefill batch, after every 40 steps of decoding, and when it has been idle for 30 s;
it counts the tokens of each step apart from those of finished requests. llama.cpp counts batches;
its token counters stand still through a whole request. ``more_exports`` has the other engines.
"""

from collections.abc import Callable

from benchmarks.verdict_days.core import Core, Halt

#: Seconds between two empty samples of V0.
EMPTY_SAMPLE = 10
#: Steps of decoding between two of SGLang's reports.
_REPORT_EVERY = 40
#: Seconds after which an idle SGLang writes its gauges.
_IDLE_REPORT = 30


class Gauges:
    """Running, waiting and cache use, as they were when the engine last wrote them.

    ``keeps_stale``: a version that does not write them when requests are aborted without a step.
    """

    def __init__(self, *, keeps_stale: bool = False) -> None:
        self.running = self.waiting = 0
        self.kv = 0.0
        self.keeps_stale = keeps_stale

    def write(self, core: Core) -> None:
        self.running, self.waiting, self.kv = len(core.running), len(core.waiting), core.kv

    def cut(self, steps: int, begin: float, span: float) -> int:
        del begin, span
        return steps

    def decoded(self, core: Core, steps: int) -> None:
        del steps
        self.write(core)

    def prefilled(self, core: Core) -> None:
        self.write(core)

    def comes(self, core: Core) -> None:
        """Before a request comes in; most gauges are not touched then."""

    def turned(self, core: Core) -> None:
        self.write(core)

    def looked_at(self, core: Core) -> None:
        """Before a page is written; most gauges are not touched then."""

    def aborted(self, core: Core) -> None:
        if not self.keeps_stale:
            self.write(core)


class SglangGauges(Gauges):
    def __init__(self, *, keeps_stale: bool = False) -> None:
        super().__init__(keeps_stale=keeps_stale)
        self._steps = 0

    def cut(self, steps: int, begin: float, span: float) -> int:
        """Up to the last report, whose gauges are those of its moment."""
        del begin, span
        over = (self._steps + steps) % _REPORT_EVERY
        return steps - over if over < steps else steps

    def decoded(self, core: Core, steps: int) -> None:
        self._steps += steps
        if self._steps % _REPORT_EVERY == 0:
            self.write(core)

    def aborted(self, core: Core) -> None:
        """Nothing, until it has been idle for a while."""

    def looked_at(self, core: Core) -> None:
        is_idle = core.halt is None and not core.in_flight
        if is_idle and core.now - core.worked_at >= _IDLE_REPORT and not self.keeps_stale:
            self.write(core)


class LlamaGauges(Gauges):
    """Its front end counts its slots itself, at every look."""

    def aborted(self, core: Core) -> None:
        self.write(core)


Export = Callable[[Core, Gauges, str, float], str]


def v1(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del now
    counts, who = core.counts, f'{{engine="{label}",model_name="m"}}'
    awake_if = f'{who[:-1]},sleep_state="awake"}}'
    awake = 0 if core.halt == "asleep" else 1
    return (
        f"vllm:num_requests_running{who} {gauges.running}.0\n"
        f"vllm:num_requests_waiting{who} {gauges.waiting}.0\n"
        f"vllm:engine_sleep_state{awake_if} {awake}.0\n"
        f"vllm:kv_cache_usage_perc{who} {gauges.kv!r}\n"
        f"vllm:prompt_tokens_total{who} {counts.prompt}.0\n"
        f"vllm:generation_tokens_total{who} {counts.output}.0\n"
        f"vllm:iteration_tokens_total_sum{who} {counts.step_tokens}.0\n"
        f"vllm:iteration_tokens_total_count{who} {counts.output_steps}.0\n"
    )


def v0(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del label
    counts, who = core.counts, '{model_name="m"}'
    empty = int(now // EMPTY_SAMPLE)
    return (
        f"vllm:num_requests_running{who} {gauges.running}.0\n"
        f"vllm:num_requests_swapped{who} 0.0\n"
        f"vllm:num_requests_waiting{who} {gauges.waiting}.0\n"
        f"vllm:gpu_cache_usage_perc{who} {gauges.kv!r}\n"
        f"vllm:prompt_tokens_total{who} {counts.read}.0\n"
        f"vllm:generation_tokens_total{who} {counts.output}.0\n"
        f"vllm:iteration_tokens_total_sum{who} {counts.all_tokens}.0\n"
        f"vllm:iteration_tokens_total_count{who} {counts.steps + empty}.0\n"
    )


def sglang(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del now
    counts = core.counts
    names = 'engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"'
    who = f'{{{names},dp_rank="{label}"}}' if label else f"{{{names}}}"
    by_mode = f"sglang:realtime_tokens_total{who[:-1]}"
    decode = counts.all_tokens - counts.read
    return (
        f"sglang:num_running_reqs{who} {gauges.running}.0\n"
        f"sglang:num_queue_reqs{who} {gauges.waiting}.0\n"
        f"sglang:token_usage{who} {gauges.kv!r}\n"
        f'{by_mode},mode="prefill_compute"}} {counts.read}.0\n'
        f'{by_mode},mode="decode"}} {decode}.0\n'
        f"sglang:prompt_tokens_total{who} {counts.finished_prompt}.0\n"
        f"sglang:generation_tokens_total{who} {counts.finished_output}.0\n"
    )


def llamacpp(core: Core, gauges: Gauges, label: str, now: float) -> str:
    del label, now
    counts = core.counts
    running, waiting = len(core.running), len(core.waiting)
    if core.halt in (Halt.FROZEN, Halt.PREFILL):
        # What comes to a loop that stands still is never taken in.
        waiting = gauges.waiting
    return (
        f"llamacpp:prompt_tokens_total {counts.finished_prompt}\n"
        f"llamacpp:tokens_predicted_total {counts.finished_output}\n"
        f"llamacpp:n_decode_total {counts.steps}\n"
        f"llamacpp:requests_processing {running}\n"
        f"llamacpp:requests_deferred {waiting}\n"
    )
