"""Pydantic's errors in a fleet file's own words: which key, what is wrong, and the remedy."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fleet.config import Fleet, SecretRef, Server
from fleet.policy import Thresholds
from fleet.refusal import REFUSED

_BARE = re.compile(r"[A-Za-z0-9_-]+")

_WANTED = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": 'a list, like ["a", "b"]',
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}

_SHOWN_BY_EXAMPLE = {
    "tuple_type": "a list",
    "model_type": "a table",
    "model_attributes_type": "a table",
}

_LIMITS = {
    "greater_than_equal": ("{value} is too small", "choose at least {ge}"),
    "less_than_equal": ("{value} is too large", "choose at most {le}"),
    "string_too_short": ("is empty", "write it, or remove the key"),
    "string_too_long": ("is too long", "at most {max_length} characters"),
    "too_short": ("is empty", "give at least {min_length}"),
    "too_long": ("has too many entries", "give at most {max_length}"),
}

_KINDS: list[tuple[type | tuple[type, ...], str]] = [
    (bool, "true or false"),
    (str, "text"),
    ((int, float), "a number"),
    (list, "a list"),
    (dict, "a table"),
    ((datetime, date, time), "a date or time"),
]

Worded = tuple[str, str, str]


def worded(error: ErrorDetails) -> Worded:
    """The key path as the file writes it, the message, and the remedy."""
    path, parent, field = _resolved(error["loc"])
    context: Mapping[str, Any] = error.get("ctx", {})
    kind = error["type"]
    if kind == REFUSED:
        return dotted(path), str(context["message"]), str(context["remedy"])
    if kind == "extra_forbidden":
        return dotted(path), "unknown key", _nearest(str(path[-1]), path[:-1], parent)
    if kind.startswith("union_tag"):
        return _kind_of_table(path, kind, context)
    if kind in _WANTED:
        return dotted(path), f"is {_sort(error['input'])}", f"write {_wanted(error, field)}"
    if error["loc"][-1:] == ("[key]",):
        remedy = "take letters, digits, '.', '_' and '-', at most 63, a letter or digit first"
        return dotted(path), "is no name", remedy
    message, remedy = _of_value(error, context, field)
    return dotted(path), message, remedy


def _wanted(error: ErrorDetails, field: FieldInfo | None) -> str:
    if error.get("ctx", {}).get("class_name") == SecretRef.__name__:
        return '{ env = "VARIABLE" } or { file = "PATH" }'
    if field is not None and field.examples and error["type"] in _SHOWN_BY_EXAMPLE:
        return f"{_SHOWN_BY_EXAMPLE[error['type']]}, like {field.examples[0]}"
    return _WANTED[error["type"]]


def _of_value(
    error: ErrorDetails, context: Mapping[str, Any], field: FieldInfo | None
) -> tuple[str, str]:
    value = error["input"]
    match error["type"]:
        case "missing":
            return "is missing", "add it; fleet.example.toml shows how"
        case "enum" | "literal_error":
            choice = str(context["expected"]).replace("'", '"')
            return f"{_shown(value)} is none of its values", f"choose {choice}"
        case "string_pattern_mismatch":
            return _of_pattern(value, field)
    if error["type"] in _LIMITS:
        message, remedy = _LIMITS[error["type"]]
        return message.format(value=value), remedy.format(**context)
    return error["msg"][:1].lower() + error["msg"][1:], "see fleet.example.toml"


def _of_pattern(value: object, field: FieldInfo | None) -> tuple[str, str]:
    if field is None or field.description is None:
        return f"{_shown(value)} has a character that has no place there", "remove it"
    example = f", like {field.examples[0]}" if field.examples else ""
    return f"{_shown(value)} is not {field.description}", f"write one{example}"


def _kind_of_table(path: list[str | int], kind: str, context: Mapping[str, Any]) -> Worded:
    at = dotted([*path, "kind"])
    if kind == "union_tag_not_found":
        kinds = '"redis", "status" or "vllm"' if path[-1] == "source" else '"docker" or another'
        return at, "is missing", f"add kind = {kinds}; fleet.example.toml shows them"
    known = re.findall(r"'([^']+)'", str(context["expected_tags"]))
    tag = str(context["tag"])
    return at, f"there is no kind {_shown(tag)}", _suggestion(tag, known)


def _nearest(key: str, at: list[str | int], parent: type[BaseModel] | None) -> str:
    known = list(parent.model_fields) if parent is not None else []
    thresholds = list(Thresholds.model_fields)
    if key in thresholds and parent is Server:
        return f"it belongs in [{dotted([*at, 'policy'])}]"
    if key in thresholds and parent is not Thresholds:
        return "it belongs in [defaults], or in the policy of a server"
    return _suggestion(key, known)


def _suggestion(word: str, known: list[str]) -> str:
    close = get_close_matches(word.lower(), known, n=1)
    return f'did you mean "{close[0]}"?' if close else f"known: {', '.join(known)}"


def _sort(value: object) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "of another type")


def _shown(value: object) -> str:
    text = str(value)
    return json.dumps(text if len(text) <= 40 else f"{text[:39]}…", ensure_ascii=False)


def dotted(path: Sequence[str | int]) -> str:
    """A path of keys as a fleet file writes it: ``servers.gpu-1.policy.retry_delays[2]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


def _resolved(
    loc: tuple[str | int, ...],
) -> tuple[list[str | int], type[BaseModel] | None, FieldInfo | None]:
    """The path without pydantic's tags, the model that holds its last key, and that key's field."""
    path: list[str | int] = []
    at: Any = Fleet
    parent: type[BaseModel] | None = None
    field: FieldInfo | None = None
    for step in loc:
        members = _tagged(at)
        if members:
            at = _unwrapped(members.get(step))
        elif step != "[key]":
            path.append(step)
            parent = at if isinstance(at, type) and issubclass(at, BaseModel) else None
            field = parent.model_fields.get(str(step)) if parent is not None else None
            at = _inside(at, field)
    return path, parent, field


def _inside(at: Any, field: FieldInfo | None) -> Any:
    """What a key of a model, a value of a table or an entry of a list is declared as."""
    if field is not None:
        overrides = field.annotation == dict[str, Any]
        return Thresholds if overrides else _unwrapped(field.annotation)
    arguments = [each for each in get_args(at) if each is not ...]
    return _unwrapped(arguments[-1]) if arguments else None


def _unwrapped(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return _unwrapped(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [each for each in get_args(annotation) if each is not NoneType]
        return _unwrapped(members[0]) if len(members) == 1 else annotation
    return annotation


def _tagged(annotation: Any) -> dict[str | int, Any]:
    """The models of a discriminated union by their tags; nothing for anything else."""
    if get_origin(annotation) not in (Union, UnionType):
        return {}
    return {tag: each for each in get_args(annotation) for tag in _tags(each)}


def _tags(member: Any) -> tuple[str, ...]:
    if get_origin(member) is Annotated:
        return tuple(each.tag for each in get_args(member) if isinstance(each, Tag))
    return get_args(member.model_fields["kind"].annotation)
