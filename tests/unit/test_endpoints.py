"""Endpoints in the fleet file: what they refuse, and where they say so."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fleet.config import Fleet
from fleet.endpoints import Backend, Candidate, Endpoint, Gateway
from fleet.served import doors, with_providers
from fleet.sizes import parse_size, show_size
from tests.parts.fleet_files import GOOD, write_fleet
from worker.loading import examine

CHAT = """
[endpoints.chat.backends.gpu-1]
url = "http://10.0.0.1:8000"
"""


def fleet(**endpoints: Any) -> Fleet:
    servers = {name: {"source": {"kind": "redis", "key": name}} for name in ("gpu-1", "gpu-2")}
    return Fleet.model_validate({"servers": servers, "endpoints": endpoints})


def backends(*names: str, url: str = "http://a:1") -> dict[str, Any]:
    return {name: {"url": url} for name in names}


def test_an_endpoint_is_known_by_its_backends() -> None:
    loaded = fleet(chat={"backends": backends("gpu-1", "gpu-2")})
    assert loaded.endpoints["chat"].path == "/"
    assert set(loaded.endpoints["chat"].backends) == {"gpu-1", "gpu-2"}
    assert Fleet.model_validate_json(loaded.model_dump_json()) == loaded


WRONG = {
    "a server that is none": (
        CHAT.replace("gpu-1", "gpu-7"),
        (
            "endpoints.chat.backends.gpu-7: there is no [servers.gpu-7]"
            " — add [servers.gpu-7], or name a server of the fleet"
        ),
    ),
    "a path twice": (
        CHAT + CHAT.replace("chat", "other"),
        (
            "endpoints.other.path: / is the path of endpoints.chat already"
            " — choose another path, or an address of its own: listen"
        ),
    ),
    "an address and a path": (
        CHAT + '[endpoints.chat]\nlisten = "127.0.0.1:81"\npath = "/chat"\n',
        (
            "endpoints.chat.path: at an address of its own an endpoint has every path"
            " — leave out path, or listen"
        ),
    ),
    "an address of its own that is none": (
        CHAT + '[endpoints.chat]\nlisten = "8081"\n',
        (
            "endpoints.chat.listen: '8081' is no HOST:PORT, like 127.0.0.1:9464"
            " — write the address and a port"
        ),
    ),
    "an address twice": (
        CHAT
        + '[endpoints.chat]\nlisten = "0.0.0.0:81"\n[endpoints.other]\nlisten = "127.0.0.1:81"\n'
        + 'backends = { gpu-1 = { url = "http://10.0.0.1:8000" } }\n',
        (
            "endpoints.other.listen: 127.0.0.1:81 is taken by"
            " endpoints.chat.listen = 0.0.0.0:81 already — choose another port"
        ),
    ),
    "the address of the gateway itself": (
        CHAT + '[endpoints.chat]\nlisten = "127.0.0.1:8080"\n',
        (
            "endpoints.chat.listen: 127.0.0.1:8080 is taken by"
            " gateway.listen = 127.0.0.1:8080 already — choose another port"
        ),
    ),
    "the address of its admin side": (
        CHAT + '[endpoints.chat]\nlisten = "127.0.0.1:9465"\n',
        (
            "endpoints.chat.listen: 127.0.0.1:9465 is taken by"
            " gateway.admin = 127.0.0.1:9465 already — choose another port"
        ),
    ),
    "a server with two URLs": (
        CHAT
        + '[endpoints.other]\npath = "/o"\nbackends = { gpu-1 = { url = "http://10.0.0.1:1" } }\n',
        (
            "endpoints.other.backends.gpu-1.url: is another URL than in endpoints.chat,"
            " for one server — write the same in both"
        ),
    ),
    "a server with two prices": (
        CHAT
        + 'price_per_hour = 2.5\n[endpoints.other]\npath = "/o"\n'
        + 'backends = { gpu-1 = { url = "http://10.0.0.1:8000" } }\n',
        (
            "endpoints.other.backends.gpu-1.price_per_hour: is another price than in"
            " endpoints.chat, for one server — write the same in both"
        ),
    ),
    "a file of paired samples for two": (
        CHAT
        + '[endpoints.chat.paired_samples]\nfile = "/a/b"\n[endpoints.other]\npath = "/o"\n'
        + 'backends = { gpu-1 = { url = "http://10.0.0.1:8000" } }\n'
        + 'paired_samples = { file = "/a/b" }\n',
        (
            "endpoints.other.paired_samples.file: is the file of endpoints.chat already"
            " — choose another"
        ),
    ),
    "a file of paired samples that is none": (
        CHAT + '[endpoints.chat.paired_samples]\nfile = "pairs.jsonl"\n',
        (
            "endpoints.chat.paired_samples.file: is no whole path of a file"
            " — write one like /var/lib/steady/pairs.jsonl"
        ),
    ),
    "the gateway's own path": (
        CHAT + '[endpoints.chat]\npath = "/backends/x"\n',
        "endpoints.chat.path: /backends/x is the gateway's own — choose another path",
    ),
    "a path that is none": (
        CHAT + '[endpoints.chat]\npath = "chat"\n',
        'endpoints.chat.path: is no path — write one that begins with "/", like "/" or "/chat"',
    ),
    "a URL of https": (
        CHAT.replace("http:", "https:"),
        (
            "endpoints.chat.backends.gpu-1.url: is no URL of a kind that is read here"
            " — begin it with http://"
        ),
    ),
    "a URL with a query": (
        CHAT.replace("8000", "8000/?a=b"),
        (
            "endpoints.chat.backends.gpu-1.url: the base URL has a query or fragment"
            " — write http://HOST:PORT, or a path"
        ),
    ),
    "a key of the sample that is none": (
        CHAT + '[endpoints.chat]\nsample_by = "user"\n',
        (
            "endpoints.chat.sample_by: is no key of a sample"
            ' — write "request", or "header:NAME", like "header:X-Session-Id"'
        ),
    ),
    "a mirrored path that is none": (
        CHAT + '[endpoints.chat]\nmirrored_paths = ["v1/chat/completions"]\n',
        (
            "endpoints.chat.mirrored_paths[0]: is no path"
            ' — write one that begins with "/", like "/v1/rerank"'
        ),
    ),
    "a mirrored path that changes something": (
        CHAT + '[endpoints.chat]\nmirrored_paths = ["/v1/rerank", "/v1/fine_tuning/jobs"]\n',
        (
            "endpoints.chat.mirrored_paths[1]: /v1/fine_tuning/jobs changes what a server keeps,"
            " and is never mirrored — remove it"
        ),
    ),
    "a share over a hundred": (
        CHAT + '[endpoints.chat.candidates.next]\nurl = "http://a:1"\nsample = 101\n',
        "endpoints.chat.candidates.next.sample: 101 is too large — choose at most 100.0",
    ),
    "a size that is none": (
        CHAT + '[gateway]\nmirror_budget = "64 megs"\n',
        (
            "gateway.mirror_budget: '64 megs' is no size"
            ' — write a whole number and a unit (B, KiB, MiB, GiB) in quotes, like "64KiB"'
        ),
    ),
    "a size out of range": (
        CHAT + '[gateway]\nmax_head = "10B"\n',
        "gateway.max_head: 10B is out of range — choose from 1KiB to 1MiB",
    ),
    "an address that is none": (
        CHAT + '[gateway]\nlisten = "8080"\n',
        (
            "gateway.listen: '8080' is no HOST:PORT, like 127.0.0.1:9464"
            " — write the address and a port"
        ),
    ),
    "an endpoint without backends": (
        "[endpoints.chat]\nbackends = {}\n",
        "endpoints.chat.backends: is empty — give at least 1",
    ),
    "a candidate's name twice": (
        CHAT + '[endpoints.chat.candidates.next]\nurl = "http://a:1"\n[endpoints.b]\npath = "/b"\n'
        'backends = { gpu-1 = { url = "http://10.0.0.1:8000" } }\n'
        'candidates = { next = { url = "http://b:1" } }\n',
        (
            "endpoints.b.candidates.next: is the name of a candidate of endpoints.chat already"
            " — choose another name: it has a URL of its own"
        ),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_line_at_its_key(case: str, tmp_path: Path) -> None:
    text, line = WRONG[case]
    file = write_fleet(tmp_path, GOOD + text)
    assert [str(each) for each in examine(file).problems] == [f"{file}: {line}"]


def test_endpoints_with_addresses_of_their_own_need_no_paths() -> None:
    loaded = fleet(
        chat={"backends": backends("gpu-1")},
        one={"listen": "127.0.0.1:81", "backends": backends("gpu-1")},
        two={"listen": "127.0.0.2:81", "backends": backends("gpu-2")},
    )
    assert [(door.place, door.endpoint) for door in doors(loaded.gateway, loaded.endpoints)] == [
        (("127.0.0.1", 8080), None),
        (("127.0.0.1", 81), "one"),
        (("127.0.0.2", 81), "two"),
    ]
    assert Fleet.model_validate_json(loaded.model_dump_json()) == loaded


def test_a_broken_server_makes_up_no_mistake_of_its_endpoint(tmp_path: Path) -> None:
    file = write_fleet(tmp_path, GOOD.replace('kind = "redis"', 'kind = "rediss"', 1) + CHAT)
    keys = [each.key for each in examine(file).problems]
    assert "servers.gpu-1.source.kind" in keys
    assert not [key for key in keys if key.startswith("endpoints")]


def test_a_candidates_token_that_is_not_set_is_warned_of(tmp_path: Path) -> None:
    token = '[endpoints.chat.candidates.next]\nurl = "http://a:1"\ntoken = { env = "NO_SUCH" }\n'
    file = write_fleet(tmp_path, GOOD + CHAT + token)
    warned = [each.key for each in examine(file, environment={}).warnings]
    assert "endpoints.chat.candidates.next.token.env" in warned


def test_a_candidates_token_file_is_beside_the_fleet_file(tmp_path: Path) -> None:
    token = '[endpoints.chat.candidates.next]\nurl = "http://a:1"\ntoken = { file = "t" }\n'
    file = write_fleet(tmp_path, GOOD + CHAT + token)
    (tmp_path / "t").write_text("secret")
    loaded = examine(file).fleet
    assert loaded is not None
    found = loaded.endpoints["chat"].candidates["next"].token
    assert found is not None
    assert found.file == str(tmp_path / "t")


@pytest.mark.parametrize("text", ["0B", "1B", "1023B", "1KiB", "64MiB", "3GiB"])
def test_a_size_is_shown_as_it_was_taken(text: str) -> None:
    assert show_size(parse_size(text)) == text


@pytest.mark.parametrize("text", ["", "1", "1.5MiB", "-1B", "1MB", "1 TiB"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_a_true_is_no_size() -> None:
    with pytest.raises(ValidationError, match="is no size"):
        Gateway.model_validate({"max_head": True})


def test_base_urls_end_without_a_slash_and_paths_too() -> None:
    assert Candidate(url="http://a:1/base/").url == "http://a:1/base"
    assert Endpoint.model_validate({"path": "/a/", "backends": backends("x")}).path == "/a"


def test_a_backend_says_what_it_runs_where_that_is_known() -> None:
    names = ("vllm", "redis", "engine", "openai", "own")
    made = {name: Backend(url="http://a:1") for name in names}
    made["own"] = Backend(url="http://a:1", provider="mine")
    kinds = {**{name: name for name in names}, "own": "sglang"}
    found = with_providers({"chat": Endpoint(backends=made)}, kinds)["chat"].backends
    assert {name: spec.provider for name, spec in found.items()} == {
        "vllm": "vllm",
        "redis": None,
        "engine": None,
        "openai": None,
        "own": "mine",
    }
    assert with_providers({"chat": Endpoint(backends=made)}, {})["chat"].backends == made


@pytest.mark.parametrize("provider", ["", "vLLM", "a b", "-a", "a" * 70])
def test_a_provider_is_a_name_of_the_conventions(provider: str) -> None:
    with pytest.raises(ValidationError):
        Backend(url="http://a:1", provider=provider)
