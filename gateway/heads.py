"""The heads of HTTP/1.1 messages: read strictly, and judged for exactly one framing.

httptools reads the lines. What it lets through is judged here: several hosts, weak framings, forms
of targets. A head is only ever written anew from what was read, so that the next server sees the
framing that was decided here, and no other.
"""

from collections.abc import Callable, Iterable
from copy import copy
from functools import lru_cache

import httptools

from gateway.faults import Fault, Refused

END = b"\r\n\r\n"

#: On a connection that is kept alive heads repeat: a client's to the byte, a server's for a second.
REMEMBERED = 512
LONGEST_REMEMBERED = 4096
#: No body is longer than what fits 18 digits.
_LONGEST_NUMBER = 18

#: They belong to one connection, and are never passed on (RFC 9110, 7.6.1); the framing is written
#: anew.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"content-length",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

#: What a trailer may not say, since it would have had to be known before the body.
NOT_IN_TRAILERS = HOP_BY_HOP | {b"host", b"authorization", b"cookie", b"set-cookie", b"expect"}

MARKER = b"steady-mirror"
_OURS = frozenset({b"host", b"expect", MARKER})

#: The last parts of paths that ask a model for something, in the words of the OpenTelemetry
#: conventions for generative AI.
_OPERATIONS = {
    b"completions": "text_completion",
    b"responses": "chat",
    b"messages": "chat",
    b"embeddings": "embeddings",
    b"rerank": "rerank",
}

Field = tuple[bytes, bytes, bytes]  # name in lower case, name, value


#: What can be told of an answer's body from its bytes as they pass.
STREAM, JSON, COMPRESSED, OTHER = "stream", "json", "compressed", "other"


class _Lines:
    """What httptools calls back."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.target = b""
        self.reason = b""

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), name, value.strip(b" \t")))


class _Framing:
    """What the fields say of the body and of the connection."""

    __slots__ = ("chunked", "length", "named", "options")

    def __init__(self, fields: Iterable[Field]) -> None:
        self.length: int | None = None
        self.chunked = False
        self.options: set[bytes] = set()
        for low, _, value in fields:
            if low == b"content-length":
                self._take_length(value)
            elif low == b"transfer-encoding":
                self._take_coding(value)
            elif low == b"connection":
                self.options |= {each.strip(b" \t").lower() for each in value.split(b",")}
        if self.chunked and self.length is not None:
            raise _bad("Content-Length and Transfer-Encoding are both there")
        self.named = self.options - {b"", b"close", b"keep-alive"}

    def _take_length(self, value: bytes) -> None:
        if self.length is not None:
            raise _bad("Content-Length is there twice")
        if not value.isdigit() or len(value) > _LONGEST_NUMBER:
            raise _bad("Content-Length is no length")
        self.length = int(value)

    def _take_coding(self, value: bytes) -> None:
        if self.chunked or value.lower() != b"chunked":
            raise _bad("Transfer-Encoding is not 'chunked', once")
        self.chunked = True

    def passed_on(self, fields: Iterable[Field], also: frozenset[bytes]) -> tuple[Field, ...]:
        left_out = HOP_BY_HOP | also | self.named
        return tuple(field for field in fields if field[0] not in left_out)


class RequestHead:
    """A request's head; ``fields`` are those that may be passed on. It is shared: never change it.

    ``length`` is none for a chunked body, and 0 for none. ``host`` is what the client asked for.
    ``marked`` says that it is a mirrored request, with the marker's value. ``operation`` is what it
    asks a model for.
    """

    __slots__ = (
        "chunked",
        "expects",
        "fields",
        "forwarded",
        "host",
        "is_head",
        "keep_alive",
        "length",
        "marked",
        "method",
        "operation",
        "path",
        "size",
        "target",
        "upgrade",
        "version",
    )

    def __init__(self, method: bytes, version: str, lines: _Lines, size: int) -> None:
        framing = _Framing(lines.fields)
        self.method, self.version, self.size = method, version, size
        self.is_head = method == b"HEAD"
        self.target, authority = _origin_form(method, lines.target)
        self.path = self.target.partition(b"?")[0]
        self.operation = _operation(self.path)
        self.chunked = framing.chunked
        self.length = None if framing.chunked else framing.length or 0
        if version == "1.0":
            if framing.chunked:
                raise _bad("Transfer-Encoding in a request of HTTP/1.0")
            self.keep_alive = b"keep-alive" in framing.options
        else:
            self.keep_alive = b"close" not in framing.options
        named = {low: value for low, _, value in lines.fields if low in _OURS or low == b"upgrade"}
        hosts = sum(low == b"host" for low, _, _ in lines.fields)
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise _bad("there must be exactly one Host")
        self.host = authority or named.get(b"host", b"")
        self.upgrade = named.get(b"upgrade", b"").lower() if b"upgrade" in framing.options else b""
        self.marked = named.get(MARKER)
        expected = named.get(b"expect", b"").lower()
        if expected not in (b"", b"100-continue"):
            raise _bad("Expect is not '100-continue'")
        self.expects = bool(expected) and version == "1.1" and self.length != 0
        if framing.named & {b"host", b"authorization"}:
            raise _bad("Connection names a field that belongs to the request")
        self.fields = framing.passed_on(lines.fields, _OURS)
        self.forwarded = written(self.fields)

    def changed(self, length: int | None, fields: tuple[Field, ...]) -> "RequestHead":
        """The same with another length and other fields."""
        other = copy(self)
        other.length, other.fields, other.forwarded = length, fields, written(fields)
        return other


class AnswerHead:
    """An answer's head; ``length`` is none where the body is chunked, or ends by a close."""

    __slots__ = (
        "chunked",
        "fields",
        "form",
        "forwarded",
        "keep_alive",
        "length",
        "reason",
        "size",
        "status",
    )

    def __init__(self, status: int, version: str, lines: _Lines, size: int) -> None:
        framing = _Framing(lines.fields)
        self.status, self.reason, self.size = status, lines.reason, size
        self.chunked, self.length = framing.chunked, framing.length
        if version == "1.0":
            self.keep_alive = b"keep-alive" in framing.options
        else:
            self.keep_alive = b"close" not in framing.options
        self.fields = framing.passed_on(lines.fields, frozenset())
        self.forwarded = written(self.fields)
        self.form = _form(self.fields)

    def of_unknown_length(self) -> "AnswerHead":
        """The same, where the body is to be changed as it passes."""
        other = copy(self)
        other.length = None
        return other

    def has_no_body(self, to_head: bool) -> bool:
        return to_head or self.status in (204, 304) or self.status < 200


