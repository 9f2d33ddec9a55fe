"""Figures of several processes as one: what each of them shows, and their sum.

A process's figures pass as plain lists, since a page would have to be parsed anew.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from prometheus_client.metrics_core import Metric

#: Each process says the same of these.
ALIKE = frozenset(
    {
        "steady_gateway_drained",
        "steady_gateway_weight",
        "steady_gateway_sample_percent",
        "steady_gateway_price_per_hour",
    }
)
#: Of these the first counts.
_FIRST = "process_start_time_seconds"
ADDED_UP_KINDS = ("counter", "histogram")

_Key = tuple[str, tuple[tuple[str, str], ...]]


class Family(NamedTuple):
    """One metric with its samples, by name and labels."""

    name: str
    kind: str
    text: str
    samples: dict[_Key, float]


Figures = dict[str, Family]


def read(families: Iterable[Metric]) -> Figures:
    found = {}
    for each in families:
        samples = {(one.name, tuple(one.labels.items())): float(one.value) for one in each.samples}
        found[each.name] = Family(each.name, each.type, each.documentation, samples)
    return found


def shown(figures: Figures) -> list[Metric]:
    found = []
    for each in figures.values():
        metric = Metric(each.name, each.text, each.kind)
        for (name, labels), value in each.samples.items():
            metric.add_sample(name, dict(labels), value)
        found.append(metric)
    return found


def packed(figures: Figures) -> list[Any]:
    """What JSON can carry."""
    return [
        [name, kind, text, [[what, labels, value] for (what, labels), value in samples.items()]]
        for name, kind, text, samples in figures.values()
    ]


def unpacked(said: Iterable[Sequence[Any]]) -> Figures:
    return {
        name: Family(
            name,
            kind,
            text,
            {
                (what, tuple((key, worth) for key, worth in labels)): value
                for what, labels, value in samples
            },
        )
        for name, kind, text, samples in said
    }


def lasting(figures: Figures) -> Figures:
    """What a process that has ended still counts for: what it counted, and not what it had."""
    return {name: each for name, each in figures.items() if each.kind in ADDED_UP_KINDS}


def together(parts: Iterable[Figures]) -> Figures:
    """The sum; of what each says alike, one; of start times the first."""
    total: Figures = {}
    for figures in parts:
        for name, family in figures.items():
            known = total.get(name)
            if known is None:
                total[name] = family._replace(samples=dict(family.samples))
                continue
            join = _join(name)
            for key, value in family.samples.items():
                before = known.samples.get(key)
                known.samples[key] = value if before is None else join(before, value)
    return total


def _join(name: str) -> Any:
    if name == _FIRST:
        return min
    return max if name in ALIKE else _sum


def _sum(one: float, other: float) -> float:
    return one + other
