"""Figures of several processes as one."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.figures import (
    ADDED_UP_KINDS,
    ALIKE,
    Figures,
    lasting,
    packed,
    read,
    shown,
    together,
    unpacked,
)
from gateway.metrics import Metrics
from tests.parts.gateways import serving


def figures(count: float, gauge: float, started: float = 5) -> Figures:
    counter = CounterMetricFamily("steady_gateway_requests", "Requests.", labels=["server"])
    counter.add_metric(["gpu-1"], count)
    histogram = HistogramMetricFamily("seconds", "Times.", labels=["server"])
    histogram.add_metric(["gpu-1"], [("1.0", count), ("+Inf", count + 1)], sum_value=count / 2)
    families: list[Metric] = [counter, histogram]
    for name, value in (
        ("steady_gateway_in_flight", gauge),
        ("steady_gateway_weight", gauge),
        ("process_start_time_seconds", started),
    ):
        families.append(GaugeMetricFamily(name, "A gauge.", value))
    return read(families)


class _Page(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> list[Metric]:
        return shown(self._figures)


def page(figures: Figures) -> str:
    registry = CollectorRegistry()
    registry.register(_Page(figures))
    return generate_latest(registry).decode()


def test_counts_and_what_is_in_flight_are_added_up_and_what_is_alike_is_not() -> None:
    text = page(together([figures(2, 3, started=7), figures(5, 3, started=6)]))
    assert 'steady_gateway_requests_total{server="gpu-1"} 7.0\n' in text
    assert 'seconds_bucket{le="1.0",server="gpu-1"} 7.0\n' in text
    assert 'seconds_bucket{le="+Inf",server="gpu-1"} 9.0\n' in text
    assert 'seconds_count{server="gpu-1"} 9.0\n' in text
    assert 'seconds_sum{server="gpu-1"} 3.5\n' in text
    assert "steady_gateway_in_flight 6.0\n" in text
    assert "steady_gateway_weight 3.0\n" in text
    assert "process_start_time_seconds 6.0\n" in text


def test_of_a_process_that_has_ended_counts_last_and_gauges_do_not() -> None:
    assert set(lasting(figures(2, 3))) == {"steady_gateway_requests", "seconds"}


def test_what_only_one_has_is_in_the_sum() -> None:
    assert together([{}, figures(2, 3)]) == figures(2, 3)


def test_a_sum_changes_none_of_its_parts() -> None:
    part = figures(2, 3)
    together([part, figures(5, 4)])
    assert part == figures(2, 3)


def test_they_pass_from_process_to_process_unchanged() -> None:
    assert unpacked(packed(figures(2, 3))) == figures(2, 3)


#: Of what all processes have now, in all or of each.
ADDED_UP = {
    "steady_gateway_client_connections",
    "steady_gateway_in_flight",
    "steady_gateway_mirror_bytes",
    "steady_gateway_mirror_bytes_limit",
    "steady_gateway_mirror_bytes_peak",
    "steady_gateway_mirrors_in_flight",
    "steady_gateway_paired_bytes",
    "steady_gateway_paired_bytes_limit",
    "steady_gateway_paired_bytes_peak",
    "steady_gateway_processes",
}


@pytest.mark.anyio
async def test_of_each_gauge_it_is_known_whether_it_is_added_up() -> None:
    async with serving("http://127.0.0.1:1") as gateway:
        families = Metrics(gateway.core, gateway.gateway.mirrors).families()
    own = {each.name for each in families if each.type not in ADDED_UP_KINDS}
    assert {name for name in own if name.startswith("steady_")} == ADDED_UP | ALIKE
