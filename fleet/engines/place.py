"""Where an engine is, how it is read and what it is asked, and the rules for what is said of that.

A fleet file says it, and so does a command line: one set of rules for both.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from fleet.addresses import LONGEST_SOCKET
from fleet.engines.requests import RequestKind
from fleet.refusal import Refusal, refusal
from fleet.urls import checked_url

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

#: Bounds, as people write them.
DEADLINE, TIMEOUT = ("100ms", "10m"), ("1ms", "5m")
#: Characters of the name of a model, and of a file's path.
LONGEST_MODEL, LONGEST_PATH = 300, 1000

#: Paths that people copy along with an address; the source names what lies before them.
_PAGES = ("/metrics", "/v1", "/health", "/v1/models")
#: Of these there is no page of metrics at all.
_WITHOUT_PAGE = ("ollama", "openai")
#: Requests by which an engine of several can be meant: those of which engines read the name.
_NAMING = ("completion", "chat", "/v1/completions", "/v1/chat/completions")
#: Kinds of which no version takes a name.
_NAMELESS = ("llamacpp", "tgi", "triton", "trtllm", "lmdeploy", "dynamo", "ollama", "openai")
_KEY_BELONGS = 'api_key = { env = "VARIABLE" }'
_PATH = re.compile(r"/[\w/.~:@!$&'()*+,;=%?-]*", re.ASCII)


class KeyPlace(Protocol):
    """Where a secret is found: an environment variable, or a file."""

    @property
    def env(self) -> str | None: ...

    @property
    def file(self) -> str | None: ...


class OwnRequest(Protocol):
    """A request of one's own: the path that it goes to, and its body."""

    @property
    def path(self) -> str: ...

    @property
    def body(self) -> Mapping[str, Any]: ...


class EnginePlace(Protocol):
    """``EngineSource`` says what each of them means."""

    @property
    def kind(self) -> Kind: ...

    @property
    def url(self) -> str: ...

    @property
    def metrics_url(self) -> str | None: ...

    @property
    def socket(self) -> str | None: ...

    @property
    def ca(self) -> str | None: ...

    @property
    def balancer(self) -> bool: ...

    @property
    def api_key(self) -> KeyPlace | None: ...

    @property
    def model(self) -> str | None: ...

    @property
    def request(self) -> RequestKind | OwnRequest: ...

    @property
    def probe(self) -> bool: ...

    @property
    def named_ranks(self) -> bool | None: ...

    @property
    def deadline(self) -> timedelta: ...

    @property
    def timeout(self) -> timedelta: ...


def request_path(path: str) -> str:
    """
    Raises:
        ValueError: it is no path under a base URL, or holds a secret; so for all that follow.
    """
    if not _PATH.fullmatch(path) or ".." in path or path.startswith("//"):
        raise refusal("is no path under the base URL", 'write it like "/v1/score"')
    checked_url(f"http://host{path}", ("http",), _KEY_BELONGS)
    return path


def base_url(url: str) -> str:
    url = checked_url(url, ("http", "https"), _KEY_BELONGS)
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


def page_url(url: str, kind: str | None) -> str:
    if kind in _WITHOUT_PAGE:
        raise refusal(f"a server of kind {kind} has no metrics", "leave metrics_url out")
    return checked_url(url, ("http", "https"), _KEY_BELONGS)


def socket_path(path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise refusal("is no absolute path", "write it like /run/llama.sock")
    if len(path.encode()) > LONGEST_SOCKET:
        raise refusal(
            f"is over {LONGEST_SOCKET} bytes, which no socket's path can be", "shorten it"
        )
    return path


def reaches(at: EnginePlace, said: bool | None) -> bool | None:
    """Whether its short request is sure to reach the rank that it names, where the page has several
    and ``said`` whether their version takes names.
    """
    if said is None:
        return None
    return _can_name(at) and (said if at.named_ranks is None else at.named_ranks)


def _can_name(at: EnginePlace) -> bool:
    return (at.request if isinstance(at.request, str) else at.request.path) in _NAMING


def useless(at: EnginePlace) -> Iterator[Refusal]:
    """What is said of it and would be without effect."""
    if at.ca is not None and not any(
        url.startswith("https:") for url in (at.url, at.metrics_url or "")
    ):
        yield Refusal(("ca",), "without https:// nothing is checked with it", "leave it out")
    if at.named_ranks and at.kind in _NAMELESS:
        yield Refusal(("named_ranks",), f"no request to {at.kind} can name a rank", "leave it out")
    elif at.named_ranks and not _can_name(at):
        remedy = 'set request to "completion" or "chat", or leave it out'
        yield Refusal(("named_ranks",), "this request can't name a rank", remedy)
    if at.metrics_url is not None and at.socket is not None:
        yield Refusal(("metrics_url",), "is not read through a socket", "leave one of both out")
    if at.metrics_url is not None and at.balancer:
        yield Refusal(("metrics_url",), "a balancer's metrics are not read", "leave it out")
