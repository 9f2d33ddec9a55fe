"""What ``/metrics`` of a gateway shows, in Prometheus' words.

The ``role`` keeps what is mirrored (``mirror``) and what is sent to one server by its own URL
(``direct``) out of production's figures.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from gateway.core import Core
from gateway.generation import WHO, add_histogram, generations, paired, spending
from gateway.mirror import Result
from gateway.mirroring import Mirrors
from gateway.routing import PRODUCTION


def restarts(count: int) -> CounterMetricFamily:
    return CounterMetricFamily(
        "steady_gateway_process_restarts",
        "Processes that were started anew, because one had ended.",
        value=count,
    )


class Metrics(Collector):
    """Read from any thread: all that is read are numbers that only grow, or are replaced."""

    def __init__(self, core: Core, mirrors: Mirrors) -> None:
        self._core = core
        self._mirrors = mirrors
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def families(self) -> list[Metric]:
        return list(self._registry.collect())

    def render(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type, as the ``Accept`` header wants it."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind

    def collect(self) -> Iterable[Metric]:
        yield from self._requests()
        yield from generations(self._core.tally)
        yield from spending(self._core.costs, self._core.sweeper.now)
        yield from self._present()
        yield from self._counters()
        yield from self._of_mirrors()
        yield GaugeMetricFamily("steady_gateway_processes", "Processes that serve now.", 1)
        yield restarts(0)

    def _requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "steady_gateway_requests",
            "Answers that were passed on, or of a mirror read, to their end.",
            labels=[*WHO, "status"],
        )
        first = HistogramMetricFamily(
            "steady_gateway_time_to_first_chunk_seconds",
            "From the head of a request to the first bytes of its answer's body.",
            labels=WHO,
        )
        whole = HistogramMetricFamily(
            "steady_gateway_request_duration_seconds",
            "From the head of a request to the end of its answer.",
            labels=WHO,
        )
        for who, series in list(self._core.tally.series.items()):
            for hundreds, count in sorted(series.statuses.items()):
                requests.add_metric([*who, f"{hundreds}xx"], count)
            add_histogram(first, who, series.first)
            add_histogram(whole, who, series.whole)
        yield from (requests, first, whole)

    def _present(self) -> Iterator[Metric]:
        core = self._core
        in_flight = GaugeMetricFamily(
            "steady_gateway_in_flight", "Requests that a server has now.", labels=["server"]
        )
        drained = GaugeMetricFamily(
            "steady_gateway_drained", "1 while a backend is sent nothing.", labels=["server"]
        )
        for name, backend in core.router.backends.items():
            in_flight.add_metric([name], backend.in_flight)
            drained.add_metric([name], backend.drained_until > core.sweeper.now)
        clients = GaugeMetricFamily(
            "steady_gateway_client_connections", "Open connections of clients.", len(core.clients)
        )
        weight = GaugeMetricFamily(
            "steady_gateway_weight",
            "The share of an endpoint's requests in flight that a backend is to have.",
            labels=["endpoint", "server"],
        )
        for route in core.router.routes():
            if route.role == PRODUCTION:
                for name, value in route.weights.items():
                    weight.add_metric([route.endpoint, name], value)
        yield from (in_flight, drained, weight, clients)

    def _counters(self) -> Iterator[Metric]:
        tally = self._core.tally
        faults = CounterMetricFamily(
            "steady_gateway_errors",
            "Requests that did not get the whole answer of a backend, by kind.",
            labels=[*WHO, "kind"],
        )
        for (who, kind), count in list(tally.faults.items()):
            faults.add_metric([*who, kind], count)
        moved = CounterMetricFamily(
            "steady_gateway_moved",
            "Requests that were sent to another backend before an answer began.",
            labels=["endpoint", "server"],
        )
        for (endpoint, server), count in list(tally.moved.items()):
            moved.add_metric([endpoint, server], count)
        yield from (faults, moved)

    def _of_mirrors(self) -> Iterator[Metric]:
        tally, budget = self._core.tally, self._mirrors.budget
        results = CounterMetricFamily(
            "steady_gateway_mirror_results",
            "Mirrored requests that ended, by what became of them.",
            labels=["endpoint", "candidate", "result"],
        )
        in_flight = GaugeMetricFamily(
            "steady_gateway_mirrors_in_flight",
            "Mirrored requests that a candidate has now.",
            labels=["endpoint", "candidate"],
        )
        sample = GaugeMetricFamily(
            "steady_gateway_sample_percent",
            "The share of requests that a candidate is sent, and the key by which it is taken.",
            labels=["endpoint", "candidate", "by"],
        )
        for endpoint, targets in self._mirrors.targets.items():
            for target in targets:
                at = [endpoint, target.name]
                in_flight.add_metric(at, target.in_flight)
                sample.add_metric([*at, self._mirrors.sampled_by(endpoint)], target.percent)
                for result in Result:
                    count = tally.results[endpoint, target.name, result]
                    results.add_metric([*at, result], count)
        unmirrored = CounterMetricFamily(
            "steady_gateway_unmirrored",
            "Requests to an endpoint with a sample that can't be mirrored, by the reason.",
            labels=["endpoint", "reason"],
        )
        for (endpoint, reason), count in list(tally.unmirrored.items()):
            unmirrored.add_metric([endpoint, reason], count)
        yield from (results, in_flight, sample, unmirrored)
        yield from paired(self._mirrors.pairs.values(), self._mirrors.paired)
        yield GaugeMetricFamily(
            "steady_gateway_mirror_bytes", "Bytes that mirrors retain now.", budget.retained
        )
        yield GaugeMetricFamily(
            "steady_gateway_mirror_bytes_peak", "Bytes that mirrors retained at most.", budget.peak
        )
        yield GaugeMetricFamily(
            "steady_gateway_mirror_bytes_limit", "Bytes that mirrors may retain.", budget.limit
        )