def request_head(raw: bytes) -> RequestHead:
    """Read a head that ends with an empty line.

    Raises:
        Refused: it is not one that every server would read alike, or that is served here.
    """
    return _request(raw) if len(raw) > LONGEST_REMEMBERED else _remembered_request(raw)


def answer_head(raw: bytes) -> AnswerHead:
    """Read the head of an answer.

    Raises:
        Refused: it is broken, with ``Fault.BACKEND_BROKEN``.
    """
    return _answer(raw) if len(raw) > LONGEST_REMEMBERED else _remembered_answer(raw)


def written(fields: Iterable[Field]) -> bytes:
    return b"".join([b"%b: %b\r\n" % (name, value) for _, name, value in fields])


def trailer_fields(raw: bytes) -> bytes:
    """The trailers of a chunked body that may be passed on, each with its line end.

    Raises:
        Refused: they are no fields.
    """
    if raw == b"\r\n":
        return b""
    lines = _Lines()
    parser = httptools.HttpResponseParser(lines)
    try:
        parser.feed_data(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + _no_framing(raw))
    except httptools.HttpParserError as problem:
        raise _bad(f"the trailers are broken: {str(problem).lower()}") from None
    return written(field for field in lines.fields[1:] if field[0] not in NOT_IN_TRAILERS)


def _no_framing(raw: bytes) -> bytes:
    """Lines that the parser would take for the framing of the head that is put before them."""
    lines = raw.split(b"\r\n")
    return b"\r\n".join(
        line for line in lines if line.partition(b":")[0].strip().lower() not in HOP_BY_HOP
    )


def _request(raw: bytes) -> RequestHead:
    lines = _Lines()
    parser = httptools.HttpRequestParser(lines)
    problem = _fed(parser.feed_data, raw)
    if problem is not None:
        raise problem
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise Refused(Fault.UNSUPPORTED, f"HTTP/{version} is not served: use HTTP/1.1")
    method = parser.get_method()
    if not raw.startswith(b"%b %b HTTP/%b\r\n" % (method, lines.target, version.encode())):
        raise _bad("the request line has other blanks than one on each side of the target")
    return RequestHead(method, version, lines, len(raw))


def _answer(raw: bytes) -> AnswerHead:
    lines = _Lines()
    parser = httptools.HttpResponseParser(lines)
    problem = _fed(parser.feed_data, raw)
    if problem is not None:
        raise Refused(Fault.BACKEND_BROKEN, problem.message)
    try:
        return AnswerHead(parser.get_status_code(), parser.get_http_version(), lines, len(raw))
    except Refused as refused:
        raise Refused(Fault.BACKEND_BROKEN, refused.message) from None


_remembered_request = lru_cache(REMEMBERED)(_request)
_remembered_answer = lru_cache(REMEMBERED)(_answer)


def _operation(path: bytes) -> str | None:
    if path.endswith(b"/chat/completions"):
        return "chat"
    return _OPERATIONS.get(path[path.rfind(b"/") + 1 :])


def _form(fields: Iterable[Field]) -> str:
    values = {low: value.lower() for low, _, value in fields}
    kind = values.get(b"content-type", b"").partition(b";")[0].strip()
    if kind not in (b"text/event-stream", b"application/json"):
        return OTHER
    if values.get(b"content-encoding", b"identity") != b"identity":
        return COMPRESSED
    return STREAM if kind == b"text/event-stream" else JSON


def _fed(feed: Callable[[bytes], object], raw: bytes) -> Refused | None:
    try:
        feed(raw)
    except httptools.HttpParserUpgrade:
        return None
    except httptools.HttpParserInvalidMethodError:
        return Refused(Fault.UNSUPPORTED, "there is no such method")
    except httptools.HttpParserError as problem:
        return _bad(str(problem).lower())
    return None


def _origin_form(method: bytes, target: bytes) -> tuple[bytes, bytes]:
    """Path and query, and the authority where the target is a whole URL."""
    if target.startswith(b"/"):
        return target, b""
    if method == b"CONNECT":
        raise Refused(Fault.UNSUPPORTED, "CONNECT is not served")
    scheme, mark, rest = target.partition(b"://")
    if mark and scheme.lower() in (b"http", b"https"):
        authority, slash, path = rest.partition(b"/")
        if authority and b"?" not in authority and b"@" not in authority:
            return slash + path if slash else b"/", authority
    raise _bad("the target is no path")


def _bad(message: str) -> Refused:
    return Refused(Fault.BAD_REQUEST, f"the request is broken: {message}")
