"""NVIDIA Dynamo: a worker's system port, where the series of the engine beneath are passed on.

The worker is judged by that engine's own series. Dynamo adds what the engine's gauges may not show
yet, the requests that the worker has taken in, and how long the worker runs: where that falls, it
was started anew. A frontend's page tells of no engine, and is no worker's.
"""

from dataclasses import replace

from fleet.engines.profile import Profile, Series, Witness
from fleet.engines.sglang import SGLANG
from fleet.engines.trtllm import TRTLLM
from fleet.engines.vllm import VLLM

_UPTIME = Witness(
    "uptime", Series(("dynamo_component_uptime_seconds", "dynamo_component_system_uptime_seconds"))
)
_INFLIGHT = Series(
    ("dynamo_component_inflight_requests",),
    where=(("dynamo_endpoint", "generate"),),
    added=("dynamo_component", "dynamo_namespace", "model"),
)


def _over(engine: Profile) -> Profile:
    return replace(
        engine,
        name=f"dynamo/{engine.name}",
        open=(*engine.open, _INFLIGHT),
        counters=(*engine.counters, _UPTIME),
        path="/metrics",
        ranks=False,
    )


DYNAMO = Profile(name="dynamo", among=tuple(_over(each) for each in (VLLM, SGLANG, TRTLLM)))

#: Lines of a worker's page, whatever engine is beneath it.
DYNAMO_MARKS = ("dynamo_component_",)
