"""The few wanted samples of a metrics page, found without parsing the rest of it.

Both text forms are read, the classic one and OpenMetrics. A line that makes no sense is passed
over: whoever needs it finds it missing.
"""

import re
from collections.abc import Iterator

#: More samples of one name than any engine writes.
MOST_SAMPLES = 2000
#: Characters of one line; a longer one is no sample that is wanted here.
_LONGEST_LINE = 20_000
_HEAD = 2048

_SAMPLE = re.compile(rb'(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]*([^ \t\r]+)')
_LABEL = re.compile(rb'([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r'\\(["\\n])')
_PLAIN = {"n": "\n"}
_AFTER_NAME = frozenset(b"{ \t")

Labels = dict[str, str]


def samples(page: bytes, name: str) -> Iterator[tuple[Labels, float]]:
    """Each sample of the series ``name``, in the page's order. A value may be NaN or infinite."""
    wanted = name.encode()
    at, found = 0 if page.startswith(wanted) else page.find(b"\n" + wanted) + 1, 0
    while (at > 0 or page.startswith(wanted)) and found < MOST_SAMPLES:
        begin = at + len(wanted)
        end = page.find(b"\n", begin)
        end = len(page) if end < 0 else end
        if begin < len(page) and page[begin] in _AFTER_NAME and end - begin < _LONGEST_LINE:
            sample = _sample(page[begin:end])
            if sample is not None:
                found += 1
                yield sample
        at = page.find(b"\n" + wanted, end) + 1
        if at == 0:
            return


def _sample(rest: bytes) -> tuple[Labels, float] | None:
    parts = _SAMPLE.match(rest)
    if parts is None:
        return None
    try:
        value = float(parts[2])
    except ValueError:
        return None
    return dict(_labels(parts[1] or b"")), value


def _labels(text: bytes) -> Iterator[tuple[str, str]]:
    for name, value in _LABEL.findall(text):
        said = value.decode(errors="replace")
        yield name.decode(), _ESCAPED.sub(_unescaped, said) if "\\" in said else said


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
