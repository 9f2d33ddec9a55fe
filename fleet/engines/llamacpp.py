"""llama.cpp's ``llama-server``, started with ``--metrics``.

Why this witness. ``n_decode_total`` moves with every decode step, and in a long prompt with every
batch. ``prompt_tokens_total`` and ``tokens_predicted_total`` stand still for the whole of a
request, so they prove a restart where they fall, and nothing else.

One batch of a long prompt takes ten seconds on a small machine, and minutes with a large model on
one without a GPU; the counter stands still meanwhile. Hence the window, and a longer one where the
page says that prompts are read slowly.

From December 2025 to August 2026 a look at the metrics loaded a model that had been put away
(``--sleep-idle-seconds``); ``/props`` never did.

The page carries no start of the process. Its answer does, in a header whose unit has changed over
time: it is compared, and never read as a time.
"""

from datetime import timedelta

from fleet.engines.profile import Profile, Series, Witness, named

_PREFIXES = ("llamacpp:", "llamacpp_")


def _series(*stems: str) -> Series:
    return Series(named(_PREFIXES, *stems))


LLAMACPP = Profile(
    name="llamacpp",
    engine_labels=("model", "model_name"),
    in_flight=(_series("requests_processing"),),
    waiting=(_series("requests_deferred"),),
    witnesses=(Witness("decodes", _series("n_decode_total")),),
    steps=_series("n_decode_total"),
    counters=(
        Witness("prompt", _series("prompt_tokens_total")),
        Witness("prompt_time", _series("prompt_seconds_total")),
        Witness("output", _series("tokens_predicted_total")),
    ),
    window=timedelta(seconds=60),
    batch=2048,
    asleep_at=("/props", "is_sleeping"),
    start_header="Process-Start-Time-Unix",
    marks=_PREFIXES,
)
