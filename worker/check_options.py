"""What was typed for a check, as the place and the patience that every other check goes by.

The rules are the fleet file's own (``fleet.engines.place``). Its models are not loaded: a check
would take twice as long to start.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

from fleet.durations import bounded, parse, show
from fleet.engines.place import (
    DEADLINE,
    LONGEST_MODEL,
    LONGEST_PATH,
    TIMEOUT,
    Kind,
    OwnRequest,
    base_url,
    page_url,
    socket_path,
    useless,
)
from fleet.engines.proving import WAITS
from fleet.engines.requests import RequestKind
from worker.commands.exits import Exit, Stop

#: The keys of a source in the fleet file, and what stands for them on the command line.
_FLAGS = {
    "url": "URL",
    "metrics_url": "--metrics-url",
    "socket": "--socket",
    "ca": "--ca",
    "balancer": "--balancer",
    "kind": "--engine",
    "api_key": "--api-key-env",
    "model": "--model",
    "named_ranks": "--named-ranks",
    "request": "--request",
    "deadline": "--deadline",
    "timeout": "--timeout",
}
#: The engine is whichever its page is recognised as.
RECOGNISED: Kind = "engine"
_WAIT, _LOAD_LIMIT = ("100ms", "10m"), ("1s", "7d")
_CUSTOM = '{ path = "/v1/score", body = { text = "Hi" } }'
_IN_FILE = 'write api_key = { env = "VARIABLE" }'


@dataclass(frozen=True)
class KeyOf:
    """An API key in an environment variable."""

    env: str | None
    file: str | None = None


@dataclass(frozen=True)
class Typed:
    """An ``EnginePlace``. An idle engine may be asked; whether it is, is the check's own option."""

    url: str
    kind: Kind = RECOGNISED
    metrics_url: str | None = None
    socket: str | None = None
    ca: str | None = None
    balancer: bool = False
    api_key: KeyOf | None = None
    model: str | None = None
    request: RequestKind | OwnRequest = "completion"
    probe: bool = True
    named_ranks: bool | None = None
    deadline: timedelta = timedelta(seconds=60)
    timeout: timedelta = timedelta(seconds=5)


@dataclass(frozen=True)
class Waits:
    """The ``Patience`` of a check: without counters, no answer proves nothing."""

    confirm_wait: timedelta
    load_limit: timedelta
    restart_unproven: bool = False


def source(url: str, given: Mapping[str, Any]) -> Typed:
    """The engine that is meant; what is not given has its default.

    Raises:
        Stop: something is no good; one line with the remedy.
    """
    _check_url(url)
    known = {name: value for name, value in given.items() if value is not None}
    _check_word(known, "kind", get_args(Kind))
    kind = known.get("kind", RECOGNISED)
    rules: dict[str, Callable[[Any], Any]] = {
        "metrics_url": lambda page: page_url(page, kind),
        "socket": socket_path,
        "ca": lambda path: _short(path, LONGEST_PATH),
        "model": lambda name: _short(name, LONGEST_MODEL),
        "api_key": _key,
        "request": _request,
        "deadline": lambda span: bounded(parse(span), *DEADLINE),
        "timeout": lambda span: bounded(parse(span), *TIMEOUT),
    }
    read = {
        name: _ruled(_FLAGS[name], rules[name], value) if name in rules else value
        for name, value in known.items()
    }
    typed = Typed(url=_ruled("URL", base_url, url), **read)
    for refused in useless(typed):
        flag = _FLAGS[str(refused.at[0])]
        raise Stop(f"{flag}: {refused.message}: {in_flags(refused.remedy)}", Exit.WRONG_INPUT)
    return typed


def policy(wait: str, load_limit: str) -> Waits:
    """
    Raises:
        Stop: a duration is none, or out of bounds.
    """
    return Waits(
        confirm_wait=_ruled("--wait", lambda span: bounded(parse(span), *_WAIT), wait),
        load_limit=_ruled(
            "--load-limit", lambda span: bounded(parse(span), *_LOAD_LIMIT), load_limit
        ),
    )


def limit(span_given: str | None, source: Typed, policy: Waits) -> timedelta | None:
    """How long all of it may take.

    Raises:
        Stop: the duration is none, or too short for anything to be proved.
    """
    if span_given is None:
        return None
    span: timedelta = _ruled("--within", parse, span_given)
    least = policy.confirm_wait * WAITS + source.deadline
    if span <= least:
        said = f"{show(span)} is too short for {WAITS} times --wait and the --deadline"
        remedy = f"make it longer than {show(least)}, or those shorter"
        raise Stop(f"--within: {said}: {remedy}", Exit.WRONG_INPUT)
    return span


def in_flags(text: str) -> str:
    """Words that name a key of the fleet file, as somebody at a command line needs them."""
    for key, flag in _FLAGS.items():
        text = text.replace(f"source.{key}", flag)
    return text.replace("leave metrics_url out", "leave --metrics-url out").replace(
        _IN_FILE, "name its variable with --api-key-env"
    )


def _ruled(flag: str, rule: Callable[[Any], Any], value: Any) -> Any:
    try:
        return rule(value)
    except ValueError as problem:
        raise Stop(f"{flag}: {in_flags(str(problem))}", Exit.WRONG_INPUT) from None


def _short(text: str, longest: int) -> str:
    if not 0 < len(text) <= longest:
        raise ValueError(f"has {len(text)} characters: write 1 to {longest}")
    return text


def _check_url(url: str) -> None:
    if url.startswith(("http://", "https://")):
        return
    if url.endswith(".toml") or Path(url).is_file():
        remedy = "`steady check` takes the URL of one engine; a fleet file is for `steady validate`"
        raise Stop(f"URL: {url} is a file: {remedy}", Exit.WRONG_INPUT)
    if "://" in url:
        raise Stop("URL: begin it with http:// or https://", Exit.WRONG_INPUT)
    raise Stop(f"URL: {url} has no scheme: write http://{url}", Exit.WRONG_INPUT)


def _check_word(given: Mapping[str, Any], key: str, known: Iterable[str]) -> None:
    word = given.get(key)
    if word is not None and word not in known:
        said = f"{_FLAGS[key]}: {word!r} is none that is known: write one of {', '.join(known)}"
        raise Stop(said, Exit.WRONG_INPUT)


def _request(typed: str) -> Any:
    """A kind, or a request of one's own in the words of a fleet file, read by its model."""
    if not typed.lstrip().startswith("{"):
        _check_word({"request": typed}, "request", get_args(RequestKind))
        return typed
    import tomllib  # noqa: PLC0415 - seldom needed, and what comes next loads the fleet's models

    from pydantic import ValidationError  # noqa: PLC0415

    from fleet.engine_sources import CustomRequest  # noqa: PLC0415

    remedy = f"write it like {_CUSTOM}"
    try:
        return CustomRequest.model_validate(tomllib.loads(f"request = {typed}")["request"])
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"is no table ({problem}): {remedy}") from None
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"]))
        raise ValueError(f"{at}: {first['msg']}; {remedy}") from None


def _key(variable: str) -> KeyOf:
    if not os.environ.get(variable):
        raise ValueError(f"the variable {variable} is not set or empty: export the key in it")
    return KeyOf(env=variable)
