"""URLs that hold no secret."""

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from fleet.refusal import refusal

_SECRET_PARAMETER = re.compile(
    r".*(pass(word|wd)?|secret|token|api_?key|credential).*|auth|sig|signature", re.IGNORECASE
)


def checked_url(url: str, schemes: tuple[str, ...], instead: str) -> str:
    """The URL, if it is one and holds no secret; ``instead`` says where that belongs.

    A refusal never repeats the URL: it may hold what it should not.
    """
    parts = _split(url)
    if parts.scheme not in schemes:
        ways = " or ".join(f"{scheme}://" for scheme in schemes)
        raise refusal("is no URL of a kind that is read here", f"begin it with {ways}")
    if "@" in parts.netloc:
        raise refusal("the URL holds a user name or password", f"write {instead}")
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET_PARAMETER.fullmatch(name):
            raise refusal(f"the URL holds a secret, its parameter {name!r}", f"write {instead}")
    if parts.scheme != "unix" and not parts.hostname:
        raise refusal("the URL names no host", f"write {parts.scheme}://HOST:PORT/…")
    return url


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - asking for it checks it
    except ValueError as problem:
        raise refusal("is no URL", str(problem).lower()) from None
    return parts
