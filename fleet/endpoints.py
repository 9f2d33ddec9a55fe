"""Endpoints as the gateway serves them: backends, candidates, and the sample that each is sent."""

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, model_validator

from fleet.addresses import LONGEST_SOCKET, UNIX, host_and_port
from fleet.duration_fields import Duration, within
from fleet.durations import parse
from fleet.policy import STRICT
from fleet.refusal import Refusal, raise_all, refusal
from fleet.secret_refs import SecretRef
from fleet.sizes import Size, parse_size, size_within
from fleet.urls import checked_url

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

#: The first parts of the gateway's own paths, behind which a name of a server or candidate stands.
BACKENDS, CANDIDATES = "/backends", "/candidates"

#: Of one endpoint.
MOST_CANDIDATES = 10

#: The paths of the OpenAI-compatible APIs that ask a model for something, and change nothing.
MIRRORED_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rerank",
    "/v1/responses",
)

#: Parts of the paths that make, change or delete something.
_NEVER_MIRRORED = frozenset({"batches", "files", "fine-tunes", "fine_tuning", "uploads"})

_Name = Annotated[str, Field(pattern=NAME)]


def _base_url(url: str) -> str:
    checked_url(url, ("http",), 'token = { env = "VARIABLE" } for a candidate')
    return _plain(url)


def _plain(url: str) -> str:
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise refusal("the base URL has a query or fragment", "write http://HOST:PORT, or a path")
    if not url.isascii() or re.search(r"[\s\x00-\x1f\x7f]", url):
        raise refusal("the base URL has a character that has no place there", "remove it")
    return url.rstrip("/")


BaseUrl = Annotated[str, AfterValidator(_base_url)]


def _socket(url: str) -> str:
    path = url.removeprefix(UNIX)
    if not re.fullmatch(r"/[^\x00-\x1f\x7f?#]*[^\x00-\x1f\x7f?#/]", path):
        raise refusal("the URL names no socket", "write unix:///PATH, with three slashes")
    if len(path.encode()) > LONGEST_SOCKET:
        message = f"is over {LONGEST_SOCKET} bytes, which no socket's path can be"
        raise refusal(message, "shorten it")
    return url


def _admin_url(url: str) -> str:
    checked_url(url, ("http", "https", "unix"), "gateway.admin_token")
    return _socket(url) if url.startswith("unix:") else _plain(url)


#: Where a gateway takes orders; behind what ends TLS, where there is such.
AdminUrl = Annotated[str, AfterValidator(_admin_url)]


def _path(path: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._~/-]*", path) or "//" in path:
        raise refusal("is no path", 'write one that begins with "/", like "/" or "/chat"')
    first = path.rstrip("/")
    if any(first == own or first.startswith(f"{own}/") for own in (BACKENDS, CANDIDATES)):
        raise refusal(f"{path} is the gateway's own", "choose another path")
    return first or "/"


Path = Annotated[str, AfterValidator(_path)]


def _sample_by(by: str) -> str:
    if by == "request" or re.fullmatch(r"header:[A-Za-z0-9_-]{1,100}", by):
        return by
    raise refusal(
        "is no key of a sample", 'write "request", or "header:NAME", like "header:X-Session-Id"'
    )


#: What a server costs an hour, in whatever currency; the same for all of a fleet.
Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


#: What a server runs, in the words of ``gen_ai.provider.name``.
Provider = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class Backend(BaseModel):
    """A server of the fleet that answers production requests, under its base URL.

    One of twice the ``weight`` is to have twice the requests in flight.
    """

    model_config = STRICT

    url: BaseUrl
    weight: float = Field(default=1, ge=0.01, le=100)
    price_per_hour: Price | None = None
    provider: Provider | None = None


class Candidate(BaseModel):
    """What may replace the backends one day. It is sent a sample, and its answers thrown away.

    ``sample`` is in percent. ``model`` is put in place of the model that a request names.
    ``buffer`` bounds what one mirrored request may lag behind production; ``answer_limit`` and
    ``timeout`` bound its answer.
    """

    model_config = STRICT

    url: BaseUrl
    sample: float = Field(default=0, ge=0, le=100)
    model: str | None = Field(default=None, min_length=1, max_length=200)
    ask_usage: bool = True
    token: SecretRef | None = None
    forward_authorization: bool = False
    buffer: Annotated[Size, size_within("256KiB", "1GiB")] = parse_size("1MiB")
    answer_limit: Annotated[Size, size_within("1KiB", "1GiB")] = parse_size("64MiB")
    timeout: Annotated[Duration, within("1ms", "1d")] = parse("10m")
    max_in_flight: int = Field(default=100, ge=1, le=10_000, strict=True)
    price_per_hour: Price | None = None
    provider: Provider | None = None


