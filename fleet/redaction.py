"""Takes secrets of the usual forms out of text that leaves a host: evidence, and errors.

It is a net under the rule that nothing asks for secrets in the first place (``docker inspect`` is
never asked for a container's environment), not a licence to collect them. What has no usual form
and no telling name is not found: a password as the bare third argument of a program, say.

Every repetition is bounded and every search begins with fixed letters, so that the time is linear
in the text, whatever it says.
"""

import re
from collections.abc import Callable

HIDDEN = "[redacted]"

# All but the keys are searched for in a text of small letters, which is faster than to ignore case.
_TELLING = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token(?!iz)|credential|signature"
    r"|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|auth[_-]?key|encryption[_-]?key"
    r"|conn(?:ection)?[_-]?str(?:ing)?)"
    r"[\w.-]{0,40}+"
)
#: A quote, or one that another layer of quoting has escaped.
_QUOTE = r"""\\{0,4}["']"""
_VALUE = (
    r"""(?:"(?:[^"\\\n]|\\.){0,8192}"?"""
    r"""|'(?:[^'\\\n]|\\.){0,8192}'?"""
    r"""|\\{1,4}["'][^"'\\\n]{0,8192}"""
    r"""|[^\s"',;&}\]\\]{1,8192})"""
)
_LINE = (
    r"""(?:"[^"\n]{1,8192}"?|'[^'\n]{1,8192}'?|\\{1,4}["'][^"'\\\n]{1,8192}"""
    r"""|(?:digest|aws4-hmac-sha256)[^\n]{1,8192}|[^\n"'\\]{1,8192})"""
)

_COLOURS = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|[@-Z\\-_])")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
#: Characters, with what a log writes before each line.
_LONGEST_PEM = 16 * 1024

#: Keys that show by their own form what they are.
_KEYS = re.compile(
    r"\b(?:(?:sk|pk|rk|pplx|nvapi|xai|pypi|tskey|gl[a-z]{2,10}|xox[a-z]|xapp|GOCSPX)-"
    r"[A-Za-z0-9_-]{12,1024}"
    # Underscores alone are in many harmless names, so one long word has to follow.
    r"|(?:hf|sk|pk|rk|gsk|fw|tgp|r8|npm|dckr_pat|dop|gh[a-z]|github_pat|whsec|shpat|lin_api)_"
    r"(?:[A-Za-z0-9]{1,11}_){0,3}[A-Za-z0-9]{12,1024}[A-Za-z0-9_-]{0,1024}"
    r"|hvs\.[A-Za-z0-9_-]{12,1024}"
    r"|(?:AKIA|ASIA|ABIA|ACCA|AIDA|AROA)[A-Z0-9]{16}\b"
    r"|AIza[A-Za-z0-9_-]{30,200}"
    r"|ya29\.[A-Za-z0-9_.-]{20,2048}"
    r"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,128}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{30,100}"
    r"|\d{8,12}:AA[A-Za-z0-9_-]{30,200}"
    r"|eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{8,8192}(?:\.[A-Za-z0-9_-]{0,8192})?)"
)
_WEBHOOK = re.compile(r"(?P<slack>hooks\.slack\.com/|/api/webhooks/)[a-z0-9_/-]{8,256}", re.ASCII)
_HEADER = re.compile(
    rf"(?P<auth>authorization(?:{_QUOTE})?\s{{0,4}}[:=]\s{{0,4}}){_LINE}"
    rf"|(?P<cookie>cookie(?:{_QUOTE})?:\s{{0,4}}){_LINE}"
    r"|(?P<bearer>bearer\s{1,4}|basic\s{1,4}(?=[a-z0-9+/]{16,8192}={0,2}(?![\w-])))"
    r"[a-z0-9._~+/=-]{8,8192}"
)
_PLACE = re.compile(r"(?P<start>://)(?P<rest>[^\s\"'<>]+)")
_QUERY = re.compile(r"(?P<query>[?&](?:sig|key|code|auth|jwt)=)[^\s\"'&]{1,2048}")
_CURL = re.compile(
    r"""(?P<curl>-(?:u|-user)(?:["'],\s{0,80}["']|[ =]["']?)[^\s:"']{1,64}:)[^\s"']{1,512}"""
)
_OPTION = re.compile(
    rf"(?P<option>--(?:[\w.]|-(?!-)){{0,64}}?{_TELLING}"
    rf"(?:(?:{_QUOTE}),\s{{0,80}}(?={_QUOTE}(?!--))|[ \t]{{1,8}}(?![-\s])|=)){_VALUE}"
)
_PAIR = re.compile(rf"(?P<pair>{_TELLING}(?:{_QUOTE})?\s{{0,4}}(?:=>|[:=])\s{{0,4}}){_VALUE}")

_NO_SECRET = re.compile(r"[\"'\\]*(?:none|null|nil|true|false|auto|\*{3,}|)[\"'\\]*")
_COUNT = re.compile(r"[\"'\\(\[]*\d{1,9}(?:\.\d{1,9})?[\"'\\)\]]*")

_SMALL = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def redact(text: str) -> str:
    """The text, with each thing that looks like a secret replaced by ``[redacted]``.

    Colours of a terminal go too, since they would stand between a name and its value.
    """
    text = _headless(_PEM.sub(HIDDEN, _COLOURS.sub("", text)))
    text = _PLACE.sub(_without_user, text)
    for pattern in (_WEBHOOK, _HEADER, _QUERY, _CURL):
        text = _after(pattern, text, lambda _kept, _value: True)
    for pattern in (_OPTION, _PAIR):
        text = _after(pattern, text, _is_secret)
    # At the end, since a name may look like a key, and its value would lose its name.
    return _KEYS.sub(HIDDEN, text)


def without_cut_line(text: str) -> str:
    """A text whose beginning was cut off, from its first whole line on.

    What is left of the first line may be the end of a secret whose name is gone. Of one endless
    line nothing is left.
    """
    return text.partition("\n")[2]


def _headless(text: str) -> str:
    """A private key whose beginning was cut off leaves its end; what a key may be is hidden."""
    parts, done = [], 0
    for end in _PEM_END.finditer(text):
        parts += [text[done : max(done, end.start() - _LONGEST_PEM)], HIDDEN]
        done = end.end()
    return "".join([*parts, text[done:]])


def _without_user(match: re.Match[str]) -> str:
    """A URL without its password; without its user, where that is long enough to be a token."""
    rest = match["rest"]
    at = rest.rfind("@")
    user, colon, _ = rest[: max(at, 0)].partition(":")
    if at < 0 or not (colon or (len(user) >= 16 and "/" not in user)):
        return match[0]
    return f"{match['start']}{user + colon if colon else ''}{HIDDEN}{rest[at:]}"


def _after(pattern: re.Pattern[str], text: str, hides: Callable[[str, str], bool]) -> str:
    """Hide what follows the one group of each match, where ``hides`` says so of both."""
    small = text.translate(_SMALL)
    parts, done = [], 0
    for match in pattern.finditer(small):
        begins = match.end(match.lastgroup or 0)
        if hides(small[match.start() : begins], small[begins : match.end()]):
            parts += [text[done:begins], HIDDEN]
            done = match.end()
    return "".join([*parts, text[done:]])


def _is_secret(name: str, value: str) -> bool:
    if value == HIDDEN.removesuffix("]") or _NO_SECRET.fullmatch(value):
        return False
    # An inference log counts tokens of another kind all the time.
    return not ("token" in name and _COUNT.fullmatch(value))
