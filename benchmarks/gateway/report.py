"""The figures of a run: ratios under stable names, and tables in Markdown."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict

from benchmarks.gateway.measuring import (
    DIRECT,
    LITELLM,
    MANY,
    NGINX,
    NGINX_MIRROR,
    STARLETTE,
    STEADY,
    STEADY_DEAD,
    STEADY_MIRROR,
    Measuring,
)
from benchmarks.gateway.posts import Posts
from benchmarks.gateway.streams import Streams


def figures(seen: Measuring) -> dict[str, object]:
    """What was not measured has no key."""
    rps, cpu = _Ratios(seen.posts, lambda one: one.rps), _Ratios(seen.posts, lambda one: one.cpu_us)
    p50, p99 = _alone(seen, lambda one: one.p50_ms), _alone(seen, lambda one: one.p99_ms)
    most = max(each.streams for each in seen.streams)
    stream = {each.what: each for each in seen.streams if each.streams == most}
    result: dict[str, object] = {
        "rps_to_nginx": rps.of(STEADY, NGINX),
        "cpu_to_nginx": cpu.of(STEADY, NGINX),
        "rps_with_mirror_to_nginx_mirror": rps.of(STEADY_MIRROR, NGINX_MIRROR),
        "cpu_with_mirror_to_nginx_mirror": cpu.of(STEADY_MIRROR, NGINX_MIRROR),
        "rps_to_starlette": rps.of(STEADY, STARLETTE),
        "rps_to_litellm": rps.of(STEADY, LITELLM),
        "p50_dead_mirrors_to_none": round(p50[STEADY_DEAD] / p50[STEADY], 3),
        "p99_dead_mirrors_to_none": round(p99[STEADY_DEAD] / p99[STEADY], 3),
        "added_ms_p50": round(p50[STEADY] - p50[DIRECT], 3),
        "added_ms_p99": round(p99[STEADY] - p99[DIRECT], 3),
        "nginx_added_ms_p50": round(p50[NGINX] - p50[DIRECT], 3),
        "nginx_added_ms_p99": round(p99[NGINX] - p99[DIRECT], 3),
        "streams": most,
        "chunk_cpu_to_nginx": round(stream[STEADY].cpu_us / stream[NGINX].cpu_us, 3),
        "chunk_ms_p50": stream[STEADY].p50_ms,
        "chunk_ms_p99": stream[STEADY].p99_ms,
        "nginx_chunk_ms_p50": stream[NGINX].p50_ms,
        "nginx_chunk_ms_p99": stream[NGINX].p99_ms,
        "kib_a_stream": stream[STEADY].kib_a_stream,
        "peak_mib": round(seen.peak_mib, 1),
        "errors": sum(each.errors for each in seen.posts if each.what != LITELLM),
        "streams_missing": sum(each.missing for each in seen.streams if each.what != LITELLM),
        "mirrored": seen.mirrored,
        "posts": [asdict(each) for each in seen.posts],
        "stream_runs": [asdict(each) for each in seen.streams],
    }
    return {key: value for key, value in result.items() if value is not None}


def shown(seen: Measuring, result: dict[str, object]) -> str:
    return "\n".join(
        [*_posts_table(seen), "", *_streams_table(seen), "", *_list(result), *_missing(seen)]
    )


class _Ratios:
    """Of runs with many connections: each round by itself, and the median of those."""

    def __init__(self, posts: list[Posts], value: Callable[[Posts], float]) -> None:
        self._posts = posts
        self._value = value

    def of(self, top: str, bottom: str) -> float | None:
        ratios = [
            above / below
            for connections in MANY
            for above, below in zip(
                self._values(top, connections), self._values(bottom, connections), strict=False
            )
            if below
        ]
        return round(statistics.median(ratios), 3) if ratios else None

    def _values(self, what: str, connections: int) -> list[float]:
        return [
            self._value(each)
            for each in self._posts
            if each.what == what and each.connections == connections
        ]


def _alone(seen: Measuring, value: Callable[[Posts], float]) -> dict[str, float]:
    """Medians with one connection, by what was measured."""
    found: dict[str, list[float]] = {}
    for each in seen.posts:
        if each.connections == 1:
            found.setdefault(each.what, []).append(value(each))
    return {what: statistics.median(values) for what, values in found.items()}


def _posts_table(seen: Measuring) -> Iterator[str]:
    yield "| what | connections | requests/s | p50 ms | p99 ms | CPU µs a request |"
    yield "|---|---|---|---|---|---|"
    runs: dict[tuple[int, str], list[Posts]] = {}
    for each in seen.posts:
        runs.setdefault((each.connections, each.what), []).append(each)
    for (connections, what), several in runs.items():
        rps, p50, p99, cpu = (
            statistics.median(values)
            for values in zip(
                *((o.rps, o.p50_ms, o.p99_ms, o.cpu_us) for o in several), strict=True
            )
        )
        cost = "" if what == DIRECT else f"{cpu:.1f}"
        yield f"| {what} | {connections} | {rps:,.0f} | {p50:.3f} | {p99:.3f} | {cost} |"


def _streams_table(seen: Measuring) -> Iterator[str]:
    yield "| what | streams | arrived | p50 ms | p99 ms | CPU µs a chunk | KiB a stream |"
    yield "|---|---|---|---|---|---|---|"
    for each in seen.streams:
        yield _stream_row(each)


def _stream_row(one: Streams) -> str:
    cost = "| |" if one.what == DIRECT else f"| {one.cpu_us:.1f} | {one.kib_a_stream:.0f} |"
    return f"| {one.what} | {one.streams} | {one.share:.0%} | {one.p50_ms} | {one.p99_ms} {cost}"


def _list(result: dict[str, object]) -> Iterator[str]:
    for key, value in result.items():
        if key not in ("posts", "stream_runs"):
            yield f"{key} = {value}"


def _missing(seen: Measuring) -> Iterator[str]:
    measured = {each.what for each in seen.posts}
    for what, remedy in (
        (STARLETTE, "give --starlette PYTHON, one that has starlette, uvicorn and httpx"),
        (LITELLM, "give --litellm PYTHON, one that has litellm[proxy]"),
    ):
        if what not in measured:
            yield f"{what} was not measured: {remedy}"