def _file(path: str) -> str:
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise refusal("is no whole path of a file", "write one like /var/lib/steady/pairs.jsonl")
    return path


class PairedSamples(BaseModel):
    """Requests that are kept with production's answer and the candidates', for people to compare.

    ``limit`` bounds what lies on the disk, ``longest`` each request and each answer. ``redact`` are
    names of fields whose values are hidden, at any depth.
    """

    model_config = STRICT

    file: Annotated[str, AfterValidator(_file)]
    a_day: int = Field(default=100, ge=1, le=1_000_000, strict=True)
    limit: Annotated[Size, size_within("1MiB", "64GiB")] = parse_size("64MiB")
    longest: Annotated[Size, size_within("1KiB", "4MiB")] = parse_size("256KiB")
    redact: tuple[str, ...] = ()


def _mirrored_path(path: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._~/-]*", path) or "//" in path:
        raise refusal("is no path", 'write one that begins with "/", like "/v1/rerank"')
    if not _NEVER_MIRRORED.isdisjoint(path.split("/")):
        raise refusal(f"{path} changes what a server keeps, and is never mirrored", "remove it")
    return path


def _address(address: str) -> str:
    try:
        host_and_port(address)
    except ValueError as problem:
        raise refusal(str(problem), "write the address and a port") from None
    return address


Address = Annotated[str, AfterValidator(_address)]


class Endpoint(BaseModel):
    """One public path, or an address of its own, with the servers behind it. At most 10 candidates.

    With ``listen`` all that comes in there is the endpoint's, whatever its path.
    """

    model_config = STRICT

    path: Path = "/"
    listen: Address | None = None
    backends: dict[_Name, Backend] = Field(min_length=1, max_length=500)
    candidates: dict[_Name, Candidate] = Field(default={}, max_length=MOST_CANDIDATES)
    sample_by: Annotated[str, AfterValidator(_sample_by)] = "request"
    mirrored_paths: tuple[Annotated[str, AfterValidator(_mirrored_path)], ...] = MIRRORED_PATHS
    client_gone: Literal["cancel", "run_dry"] = "cancel"
    ask_usage: bool = False
    paired_samples: PairedSamples | None = None


def _admin(address: str) -> str:
    return _socket(address) if address.startswith("unix:") else _address(address)


AdminAddress = Annotated[str, AfterValidator(_admin)]


class Gateway(BaseModel):
    """One gateway: where it listens, and its bounds. Several ``processes`` share them."""

    model_config = STRICT

    listen: Address = "127.0.0.1:8080"
    processes: int = Field(default=1, ge=1, le=64, strict=True)
    admin: AdminAddress = "127.0.0.1:9465"
    admin_token: SecretRef | None = None
    admin_urls: tuple[AdminUrl, ...] = Field(default=(), max_length=10)
    drain_wait: Annotated[Duration, within("0s", "10m")] = parse("30s")
    drain_wait_hung: Annotated[Duration, within("0s", "10m")] = parse("2s")
    paired_budget: Annotated[Size, size_within("1MiB", "4GiB")] = parse_size("16MiB")
    mirror_budget: Annotated[Size, size_within("1MiB", "64GiB")] = parse_size("64MiB")
    max_clients: int = Field(default=4096, ge=1, le=60_000, strict=True)
    max_head: Annotated[Size, size_within("1KiB", "1MiB")] = parse_size("64KiB")
    max_body: Annotated[Size, size_within("1KiB", "64GiB")] = parse_size("64MiB")
    replay: Annotated[Size, size_within("0B", "64MiB")] = parse_size("1MiB")
    head_timeout: Annotated[Duration, within("100ms", "10m")] = parse("15s")
    body_timeout: Annotated[Duration, within("100ms", "1h")] = parse("60s")
    keep_alive: Annotated[Duration, within("100ms", "1h")] = parse("75s")
    stall_timeout: Annotated[Duration, within("100ms", "1h")] = parse("2m")
    connect_timeout: Annotated[Duration, within("10ms", "5m")] = parse("5s")
    answer_timeout: Annotated[Duration, within("100ms", "1d")] = parse("10m")
    chunk_timeout: Annotated[Duration, within("100ms", "1d")] = parse("5m")
    backend_keep_alive: Annotated[Duration, within("100ms", "1h")] = parse("4s")
    graceful_shutdown: Annotated[Duration, within("0s", "1h")] = parse("30s")

    @model_validator(mode="after")
    def _each_has_a_share(self) -> Self:
        if self.processes > self.max_clients:
            what = f"{self.processes} processes share {self.max_clients} max_clients"
            raise_all(
                "Gateway", [Refusal(("processes",), what, "raise max_clients, or take fewer")]
            )
        return self
