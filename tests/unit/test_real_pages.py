"""Pages that real engines served while it was known what they did.

vLLM 0.32.0 and llama.cpp b10434, on the CPU, with a tiny model: from ``make test-engines``. Triton
as nvidia-pytriton 0.7.0 brings it, with its Python backend, and a worker of Dynamo 1.6.1 without an
engine: by hand.
"""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from fleet.engines.judge import find
from fleet.engines.page import read_page
from fleet.engines.profiles import PROFILES, recognise
from fleet.engines.reading import EngineReading, Page
from fleet.engines.sighting import Sighting, compare
from fleet.engines.windows import longest_window
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict

PAGES = Path(__file__).parents[1] / "pages"
AT = datetime(2026, 11, 30, 17, 30, tzinfo=UTC)


def read(name: str, kind: str = "vllm") -> EngineReading:
    reading, wrong = read_page((PAGES / f"{name}.prom").read_bytes(), PROFILES[kind])
    assert (reading.page, wrong) == (Page.OK, "")
    return reading


def judged(now: str, before: str | None = None, kind: str = "vllm") -> Verdict:
    last = Sighting.of(read(before, kind)) if before is not None else None
    reading = Reading(server="gpu-1", at=AT, engine=read(now, kind))
    return find(reading, last, Policy()).verdict


def test_every_page_that_the_tests_of_real_engines_save_is_kept() -> None:
    engines = PAGES.parent / "engines"
    texts = [path.read_text() for path in sorted(engines.glob("test_*.py"))]
    saved = {name for text in texts for name in re.findall(r"\.page\(\"([\w-]+)\"\)", text)}
    kept = {path.stem for path in PAGES.glob("*.prom")}
    assert saved == {name for name in kept if not name.startswith(("triton-", "dynamo-"))}


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.prom")), ids=lambda path: str(path.stem))
def test_each_page_is_recognised_as_its_engine(path: Path) -> None:
    known = recognise(path.read_bytes())
    if path.stem == "vllm-without-statistics" or path.stem.startswith("dynamo-"):
        assert known is None
    else:
        assert known is not None
        assert known.name == path.stem.partition("-")[0]


def test_idle_and_busy_pages_say_so() -> None:
    assert judged("vllm-idle") is Verdict.IDLE
    assert judged("vllm-busy", "vllm-idle") is Verdict.BUSY
    assert judged("llamacpp-idle", kind="llamacpp") is Verdict.IDLE
    assert judged("llamacpp-busy", kind="llamacpp") is Verdict.BUSY
    deferred = read("llamacpp-deferred", "llamacpp").engines[0]
    assert (deferred.running, deferred.waiting > 0) == (2, True)


def test_triton_without_tensorrt_llm_is_judged_by_its_queue_and_its_executions() -> None:
    assert judged("triton-idle", kind="triton") is Verdict.IDLE
    assert judged("triton-busy", "triton-idle", kind="triton") is Verdict.BUSY
    assert judged("triton-stuck-2", "triton-stuck-1", kind="triton") is Verdict.SUSPECT
    [stuck] = read("triton-stuck-2", "triton").engines
    # Of the 12 requests that were sent it counts the 11 that wait, and not the one that hangs.
    assert (stuck.label, stuck.waiting, stuck.witnesses) == ("m", 11, {"executions": 11})
    assert longest_window(read("triton-stuck-2", "triton")) == timedelta(minutes=2)


def test_what_a_dynamo_worker_has_taken_in_is_work_where_its_engine_shows_none() -> None:
    def over_vllm(worker: str) -> EngineReading:
        texts = [(PAGES / f"{name}.prom").read_bytes() for name in (worker, "vllm-unresponsive")]
        reading, _ = read_page(b"".join(texts), PROFILES["dynamo"])
        assert reading.profile == "dynamo/vllm"
        return reading

    idle, busy = over_vllm("dynamo-idle"), over_vllm("dynamo-busy")
    assert ([each.open for each in idle.engines], idle.in_flight) == ([0], False)
    assert ([each.open for each in busy.engines], busy.in_flight) == ([2], True)
    # How long it has been up falls where it is started anew.
    assert compare(busy, Sighting.of(idle)).restarted == ""
    assert "uptime" in compare(idle, Sighting.of(busy)).restarted


def test_of_a_llamacpp_whose_decoding_stopped_nothing_moves() -> None:
    assert judged("llamacpp-stuck-2", "llamacpp-stuck-1", "llamacpp") is Verdict.SUSPECT
    unresponsive = read("llamacpp-unresponsive", "llamacpp").engines[0]
    # It counts what its front end has taken in: the request that was not answered.
    assert unresponsive.in_flight


def test_of_a_stopped_engine_nothing_moves_though_its_process_does() -> None:
    assert judged("vllm-stuck-2", "vllm-stuck-1") is Verdict.SUSPECT
    cpu = [
        line
        for name in ("vllm-stuck-1", "vllm-stuck-2")
        for line in (PAGES / f"{name}.prom").read_text().splitlines()
        if line.startswith("process_cpu_seconds_total")
    ]
    assert cpu[0] != cpu[1]


def test_while_a_long_prompt_is_read_the_kv_cache_is_the_only_witness_that_moves() -> None:
    before, now = (read(f"vllm-prefill-{at}").engines[0] for at in (1, 2))
    moved = {name for name, value in now.witnesses.items() if value != before.witnesses[name]}
    assert moved == {"kv"}
    assert before.steps == now.steps
    assert judged("vllm-prefill-2", "vllm-prefill-1") is Verdict.BUSY


def test_stopped_while_idle_its_gauges_stay_at_zero_with_a_request_in_its_queue() -> None:
    assert judged("vllm-unresponsive") is Verdict.IDLE


def test_of_two_ranks_the_one_that_is_stopped_is_told_from_the_other() -> None:
    before, now = read("vllm-two-ranks-busy"), read("vllm-two-ranks-one-stuck")
    assert [engine.label for engine in now.engines] == ["0", "1"]
    change = compare(now, Sighting.of(now))
    assert "0" in [engine.label for engine in change.still]
    moved = compare(now, Sighting.of(before))
    assert (moved.known, moved.restarted) == (True, "")


def test_asleep_it_says_so_and_paused_it_does_not() -> None:
    assert judged("vllm-asleep") is Verdict.ASLEEP
    assert judged("vllm-paused", "vllm-paused") is Verdict.SUSPECT


def test_a_server_never_seems_to_be_started_anew_while_it_is_not() -> None:
    days = ["vllm-idle", "vllm-busy", "vllm-stuck-1", "vllm-stuck-2", "vllm-unresponsive"]
    for before, now in pairwise(days):
        change = compare(read(now), Sighting.of(read(before)))
        assert (change.known, change.restarted) == (True, "")
