"""An engine's own pages as the place where a server is read, and every kind of place together."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from fleet.durations import Duration, parse, within
from fleet.policy import STRICT
from fleet.refusal import refusal
from fleet.sources import RedisSource, SecretRef, StatusSource, checked_url

#: Paths that people copy along with an address; the source names what lies before them.
_PAGES = ("/metrics", "/v1", "/health", "/v1/models")

#: Every engine that is known; "engine" is recognised by its page.
Kind = Literal[
    "vllm",
    "sglang",
    "llamacpp",
    "tgi",
    "triton",
    "trtllm",
    "nim",
    "lmdeploy",
    "dynamo",
    "ollama",
    "openai",
    "engine",
]


#: Of these there is no page of metrics at all.
_WITHOUT_PAGE = ("ollama", "openai")


class EngineSource(BaseModel):
    """An engine, by its base URL: its metrics are read, and it is asked only as a last resort.

    ``metrics_url`` is where its page lies, where that is not under the base URL. ``request`` is
    what a short request looks like. ``probe`` says whether an idle engine is asked now and then; a
    suspicion is asked about in any case.
    """

    model_config = STRICT

    kind: Kind = "vllm"
    url: str
    metrics_url: str | None = None
    api_key: SecretRef | None = None
    model: str | None = Field(default=None, min_length=1, max_length=300)
    request: Literal["completion", "chat", "embedding"] = "completion"
    probe: bool = Field(default=True, strict=True)
    deadline: Annotated[Duration, within("100ms", "10m")] = parse("60s")
    timeout: Annotated[Duration, within("1ms", "5m")] = parse("5s")

    @field_validator("url")
    @classmethod
    def _base(cls, url: str) -> str:
        url = checked_url(url, ("http", "https"), 'api_key = { env = "VARIABLE" }')
        parts = urlsplit(url)
        if parts.query or parts.fragment:
            raise refusal("the URL has more than a path", "end it before the ? or #")
        path = parts.path.rstrip("/")
        for page in _PAGES:
            if path.endswith(page):
                raise refusal(
                    f"{page} is one of the server's pages", "write the URL that lies before it"
                )
        return url.rstrip("/")

    @field_validator("metrics_url")
    @classmethod
    def _page(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is None:
            return None
        kind = info.data.get("kind")
        if kind in _WITHOUT_PAGE:
            raise refusal(f"a server of kind {kind} has no metrics", "leave metrics_url out")
        return checked_url(url, ("http", "https"), 'api_key = { env = "VARIABLE" }')


#: Every place at which a server can be read.
Source = Annotated[RedisSource | StatusSource | EngineSource, Field(discriminator="kind")]


def record(source: Source) -> tuple[object, ...]:
    """What is read: where it lies, and from which part of it; the same twice is one."""
    if isinstance(source, EngineSource):
        return _page(source.metrics_url or source.url)
    parts = (source.fields.state, source.fields.heartbeat)
    if isinstance(source, StatusSource):
        return (*_page(source.url), *parts)
    return (source.store, source.key, *parts)


def _page(url: str) -> tuple[object, ...]:
    """The page that is meant, however its host and port are written."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return (parts.scheme, parts.hostname, port, parts.path or "/", parts.query)
