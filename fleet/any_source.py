"""Every kind of place at which a server is read, together."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from fleet.engine_sources import EngineSource
from fleet.sources import RedisSource, StatusSource

#: Every place at which a server can be read.
Source = Annotated[RedisSource | StatusSource | EngineSource, Field(discriminator="kind")]


def record(source: Source) -> tuple[object, ...]:
    """What is read: where it lies, and from which part of it; the same twice is one."""
    if isinstance(source, EngineSource):
        return (*_page(source.metrics_url or source.url), source.socket)
    parts = (source.fields.state, source.fields.heartbeat)
    if isinstance(source, StatusSource):
        return (*_page(source.url), *parts)
    return (source.store, source.key, *parts)


def _page(url: str) -> tuple[object, ...]:
    """The page that is meant, however its host and port are written."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return (parts.scheme, parts.hostname, port, parts.path or "/", parts.query)
