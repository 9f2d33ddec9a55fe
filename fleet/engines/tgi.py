"""Text Generation Inference 3.

Why these witnesses. The router counts each call to its shards before the call, and again when it
has returned, as a success or a failure. So the successes move with every prefill and every decode
step, and what was called and has not returned is in flight, also in a first prefill, where the size
of the batch still says 0. A failure is an end of a call as well, and no progress.

IBM's fork calls a decode step ``next_token``. Nothing on the page says when the process began.
"""

from datetime import timedelta

from fleet.engines.profile import Profile, Series, Witness

TGI = Profile(
    name="tgi",
    in_flight=(Series(("tgi_batch_current_size",)),),
    waiting=(Series(("tgi_queue_size",)),),
    witnesses=(
        Witness(
            "prefills", Series(("tgi_batch_inference_success",), where=(("method", "prefill"),))
        ),
        Witness(
            "decodes",
            Series(("tgi_batch_inference_success",), where=(("method", "decode", "next_token"),)),
        ),
        Witness(
            "done", Series(("tgi_request_generated_tokens_count",)), window=timedelta(minutes=2)
        ),
    ),
    steps=Series(("tgi_batch_inference_success",), added=("method",)),
    counters=(
        Witness("calls", Series(("tgi_batch_inference_count",), added=("method",))),
        Witness("requests", Series(("tgi_request_count",))),
    ),
    open=(
        Series(
            ("tgi_batch_inference_count",),
            added=("method", "reason"),
            less=("tgi_batch_inference_success", "tgi_batch_inference_failure"),
        ),
    ),
    marks=("tgi_",),
)
