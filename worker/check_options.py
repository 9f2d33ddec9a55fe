"""What was typed for a check, as the source and the policy that every other check goes by."""

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ValidationError

from fleet.durations import Duration, parse, show, within
from fleet.engine_sources import EngineSource, Kind
from fleet.engines.proving import WAITS
from fleet.engines.requests import RequestKind
from fleet.policy import STRICT, Policy
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
    "wait": "--wait",
    "load_limit": "--load-limit",
}
#: The engine is whichever its page is recognised as.
RECOGNISED = "engine"
_CUSTOM = '{ path = "/v1/score", body = { text = "Hi" } }'
_IN_FILE = 'write api_key = { env = "VARIABLE" }'


class _Spans(BaseModel):
    model_config = STRICT

    wait: Annotated[Duration, within("100ms", "10m")]
    load_limit: Annotated[Duration, within("1s", "7d")]


def source(url: str, given: Mapping[str, Any]) -> EngineSource:
    """The engine that is meant; what is not given has its default.

    Raises:
        Stop: something is no good; one line with the remedy.
    """
    _check_url(url)
    _check_word(given, "kind", get_args(Kind))
    known = {name: value for name, value in given.items() if value is not None}
    if "request" in known:
        known["request"] = _request(known["request"])
    if "api_key" in known:
        known["api_key"] = {"env": _variable(known["api_key"])}
    try:
        return EngineSource.model_validate({"kind": RECOGNISED, **known, "url": url})
    except ValidationError as problem:
        raise _wrong(problem) from None


def policy(wait: str, load_limit: str) -> Policy:
    """
    Raises:
        Stop: a duration is none, or out of bounds.
    """
    try:
        spans = _Spans.model_validate({"wait": wait, "load_limit": load_limit})
    except ValidationError as problem:
        raise _wrong(problem) from None
    limit = spans.load_limit
    # Nothing is restarted here, so nothing cools down; a policy would want that to be shorter.
    return Policy(confirm_wait=spans.wait, load_limit=limit, cooldown=min(limit, Policy().cooldown))


def limit(span_given: str | None, source: EngineSource, policy: Policy) -> timedelta | None:
    """How long all of it may take.

    Raises:
        Stop: the duration is none, or too short for anything to be proved.
    """
    if span_given is None:
        return None
    try:
        span = parse(span_given)
    except ValueError as problem:
        raise Stop(f"--within: {problem}", Exit.WRONG_INPUT) from None
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
    """A kind, or a request of one's own in the words of a fleet file."""
    if not typed.lstrip().startswith("{"):
        _check_word({"request": typed}, "request", get_args(RequestKind))
        return typed
    import tomllib  # noqa: PLC0415 - seldom needed

    try:
        return tomllib.loads(f"request = {typed}")["request"]
    except tomllib.TOMLDecodeError as problem:
        remedy = f"write it as in a fleet file, like {_CUSTOM}"
        raise Stop(f"--request: is no table ({problem}): {remedy}", Exit.WRONG_INPUT) from None


def _variable(name: str) -> str:
    if not os.environ.get(name):
        said = f"the variable {name} is not set or empty: export the key in it"
        raise Stop(f"--api-key-env: {said}", Exit.WRONG_INPUT)
    return name


def _wrong(problem: ValidationError) -> Stop:
    first = problem.errors(include_url=False)[0]
    said = str(first["msg"]).replace(_IN_FILE, "name its variable with --api-key-env")
    key, *inner = map(str, first["loc"]) if first["loc"] else [""]
    if key == "request":
        # Its first part says which sort of request it was taken for.
        said = f"{'.'.join(inner[1:])}: {said}; write it like {_CUSTOM}"
    flag = _FLAGS.get(key, "")
    return Stop(f"{flag}: {in_flags(said)}" if flag else in_flags(said), Exit.WRONG_INPUT)
