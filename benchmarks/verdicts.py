"""steady against the checks that people use today, on simulated days with a known truth.

Each check watches the same servers, on virtual time. docs/why-not-a-chat-request.md has the table.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from benchmarks.verdict_days.days import scenarios
from benchmarks.verdict_days.score import CHECKS, STEADY, Score, compare, merge, total
from benchmarks.verdict_days.traffic import ordinary

#: Ordinary days, beside the scenarios: in a run that is to be quick, and else.
_QUICK, _ALL = 3, 134

Scores = dict[str, dict[str, Score]]


def part(number: int, of: int, days: int) -> Scores:
    """One share of all days."""
    every = [*scenarios(), *(ordinary(each) for each in range(days))]
    return compare(every[number::of])


def measure(days: int, processes: int) -> Scores:
    if processes == 1:
        return part(0, 1, days)
    shares = processes * 4
    with ProcessPoolExecutor(processes) as pool:
        every = pool.map(part, range(shares), [shares] * shares, [days] * shares)
        return merge(every)


def rows(scores: Scores) -> Iterator[list[str]]:
    yield ["check", "false restarts", "missed hangs", "requests to busy", "seconds to detect"]
    for name, groups in scores.items():
        whole = total(groups)
        yield [
            name,
            str(whole.false_restarts),
            f"{whole.missed_hangs} of {whole.hangs}",
            str(whole.requests_to_busy),
            whole.span(),
        ]


def by_scenario(scores: Scores) -> Iterator[list[str]]:
    """For each scenario and check: false restarts, and missed hangs where there are any."""
    yield ["scenario", *scores]
    for group in scores[STEADY]:
        yield [group, *(groups[group].brief() for groups in scores.values())]


def as_table(lines: Iterator[list[str]]) -> str:
    head, *body = lines
    ruler = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ruler, *body])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer ordinary days: under 50 s")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    processes = min(4, len(os.sched_getaffinity(0)))
    scores = measure(_QUICK if given.quick else _ALL, processes)
    seconds = time.monotonic() - began
    days = sum(total(groups).days for groups in scores.values())
    if given.json:
        result: dict[str, object] = {
            name: {
                **total(groups).figures(),
                "scenarios": {group: score.figures() for group, score in groups.items()},
            }
            for name, groups in scores.items()
        }
        figures = {
            "checks": result,
            "server_days": round(days, 1),
            "seconds": round(seconds, 1),
            "load_before": round(load, 2),
        }
        print(json.dumps(figures, indent=2))
        return
    print(as_table(rows(scores)), end="\n\n")
    print(as_table(by_scenario(scores)), end="\n\n")
    print(f"{days:.0f} server-days under {len(CHECKS)} checks, in {seconds:.1f} s")


if __name__ == "__main__":
    main()
