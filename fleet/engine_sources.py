"""An engine's own pages as the place where a server is read."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

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

from fleet.addresses import LONGEST_SOCKET
from fleet.durations import Duration, parse, within
from fleet.engines.requests import RequestKind
from fleet.policy import STRICT
from fleet.refusal import Refusal, raise_all, refusal
from fleet.secret_refs import SecretRef, checked_url

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

#: Requests by which an engine of several can be meant: those of which engines read the name.
_NAMING = ("completion", "chat", "/v1/completions", "/v1/chat/completions")
#: Kinds of which no version takes a name.
_NAMELESS = ("llamacpp", "tgi", "triton", "trtllm", "lmdeploy", "dynamo", "ollama", "openai")

#: Bytes of a request of one's own; it is to be short.
_LARGEST_BODY = 4096
_PATH = re.compile(r"/[\w/.~:@!$&'()*+,;=%?-]*", re.ASCII)


class CustomRequest(BaseModel):
    """A short request of one's own, sent as it stands by POST to a path under the base URL."""

    model_config = STRICT

    path: str = Field(max_length=300)
    body: dict[str, JsonValue]

    @field_validator("path")
    @classmethod
    def _below(cls, path: str) -> str:
        if not _PATH.fullmatch(path) or ".." in path or path.startswith("//"):
            raise refusal("is no path under the base URL", 'write it like "/v1/score"')
        checked_url(f"http://host{path}", ("http",), 'api_key = { env = "VARIABLE" }')
        return path

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
    ca: str | None = Field(default=None, min_length=1, max_length=1000)
    balancer: bool = Field(default=False, strict=True)
    api_key: SecretRef | None = None
    model: str | None = Field(default=None, min_length=1, max_length=300)
    request: Request = "completion"
    probe: bool = Field(default=True, strict=True)
    named_ranks: bool | None = Field(default=None, strict=True)
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

    @field_validator("socket")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        if path is None:
            return None
        if not path.startswith("/") or "\0" in path:
            raise refusal("is no absolute path", "write it like /run/llama.sock")
        if len(path.encode()) > LONGEST_SOCKET:
            raise refusal(
                f"is over {LONGEST_SOCKET} bytes, which no socket's path can be", "shorten it"
            )
        return path

    def reaches(self, said: bool | None) -> bool | None:
        """Whether its short request is sure to reach the rank that it names, where the page has
        several and ``said`` whether their version takes names.
        """
        if said is None:
            return None
        return self._can_name and (said if self.named_ranks is None else self.named_ranks)

    @property
    def _can_name(self) -> bool:
        request = self.request
        return (request.path if isinstance(request, CustomRequest) else request) in _NAMING

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        raise_all("EngineSource", self._useless())
        return self

    def _useless(self) -> Iterator[Refusal]:
        if self.ca is not None and not any(
            url.startswith("https:") for url in (self.url, self.metrics_url or "")
        ):
            yield Refusal(("ca",), "without https:// nothing is checked with it", "leave it out")
        if self.named_ranks and self.kind in _NAMELESS:
            yield Refusal(
                ("named_ranks",), f"no request to {self.kind} can name a rank", "leave it out"
            )
        elif self.named_ranks and not self._can_name:
            remedy = 'set request to "completion" or "chat", or leave it out'
            yield Refusal(("named_ranks",), "this request can't name a rank", remedy)
        if self.metrics_url is not None and self.socket is not None:
            yield Refusal(("metrics_url",), "is not read through a socket", "leave one of both out")
        if self.metrics_url is not None and self.balancer:
            yield Refusal(("metrics_url",), "a balancer's metrics are not read", "leave it out")
