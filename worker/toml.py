"""Reading TOML, with the parser's complaints in words that name the key and the remedy."""

import re
import tomllib
from pathlib import Path
from typing import Any

from worker.problems import FleetFileError, Problem

#: A fleet of thousands of servers stays far below.
_LONGEST = 4_000_000

_PLACE = re.compile(
    r"(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|.*)\)", re.DOTALL
)
_HEADER = re.compile(r"\s*\[+\s*(?P<key>[^\]#]+?)\s*\]")
_ASSIGNMENT = re.compile(r"\s*(?P<key>[^=#\[]+?)\s*=")
_QUOTES = 'text and durations stand in quotes, like "3m"; TOML has true and false, and no null'

_TWICE = re.compile("Cannot (declare|mutate|overwrite|redefine)|Duplicate")

#: What the parser says, what is said instead (its own words where empty), and the remedy.
_TRANSLATIONS: list[tuple[str, str, str]] = [
    (_TWICE.pattern, "is set twice in one table", "keep one of the two"),
    (r"Illegal character '\\n'", "the text has no end on its line", "close the quote"),
    (r"Unclosed", "", f"close it; {_QUOTES}"),
    (r"Invalid value|Expected newline", "", _QUOTES),
]


def read(path: Path) -> dict[str, Any]:
    """The tables of the file.

    Raises:
        FleetFileError: there is no such file, it can't be read, or it is no TOML.
    """
    text = _text(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise FleetFileError([_explained(path, text, str(problem))]) from None
    except RecursionError:
        raise FleetFileError([_whole(path, "is nested too deeply", "flatten it")]) from None


def _text(path: Path) -> str:
    remedy = "name another file, or start from fleet.example.toml"
    try:
        if path.is_dir():
            raise FleetFileError([_whole(path, "is a folder", "name the file in it")])
        if path.exists() and not path.is_file():
            raise FleetFileError([_whole(path, "is no regular file", remedy)])
        with path.open("rb") as file:
            data = file.read(_LONGEST + 1)
    except FileNotFoundError:
        raise FleetFileError([_whole(path, "there is no such file", remedy)]) from None
    except OSError as problem:
        why = (problem.strerror or "failed").lower()
        raise FleetFileError([_whole(path, f"can't be read: {why}", remedy)]) from None
    if len(data) > _LONGEST:
        raise FleetFileError([_whole(path, f"is longer than {_LONGEST} bytes", "make it shorter")])
    return _decoded(path, data)


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        what = f"byte {data[problem.start]:#04x} is no UTF-8"
        raise FleetFileError(
            [Problem(str(path), line, "", what, "save the file as UTF-8")]
        ) from None


def _whole(path: Path, message: str, remedy: str) -> Problem:
    return Problem(str(path), None, "", message, remedy)


def _explained(path: Path, text: str, complaint: str) -> Problem:
    place = _PLACE.fullmatch(complaint)
    if place is None or place["line"] is None:
        what = place["what"] if place else complaint
        message = f"ends in the middle of something: {_lowered(what)}"
        return _whole(path, message, "close the bracket or quote that is open at its end")
    number = int(place["line"])
    key, message, remedy = _translated(place["what"], text.splitlines(), number)
    if not key:
        message = f"{message} (column {place['column']})"
    return Problem(str(path), number, key, message, remedy)


def _translated(what: str, lines: list[str], number: int) -> tuple[str, str, str]:
    """Key, message and remedy for what the parser found at a line."""
    line = lines[number - 1] if number <= len(lines) else ""
    header, assignment = _HEADER.match(line), _ASSIGNMENT.match(line)
    key = header["key"] if header else assignment["key"] if assignment else ""
    if duplicate := re.fullmatch(r"Duplicate inline table key '(.*)'", what):
        key = duplicate[1]
    elif header and _TWICE.match(what):
        return _twice(key, lines, number)
    for pattern, message, remedy in _TRANSLATIONS:
        if re.match(pattern, what):
            return key, message or _lowered(what), remedy
    return key, _lowered(what), "mend the TOML there"


def _twice(key: str, lines: list[str], number: int) -> tuple[str, str, str]:
    first = _first_of(key, lines[: number - 1])
    there = f", first at line {first}" if first else ""
    name = re.fullmatch(r"servers\.([^.]+)", key)
    if name:
        message = f"two servers have the name {name[1].strip(chr(34))}{there}"
        return key, message, "give each a name of its own, or remove one"
    return key, f"the table stands twice{there}", "make one table of the two"


def _first_of(key: str, lines: list[str]) -> int | None:
    for number, line in enumerate(lines, 1):
        header = _HEADER.match(line)
        if header and header["key"] == key:
            return number
    return None


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
