"""The line of a draft that says where a server is read, with what a person has to check of it."""

from collections.abc import Iterator

from fleet.listening import Listening

_CHECK = (
    "TODO: check that steady reaches it there. A worker of your own is read by its heartbeat record"
    " instead: fleet.example.toml has the other sources."
)


def engine_url(address: str, listening: Listening) -> str | None:
    """The base URL of an engine on that machine; none where it can't be reached there."""
    return _at(address, listening.scheme, listening.port)


def engine_source(
    address: str, server: str, listening: Listening, taken: set[str]
) -> Iterator[tuple[str, bool]]:
    """Lines, and whether each is a comment. ``taken`` are the URLs of the servers before it."""
    url = engine_url(address, listening)
    if url is None or url in taken:
        why = listening.why or f"{url} is that of another server of this file"
        yield f"TODO: where it can be reached from where steady runs: {why}.", True
        # Nothing answers there, ever (RFC 2606).
        url = f"http://{_label(server)}.example.invalid:8000"
    else:
        yield _CHECK, True
    taken.add(url)
    if listening.lacks:
        yield (
            f"It was started without {listening.lacks}, so it shows no counters: add that option.",
            True,
        )
    if listening.no_statistics:
        yield "Its statistics are switched off: without them no hang of it can be proved.", True
    if listening.has_key:
        yield 'It wants a key: add api_key = { env = "VARIABLE" } to the source.', True
    if listening.page_why:
        yield f"TODO: metrics_url, where its metrics lie: {listening.page_why}.", True
    page = _at(address, listening.scheme, listening.metrics_port)
    metrics = f', metrics_url = "{page}/metrics"' if page is not None else ""
    yield f'source = {{ kind = "{listening.kind}", url = "{url}"{metrics} }}', False


def _at(address: str, scheme: str, port: int | None) -> str | None:
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}" if port is not None else None


def _label(server: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in server.lower()).strip("-")
