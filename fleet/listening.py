"""Where an engine that was found on a host listens, as far as its command line and ports tell.

Of a command line only a port, a scheme and the names of a few options are taken.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class _Engine:
    """``kind`` is that of its source in a fleet file, ``metrics`` the port of its page where that
    is another one, ``needs`` the option without which it shows no counters.
    """

    kind: str
    port: int
    metrics: int | None = None
    needs: str = ""


#: By the name that discovery gives them, with the port on which each listens by default.
_ENGINES = {
    "vLLM": _Engine("vllm", 8000),
    "SGLang": _Engine("sglang", 30000, needs="--enable-metrics"),
    "llama.cpp": _Engine("llamacpp", 8080, needs="--metrics"),
    "TGI": _Engine("tgi", 80),
    "TensorRT-LLM": _Engine("trtllm", 8000),
    "Triton": _Engine("triton", 8000, metrics=8002),
    "Ollama": _Engine("ollama", 11434),
    "LMDeploy": _Engine("lmdeploy", 23333),
}

_PORT = re.compile(r"(?<!\S)--(?:server-|http-)?port(?:=|\s+)(\d{1,5})\b")
_METRICS_PORT = re.compile(r"(?<!\S)--metrics-port(?:=|\s+)(\d{1,5})\b")
_TLS = re.compile(r"(?<!\S)--ssl-(?:cert|key)")
_KEY = re.compile(r"(?<!\S)--api-keys?\b")
_NO_STATISTICS = re.compile(r"(?<!\S)--disable-(?:log-stats|metrics)\b")
#: ``0.0.0.0:8001->8000/tcp``, ``[::]:8000-8002->8000-8002/tcp``, ``:::8000->8000/tcp``.
_PUBLISHED = re.compile(r"(.*):(\d+)(?:-\d+)?->(\d+)(?:-(\d+))?/tcp")
_LOOPBACK = ("127.", "[::1]", "::1", "localhost")


@dataclass(frozen=True)
class Listening:
    """An engine's address on its host.

    ``port`` is none where it can't be reached from outside, and ``why`` says so. ``metrics_port``
    is set where the page has a port of its own; ``page_why`` says why that can't be reached.
    ``lacks`` is the option that its counters need.
    """

    kind: str
    port: int | None
    scheme: str = "http"
    metrics_port: int | None = None
    why: str = ""
    page_why: str = ""
    has_key: bool = False
    lacks: str = ""
    no_statistics: bool = False


def listening(engine: str, command: str, ports: str | None, network: str) -> Listening | None:
    """Read the ports as ``docker ps`` lists them; none is a process of the host itself.

    None where the engine is no known one: a worker of somebody's own.
    """
    known = _ENGINES.get(engine)
    if known is None:
        return None
    inside = _number(_PORT, command) or known.port
    page = _number(_METRICS_PORT, command) or known.metrics
    published = list(_published(ports or ""))
    of_host = ports is None or (network == "host" and not ports)
    port, why = (inside, "") if of_host else _outside(published, inside)
    metrics, page_why = page, ""
    if page is not None and not of_host:
        metrics, page_why = _exactly(published, page)
    lacking = known.needs and not re.search(rf"(?<!\S){known.needs}\b", command)
    return Listening(
        kind=known.kind,
        port=port,
        scheme="https" if _TLS.search(command) else "http",
        metrics_port=metrics,
        why=why,
        page_why=page_why,
        has_key=_KEY.search(command) is not None,
        lacks=known.needs if lacking else "",
        no_statistics=_NO_STATISTICS.search(command) is not None,
    )


def _outside(published: list[tuple[str, int, int]], inside: int) -> tuple[int | None, str]:
    """The port of the host that leads to ``inside``, else why there is none."""
    targets = {target for _, _, target in published}
    # The only one that is published: its number stands in the image, where nobody looks.
    return _exactly(published, *targets) if len(targets) == 1 else _exactly(published, inside)


def _exactly(published: list[tuple[str, int, int]], inside: int) -> tuple[int | None, str]:
    to_it = [(place, port) for place, port, target in published if target == inside]
    if not to_it:
        return None, f"its port {inside} is not published on the host"
    for place, port in to_it:
        if not place.startswith(_LOOPBACK):
            return port, ""
    return None, f"its port is published on {to_it[0][0]}:{to_it[0][1]} only, for the host itself"


def _published(ports: str) -> Iterator[tuple[str, int, int]]:
    """Address and port of the host, and the port of the container; of a range each."""
    for each in ports.split(","):
        match = _PUBLISHED.fullmatch(each.strip())
        if match is None:
            continue
        first, last = int(match[3]), int(match[4] or match[3])
        for at in range(min(last - first + 1, 100)):
            yield match[1], int(match[2]) + at, first + at


def _number(pattern: re.Pattern[str], command: str) -> int | None:
    match = pattern.search(command)
    number = int(match[1]) if match else 0
    return number if 0 < number <= 65535 else None
