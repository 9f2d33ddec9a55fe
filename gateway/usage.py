"""The tokens that an answer says it took, and its model, found in its bytes without reading it as
JSON.

A quote inside a JSON text is escaped, so ``"usage"`` with its quotes and a colon is a key, and
never something that a model said.
"""

import re

#: A usage object is shorter than this.
_LONGEST = 4096
_INPUT = (b"prompt", b"input")
_KEY = b'"usage"'
_BEGINS = re.compile(rb'"usage"\s{0,16}:\s{0,16}\{')
#: As nearly all engines write it.
_PLAIN = re.compile(
    rb'"usage": ?\{"prompt_tokens": ?(\d{1,12}),(?: ?"total_tokens": ?\d{1,12},)?'
    rb' ?"completion_tokens": ?(\d{1,12})'
)
_COUNT = re.compile(rb'"(prompt|input|completion|output)_tokens"\s{0,16}:\s{0,16}(\d{1,12})')
_MODEL = re.compile(rb'"model"\s{0,16}:\s{0,16}"([^"\\]{1,128})"')


def model(data: bytes) -> bytes:
    """The name of the model that some bytes of an answer tell; empty where they tell none."""
    found = _MODEL.search(data)
    return b"" if found is None else found[1]


def usage(data: bytes) -> tuple[int | None, int | None]:
    """Tokens of the prompt and of the answer, as the last usage object in some bytes says; none for
    what it leaves out.
    """
    at = data.rfind(_KEY)
    plain = _PLAIN.match(data, at) if at >= 0 else None
    if plain is not None:
        return int(plain[1]), int(plain[2])
    while at >= 0 and _BEGINS.match(data, at) is None:
        at = data.rfind(_KEY, 0, at)
    if at < 0:
        return None, None
    read = written = None
    for kind, count in _COUNT.findall(data, at, at + _LONGEST):
        if kind in _INPUT:
            read = int(count)
        else:
            written = int(count)
    return read, written
