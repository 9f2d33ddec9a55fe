"""Which engine a page is of, by the lines of its own that begin as no other engine's do."""

from typing import get_args

import pytest

from fleet.engine_sources import EngineSource
from fleet.engines.page import read_page
from fleet.engines.profiles import PROFILES, profile_named, recognise
from fleet.engines.reading import Page

_LINES = {
    "vllm": b'vllm:num_requests_running{engine="0",model_name="m"} 1',
    "sglang": b'sglang:num_running_reqs{model_name="m"} 1',
    "llamacpp": b"llamacpp:requests_processing 1",
    "tgi": b"tgi_queue_size 1",
    "triton": b'nv_inference_exec_count{model="m",version="1"} 1',
    "trtllm": b'trtllm_num_requests_running{model_name="m"} 1',
    "nim/1.x": b'num_requests_running{model_name="m"} 1',
    "lmdeploy": b'lmdeploy:num_requests_running{engine="0",model_name="m"} 1',
}


@pytest.mark.parametrize("name", _LINES)
def test_an_engine_is_known_by_its_own_lines(name: str) -> None:
    first = recognise(_LINES[name] + b"\n")
    later = recognise(b"process_cpu_seconds_total 4\n" + _LINES[name] + b"\n")
    assert first is not None
    assert (first.name, later) == (name, first)
    assert profile_named(name) is first


def test_what_no_known_engine_writes_is_of_none() -> None:
    assert recognise(b"# HELP vllm:x y\nmy_vllm:x 1\nprocess_cpu_seconds_total 4\n") is None


def test_every_kind_of_source_has_a_profile() -> None:
    assert set(get_args(EngineSource.model_fields["kind"].annotation)) == set(PROFILES)


def test_a_kind_that_is_none_says_whose_page_it_is() -> None:
    seen, said = read_page(_LINES["sglang"], PROFILES["vllm"])
    assert seen.page is Page.BARE
    assert 'kind = "sglang"' in said


def test_a_source_that_names_no_engine_reads_the_one_that_it_finds() -> None:
    page = b'tgi_batch_current_size 2\ntgi_batch_inference_success{method="decode"} 7\n'
    seen, _ = read_page(page, PROFILES["engine"])
    assert (seen.profile, seen.engines[0].running) == ("tgi", 2)
    bare, said = read_page(b"process_cpu_seconds_total 4\n", PROFILES["engine"])
    assert (bare.page, "no engine that is known" in said) == (Page.BARE, True)
