"""What the metrics show of tokens: under the names of the OpenTelemetry conventions for generative
AI where one fits, as Prometheus writes them.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from gateway.chunks import Budget
from gateway.costs import Costs
from gateway.pairing import Kept, Pairs
from gateway.tally import Generation, Histogram, Tally

WHO = ("endpoint", "server", "role")

#: Where a number of tokens is from.
TOLD, COUNTED = "told", "counted"

_OPERATION = (
    *WHO,
    "gen_ai_operation_name",
    "gen_ai_provider_name",
    "gen_ai_response_model",
)


def generations(tally: Tally) -> Iterator[Metric]:
    """All that is known of what servers generated."""
    found = [
        ((*who, asked.operation, tally.providers.get(who[:2], ""), asked.model), generation)
        for who, series in list(tally.series.items())
        for asked, generation in list(series.generations.items())
    ]
    for family in (*_times(found), *_tokens(found)):
        family.samples = [_known(sample) for sample in family.samples]
        yield family


def _known(sample: Sample) -> Sample:
    """Without the labels of what is not known."""
    return sample._replace(labels={name: value for name, value in sample.labels.items() if value})


_Found = Sequence[tuple[tuple[str, ...], Generation]]


def _times(found: _Found) -> Iterator[Metric]:
    first = HistogramMetricFamily(
        "gen_ai_server_time_to_first_token_seconds",
        "From the head of a request to the first event of its stream with something generated.",
        labels=_OPERATION,
    )
    per_token = HistogramMetricFamily(
        "gen_ai_server_time_per_output_token_seconds",
        "Time for each output token after the first, the mean of a stream that came to its end.",
        labels=[*_OPERATION, "source"],
    )
    gaps = HistogramMetricFamily(
        "gen_ai_client_operation_time_per_output_chunk_seconds",
        "Between two events of a stream with something generated.",
        labels=_OPERATION,
    )
    whole = HistogramMetricFamily(
        "gen_ai_server_request_duration_seconds",
        "From the head of a request to the end of its answer, of those that asked a model.",
        labels=_OPERATION,
    )
    for labels, generation in found:
        add_histogram(first, labels, generation.first_token)
        add_histogram(gaps, labels, generation.gaps)
        add_histogram(whole, labels, generation.whole)
        add_histogram(per_token, (*labels, TOLD), generation.per_told)
        add_histogram(per_token, (*labels, COUNTED), generation.per_counted)
    yield from (first, per_token, gaps, whole)


def _tokens(found: _Found) -> Iterator[Metric]:
    usage = HistogramMetricFamily(
        "gen_ai_client_token_usage",
        "Tokens of each answer that came to its end.",
        labels=[*_OPERATION, "gen_ai_token_type", "source"],
    )
    tokens = CounterMetricFamily(
        "steady_gateway_tokens",
        "Tokens of prompts and answers, also of those that broke off.",
        labels=[*_OPERATION, "type", "source"],
    )
    unread = CounterMetricFamily(
        "steady_gateway_unread_answers",
        "Answers of which tokens are not known, or not all, by the reason.",
        labels=[*_OPERATION, "reason"],
    )
    failed = CounterMetricFamily(
        "steady_gateway_failed_streams",
        "Streams that began as a success and told of an error.",
        labels=_OPERATION,
    )
    for labels, generation in found:
        for kind, source, booked in (
            ("input", TOLD, generation.input),
            ("output", TOLD, generation.told),
            ("output", COUNTED, generation.counted),
        ):
            add_histogram(usage, (*labels, kind, source), booked.whole)
            tokens.add_metric([*labels, kind, source], booked.total)
        for reason, count in list(generation.unread.items()):
            unread.add_metric([*labels, reason], count)
        failed.add_metric(list(labels), generation.failed)
    yield from (usage, tokens, unread, failed)


def spending(costs: Costs, now: float) -> Iterator[Metric]:
    """What servers with a price have cost; ``now`` is of the monotonic clock."""
    price = GaugeMetricFamily(
        "steady_gateway_price_per_hour",
        "What a server costs an hour, by the fleet file.",
        labels=["server", "kind"],
    )
    cost = CounterMetricFamily(
        "steady_gateway_cost",
        "What a server has cost since this process began, whether it had work or not.",
        labels=["server", "kind"],
    )
    for (server, kind), per_hour in costs.prices.items():
        price.add_metric([server, kind], per_hour)
        cost.add_metric([server, kind], costs.of(per_hour, now))
    yield from (price, cost)


def paired(pairs: Iterable[Pairs], budget: Budget) -> Iterator[Metric]:
    samples = CounterMetricFamily(
        "steady_gateway_paired_samples",
        "Paired samples by what became of them.",
        labels=["endpoint", "result"],
    )
    for each in pairs:
        for result in Kept:
            samples.add_metric([each.endpoint, result], each.results[result])
    yield samples
    for name, value, what in (
        ("steady_gateway_paired_bytes", budget.retained, "hold now"),
        ("steady_gateway_paired_bytes_peak", budget.peak, "held at most"),
        ("steady_gateway_paired_bytes_limit", budget.limit, "may hold"),
    ):
        yield GaugeMetricFamily(name, f"Bytes that paired samples {what}.", value)


def add_histogram(
    family: HistogramMetricFamily, labels: Iterable[str], histogram: Histogram
) -> None:
    counts = list(histogram.counts)
    bounds = [str(float(bound)) for bound in histogram.bounds]
    total, buckets = 0, []
    for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    family.add_metric(list(labels), buckets, histogram.total)
