"""How fast an engine's metrics page is read, beside the parser of prometheus_client.

    .venv/bin/python -m benchmarks.parser [--quick] [--json]

Both read the same pages in turn in this process, each of them whole: from the bytes that came over
the wire to what is judged, and from the same bytes to the samples. Times are CPU time, the middle
of many rounds. The ratio that counts is that of the page on which it is worst.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.vllm_pages import vllm_page
from fleet.engines.page import read_page
from fleet.engines.reading import Page
from fleet.engines.vllm import VLLM

#: Engines of a page: about 50, 100 and 200 KB.
_ENGINES = (1, 2, 5)
_ROUNDS, _QUICK_ROUNDS = 60, 12
#: Reads in one measurement, since a single one is near what the clock can tell.
_AT_ONCE = 10


@dataclass(frozen=True)
class Measured:
    """One page; times are in µs a page."""

    kilobytes: float
    engines: int
    samples: int
    steady_us: float
    prometheus_client_us: float
    ratio: float


def measure(engines: int, rounds: int) -> Measured:
    page = vllm_page(engines)
    reading, _ = read_page(page, VLLM)
    assert reading.page is Page.OK
    assert len(reading.engines) == engines
    samples = _parse(page)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_micros(lambda: read_page(page, VLLM), _AT_ONCE))
        theirs.append(_micros(lambda: _parse(page), 1))
    own, other = statistics.median(ours), statistics.median(theirs)
    return Measured(
        kilobytes=round(len(page) / 1000, 1),
        engines=engines,
        samples=samples,
        steady_us=round(own, 1),
        prometheus_client_us=round(other, 1),
        ratio=round(other / own, 1),
    )


def _parse(page: bytes) -> int:
    return sum(len(family.samples) for family in text_string_to_metric_families(page.decode()))


def _micros(work: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    rounds = _QUICK_ROUNDS if given.quick else _ROUNDS
    pages = [measure(engines, rounds) for engines in _ENGINES]
    ratio = min(each.ratio for each in pages)
    if given.json:
        result = {
            "ratio_to_prometheus_client": ratio,
            "rounds": rounds,
            "pages": [asdict(each) for each in pages],
        }
        print(json.dumps(result, indent=2))
        return
    print(f"{'page':>9} {'samples':>8} {'steady':>10} {'prometheus_client':>18} {'ratio':>7}")
    for each in pages:
        print(
            f"{each.kilobytes:>6} KB {each.samples:>8} {each.steady_us:>7.0f} µs"
            f" {each.prometheus_client_us:>15.0f} µs {each.ratio:>7.1f}"
        )
    print(f"ratio_to_prometheus_client = {ratio}")


if __name__ == "__main__":
    main()
