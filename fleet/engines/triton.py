"""Triton Inference Server, with the TensorRT-LLM backend or another, on its metrics port.

Why these witnesses. ``iteration_counter`` of the TensorRT-LLM backend counts its steps, though it
is written as a gauge. Triton's own ``nv_inference_exec_count`` moves when an execution ends, which
for a model that streams is the end of a request: hence its window. It is all that other backends
have.

Each model of the server is judged by itself. An ensemble does not work itself, and is never in
flight. ``timestamp`` is a date, and no start.
"""

from datetime import timedelta

from fleet.engines.profile import Profile, Series, Witness


def _requests(kind: str) -> Series:
    return Series(("nv_trt_llm_request_metrics",), where=(("request_type", kind),))


TRITON = Profile(
    name="triton",
    engine_labels=("model", "version"),
    in_flight=(_requests("active"),),
    waiting=(_requests("waiting"), Series(("nv_inference_pending_request_count",))),
    witnesses=(
        Witness(
            "iterations",
            Series(
                ("nv_trt_llm_general_metrics", "nv_trt_llm_general_statistics"),
                where=(("general_type", "iteration_counter"),),
            ),
        ),
        Witness("executions", Series(("nv_inference_exec_count",)), window=timedelta(minutes=2)),
    ),
    steps=Series(
        ("nv_trt_llm_general_metrics", "nv_trt_llm_general_statistics"),
        where=(("general_type", "iteration_counter"),),
    ),
    counters=(
        Witness("done", Series(("nv_inference_request_success",))),
        Witness("failed", Series(("nv_inference_request_failure",), added=("reason",))),
    ),
    marks=("nv_trt_llm_", "nv_inference_"),
)
