"""Takes secrets of the usual forms out of text that leaves a host: evidence, and errors.

It is a net under the rule that nothing asks for secrets in the first place (``docker inspect`` is
never asked for a container's environment), not a licence to collect them.
"""

import re

HIDDEN = "[redacted]"

_TELLING_NAME = (
    r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|auth[_-]?key)s?\d*"
)
_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"',;&}\]]+)"""

_WHOLE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:hf|sk|pk|rk|gsk|nvapi|xai|r8|ghp|gho|ghs|github_pat|glpat|xox[a-z])[-_]"
    r"[A-Za-z0-9_-]{12,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    re.DOTALL,
)
_AFTER = re.compile(
    # An Authorization header, whatever its scheme; a bearer token wherever it stands.
    r"(?P<auth>authorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|digest|token)\s+)?"
    r"|\bbearer\s+)[^\s\"',;]+"
    # A password in a URL.
    r"|(?P<url>\b[a-z][a-z0-9+.-]*://[^\s/@:]*:)[^\s/@]+(?=@)"
    # NAME=value, "name": "value", --name value.
    rf"|(?P<option>--{_TELLING_NAME}[ =]){_VALUE}"
    rf"|(?P<pair>\b{_TELLING_NAME}[\"']?\s*[:=]\s*){_VALUE}",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """The text, with each thing that looks like a secret replaced by ``[redacted]``."""
    return _AFTER.sub(_keep_name, _WHOLE.sub(HIDDEN, text))


def _keep_name(match: re.Match[str]) -> str:
    kept = next(part for part in match.groups() if part is not None)
    value = match[0].removeprefix(kept)
    # An inference log counts tokens of another kind all the time.
    if "token" in kept.lower() and re.fullmatch(r"\d{1,9}(?:\.\d+)?", value):
        return match[0]
    return f"{kept}{HIDDEN}"
