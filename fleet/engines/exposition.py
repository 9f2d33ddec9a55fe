"""The few wanted samples of a metrics page, found without parsing the rest of it.

Both text forms are read, the classic one and OpenMetrics. A line that makes no sense is passed
over: whoever needs it finds it missing.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

#: More samples of one name than any engine writes.
MOST_SAMPLES = 2000
#: Characters of one line; a longer one is no sample that is wanted here.
_LONGEST_LINE = 20_000
#: Labels of at most so many characters are kept from page to page: an engine writes the same again.
_KEPT_LABELS = 400
_HEAD = 2048

#: What follows a name. Possessive, so that no line is tried twice, whatever it holds.
_REST = (
    rb'(?:[ \t]*+\{((?:[^"}\n]++|"(?:[^"\\\n]++|\\[^\n])*+")*+)\}|(?=[ \t]))'
    rb"[ \t]*+([^ \t\r\n]++)[^\n]*+"
)
_LABEL = re.compile(rb'([A-Za-z_][A-Za-z0-9_]*+)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_ESCAPED = re.compile(r'\\(["\\n])')
_PLAIN = {"n": "\n"}

Labels = Mapping[str, str]
#: The samples of each name in the page's order; names that it does not have are left out.
Samples = Mapping[str, Sequence[tuple[Labels, float]]]
_Tree = dict[str, "_Tree"]


def samples(page: bytes, name: str) -> Sequence[tuple[Labels, float]]:
    """Each sample of the series ``name``, in the page's order. A value may be NaN or infinite."""
    return find(page, frozenset((name,))).get(name, ())


def find(page: bytes, names: frozenset[str]) -> Samples:
    """The samples of these names, in one pass over the page."""
    line = _line_of(names)
    found: dict[str, list[tuple[Labels, float]]] = {}
    known: dict[bytes, Labels] = {}
    first = line.match(b"\n" + page[:_LONGEST_LINE].partition(b"\n")[0])
    for each in (*((first,) if first else ()), *line.finditer(page)):
        if each.end() - each.start() > _LONGEST_LINE:
            continue
        name, labels, text = each.groups(b"")
        try:
            value = float(text)
        except ValueError:
            continue
        if labels not in known:
            known[labels] = _kept(labels) if len(labels) <= _KEPT_LABELS else _labels(labels)
        of_name = found.setdefault(name.decode(), [])
        if len(of_name) < MOST_SAMPLES:
            of_name.append((known[labels], value))
    return found


@lru_cache(maxsize=64)
def _line_of(names: frozenset[str]) -> re.Pattern[bytes]:
    """A line that has a sample of one of the names.

    The names are written as a tree of their common beginnings, so that a line is left at the first
    character that is none's; one after the other they take four times as long.
    """
    tree: _Tree = {}
    for name in names:
        branch = tree
        for character in name:
            branch = branch.setdefault(character, {})
        branch[""] = {}
    return re.compile(rb"\n(" + _written(tree).encode() + rb")" + _REST)


def _written(tree: _Tree) -> str:
    branches = [re.escape(each) + _written(rest) for each, rest in sorted(tree.items()) if each]
    if not branches:
        return ""
    one = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{one})?" if "" in tree else one


@lru_cache(maxsize=1024)
def _kept(labels: bytes) -> Labels:
    return _labels(labels)


def _labels(text: bytes) -> Labels:
    found = {}
    for name, value in _LABEL.findall(text):
        said = value.decode(errors="replace")
        found[name.decode()] = _ESCAPED.sub(_unescaped, said) if "\\" in said else said
    return found


def _unescaped(found: re.Match[str]) -> str:
    return _PLAIN.get(found[1], found[1])


def why_no_page(page: bytes) -> str:
    """Why this can't be a metrics page, in words; empty where it may be one."""
    head = page[:_HEAD].lstrip()
    if not head:
        return "the page is empty"
    if b"\0" in head:
        return "the page is binary"
    if head[:1] == b"<":
        return "the page is HTML or XML, and no metrics"
    if head[:1] in (b"{", b"["):
        return "the page is JSON, and no metrics"
    try:
        head[: -4 if len(page) > _HEAD else None].decode()
    except UnicodeDecodeError:
        return "the page is no text"
    return ""
