"""A request with production's answer and those of candidates, as one line of a file.

What it keeps is what was asked and what was answered: no header, no query. Fields that the operator
names are hidden, and so is what looks like a secret in any text.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fleet.redaction import HIDDEN, redact

#: Deeper than any request or answer; what lies deeper is left out.
_DEEPEST = 64


class NotKept(Exception):
    """It is not of a kind that can be kept with its secrets hidden."""


class Place(NamedTuple):
    """Where samples are kept, at most so many bytes of them, and the names of hidden fields."""

    file: str
    limit: int
    hidden: Sequence[str]


@dataclass(frozen=True)
class Answer:
    """``status`` is 0 where none came; ``seconds`` are from the head of the request to its end.
    ``body`` is in pieces, as it came.
    """

    result: str
    status: int
    seconds: float
    is_stream: bool
    body: Sequence[bytes]


@dataclass(frozen=True)
class PairedSample:
    """One request; ``at`` in ISO form, ``server`` the backend that answered for production."""

    at: str
    endpoint: str
    path: str
    sample_by: str
    server: str
    request: Sequence[bytes]
    production: Answer
    candidates: Mapping[str, Answer]


def line(sample: PairedSample, hidden: Iterable[str]) -> bytes:
    """The sample as a line of JSON; ``hidden`` are names of fields, at any depth.

    Raises:
        NotKept: the request is no JSON.
    """
    names = frozenset(hidden)
    try:
        request = json.loads(b"".join(sample.request))
    except (ValueError, RecursionError):
        raise NotKept("the request is no JSON") from None
    kept = {
        "at": sample.at,
        "endpoint": sample.endpoint,
        "path": sample.path,
        "sample_by": sample.sample_by,
        "request": _clean(request, names),
        "production": {"server": sample.server, **_shown(sample.production, names)},
        "candidates": {name: _shown(answer, names) for name, answer in sample.candidates.items()},
    }
    return (
        json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"
    )


def _shown(answer: Answer, names: frozenset[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "result": answer.result,
        "status": answer.status,
        "seconds": round(answer.seconds, 4),
    }
    if answer.is_stream:
        shown["said"] = _clean(said(b"".join(answer.body)), names)
    else:
        try:
            shown["answer"] = _clean(json.loads(b"".join(answer.body)), names)
        except (ValueError, RecursionError):
            shown["answer"] = None
    return shown


def _clean(value: Any, names: frozenset[str], depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return None
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_clean(each, names, depth + 1) for each in value]
    if isinstance(value, dict):
        return {
            redact(key): HIDDEN if key in names else _value(key, inner, names, depth + 1)
            for key, inner in value.items()
        }
    return value


def _value(key: str, value: Any, names: frozenset[str], depth: int) -> Any:
    """A text is judged beside its name, since a password shows by nothing else."""
    if not isinstance(value, str):
        return _clean(value, names, depth)
    beside = f"{key}: "
    together = redact(beside + value)
    return together.removeprefix(beside) if together.startswith(beside) else HIDDEN


def said(stream: bytes) -> dict[str, Any]:
    """What the events of a stream said, joined by where it belongs; and the last usage.

    A secret that a model says comes in many events, and is only found in the whole.
    """
    texts: dict[str, list[str]] = {}
    usage: Any = None
    for event in _events(stream):
        found = event.get("usage") or _inner(event, "response").get("usage")
        usage = found or usage
        for place, text in _pieces(event):
            texts.setdefault(place, []).append(text)
    return {"texts": {place: "".join(parts) for place, parts in texts.items()}, "usage": usage}


def _events(stream: bytes) -> Iterable[dict[str, Any]]:
    for row in stream.decode(errors="replace").splitlines():
        if row.startswith("data:"):
            try:
                event = json.loads(row[5:])
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


def _pieces(event: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Each generated text of an event, with its place in the answer."""
    kind = event.get("type")
    delta = event.get("delta")
    if isinstance(kind, str) and isinstance(delta, str):  # responses
        yield f"{kind.removesuffix('.delta')}.{event.get('output_index', 0)}", delta
    elif isinstance(delta, dict):  # messages
        for name in ("text", "thinking", "partial_json"):
            if isinstance(delta.get(name), str):
                yield f"content.{event.get('index', 0)}.{name}", delta[name]
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            yield from _of_choice(choice)


def _of_choice(choice: dict[str, Any]) -> Iterable[tuple[str, str]]:
    at = f"choices.{choice.get('index', 0)}"
    if isinstance(choice.get("text"), str):
        yield f"{at}.text", choice["text"]
    if isinstance(choice.get("finish_reason"), str):
        yield f"{at}.finish_reason", choice["finish_reason"]
    delta = _inner(choice, "delta")
    for name in ("content", "reasoning_content", "reasoning", "refusal"):
        if isinstance(delta.get(name), str):
            yield f"{at}.{name}", delta[name]
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            function = _inner(call, "function")
            for name in ("name", "arguments"):
                if isinstance(function.get(name), str):
                    yield f"{at}.tool_calls.{call.get('index', 0)}.{name}", function[name]


def _inner(outer: dict[str, Any], key: str) -> dict[str, Any]:
    inner = outer.get(key)
    return inner if isinstance(inner, dict) else {}
