"""Where a secret is found, and URLs that hold none."""

import re
from typing import Self
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import BaseModel, Field, model_validator

from fleet.policy import STRICT
from fleet.refusal import refusal

_SECRET_PARAMETER = re.compile(
    r".*(pass(word|wd)?|secret|token|api_?key|credential).*|auth|sig|signature", re.IGNORECASE
)


class SecretRef(BaseModel):
    """Where a secret is found: an environment variable of the worker, or a file on its disk.

    The secret itself never stands in the fleet file, so it never enters a workflow.
    """

    model_config = STRICT

    env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="the name of a variable",
        examples=["STEADY_TOKEN"],
    )
    file: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise refusal(
                "a secret has one place", 'write { env = "VARIABLE" } or { file = "PATH" }'
            )
        return self


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
