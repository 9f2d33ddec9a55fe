"""An engine's own pages as the place where a server is read."""

import json
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fleet.duration_fields import Duration, within
from fleet.durations import parse
from fleet.engines.place import (
    DEADLINE,
    LONGEST_MODEL,
    LONGEST_PATH,
    TIMEOUT,
    Kind,
    base_url,
    page_url,
    request_path,
    socket_path,
    useless,
)
from fleet.engines.requests import RequestKind
from fleet.policy import STRICT
from fleet.refusal import raise_all, refusal
from fleet.secret_refs import SecretRef

#: Bytes of a request of one's own; it is to be short.
_LARGEST_BODY = 4096


class CustomRequest(BaseModel):
    """A short request of one's own, sent as it stands by POST to a path under the base URL."""

    model_config = STRICT

    path: str = Field(max_length=300)
    body: dict[str, JsonValue]

    @field_validator("path")
    @classmethod
    def _below(cls, path: str) -> str:
        return request_path(path)

    @field_validator("body")
    @classmethod
    def _short(cls, body: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            size = len(json.dumps(body, allow_nan=False).encode())
        except ValueError:
            raise refusal("holds a number that JSON can't write", "write a finite one") from None
        if size > _LARGEST_BODY:
            raise refusal(f"has {size} bytes as JSON", f"keep it within {_LARGEST_BODY}")
        return body


def _sort_of_request(value: object) -> str:
    return "custom" if isinstance(value, Mapping | CustomRequest) else "kind"


Request = Annotated[
    Annotated[RequestKind, Tag("kind")] | Annotated[CustomRequest, Tag("custom")],
    Discriminator(_sort_of_request),
]


class EngineSource(BaseModel):
    """An engine, by its base URL: its metrics are read, and it is asked only as a last resort.

    ``metrics_url`` is where its page lies, where that is not under the base URL. ``socket`` is the
    Unix socket at which it listens, and ``ca`` a file with the certificates that vouch for its own,
    both on the worker. ``request`` is what a short request looks like. ``probe`` says whether an
    idle engine is asked now and then; a suspicion is asked about in any case. A ``balancer`` stands
    for others, and is asked for its models and nothing else. ``named_ranks`` is the operator's word
    that a request reaches the rank that it names, or does not; else the page tells.
    """

    model_config = STRICT

    kind: Kind = "vllm"
    url: str
    metrics_url: str | None = None
    socket: str | None = None
    ca: str | None = Field(default=None, min_length=1, max_length=LONGEST_PATH)
    balancer: bool = Field(default=False, strict=True)
    api_key: SecretRef | None = None
    model: str | None = Field(default=None, min_length=1, max_length=LONGEST_MODEL)
    request: Request = "completion"
    probe: bool = Field(default=True, strict=True)
    named_ranks: bool | None = Field(default=None, strict=True)
    deadline: Annotated[Duration, within(*DEADLINE)] = parse("60s")
    timeout: Annotated[Duration, within(*TIMEOUT)] = parse("5s")

    @field_validator("url")
    @classmethod
    def _base(cls, url: str) -> str:
        return base_url(url)

    @field_validator("metrics_url")
    @classmethod
    def _page(cls, url: str | None, info: ValidationInfo) -> str | None:
        return page_url(url, info.data.get("kind")) if url is not None else None

    @field_validator("socket")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        return socket_path(path) if path is not None else None

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        raise_all("EngineSource", useless(self))
        return self
