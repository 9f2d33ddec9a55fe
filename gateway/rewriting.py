"""Heads as they are passed on: written anew, with the one framing that was decided here."""

from functools import lru_cache

from gateway.heads import LONGEST_REMEMBERED, REMEMBERED, AnswerHead, RequestHead
from gateway.pool import Address

LAST_CHUNK = b"0\r\n\r\n"


def request_bytes(head: RequestHead, to: Address, prefix: bytes) -> bytes:
    """The head as a backend gets it: its own host, the framing that was decided here."""
    if head.size > LONGEST_REMEMBERED:
        return new_request_bytes(head, to, prefix)
    return _remembered_request(head, to, prefix)


def new_request_bytes(head: RequestHead, to: Address, prefix: bytes) -> bytes:
    """The same for a head that won't come again."""
    target = to.path + (head.target[len(prefix) :] or b"/")
    if not target.startswith(b"/"):
        target = b"/" + target
    framing = b""
    if head.chunked:
        framing = b"Transfer-Encoding: chunked\r\n"
    elif head.length or head.method in (b"POST", b"PUT", b"PATCH"):
        framing = b"Content-Length: %d\r\n" % (head.length or 0)
    if head.expects:
        framing += b"Expect: 100-continue\r\n"
    return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b\r\n" % (
        head.method,
        target,
        to.authority,
        head.forwarded,
        framing,
    )


def answer_bytes(head: AnswerHead, to: RequestHead, *, keep: bool) -> tuple[bytes, bool, bool]:
    """An answer's head as the client gets it; whether its connection is kept; whether the body that
    follows is chunked.
    """
    if head.size > LONGEST_REMEMBERED:
        return _answer_bytes(head, to.version == "1.0", to.is_head, keep)
    return _remembered_answer(head, to.version == "1.0", to.is_head, keep)


def _answer_bytes(
    head: AnswerHead, old: bool, to_head: bool, keep: bool
) -> tuple[bytes, bool, bool]:
    chunked, framing = False, b""
    if head.length is not None and head.status != 204:
        framing = b"Content-Length: %d\r\n" % head.length
    elif head.has_no_body(to_head):
        pass
    elif old:
        keep = False
    else:
        chunked = True
        framing = b"Transfer-Encoding: chunked\r\n"
    if not keep:
        framing += b"Connection: close\r\n"
    elif old:
        framing += b"Connection: keep-alive\r\n"
    raw = b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (head.status, head.reason, head.forwarded, framing)
    return raw, keep, chunked


_remembered_request = lru_cache(REMEMBERED)(new_request_bytes)
_remembered_answer = lru_cache(REMEMBERED)(_answer_bytes)


def last_chunk(trailers: bytes) -> bytes:
    """The end of a chunked body; ``trailers`` are written already."""
    return b"0\r\n" + trailers + b"\r\n" if trailers else LAST_CHUNK
