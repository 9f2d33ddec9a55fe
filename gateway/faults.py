"""What the gateway itself answers where no backend's answer can be passed on, in OpenAI's form."""

import json
from enum import StrEnum
from typing import NamedTuple


class Fault(StrEnum):
    """Why a request did not get its backend's whole answer; the ``kind`` label of the metrics."""

    BAD_REQUEST = "bad_request"
    HEAD_TOO_LARGE = "head_too_large"
    BODY_TOO_LARGE = "body_too_large"
    CLIENT_TOO_SLOW = "client_too_slow"
    CLIENT_STALLED = "client_stalled"
    CLIENT_GONE = "client_gone"
    NO_SUCH_ROUTE = "no_such_route"
    UNSUPPORTED = "unsupported"
    UPGRADE_REFUSED = "upgrade_refused"
    LOOP = "loop"
    TOO_MANY_CLIENTS = "too_many_clients"
    NO_BACKEND = "no_backend"
    BACKEND_UNREACHABLE = "backend_unreachable"
    BACKEND_DIED = "backend_died"
    BACKEND_BROKEN = "backend_broken"
    BACKEND_TIMEOUT = "backend_timeout"
    SHUTDOWN = "shutdown"


class _Form(NamedTuple):
    """How a fault is answered; ``retry_after`` in seconds, none where a retry is of no use."""

    status: int
    reason: str
    type: str
    retry_after: int | None = None


_INVALID, _SERVER = "invalid_request_error", "server_error"

_FORMS = {
    Fault.BAD_REQUEST: _Form(400, "Bad Request", _INVALID),
    Fault.HEAD_TOO_LARGE: _Form(431, "Request Header Fields Too Large", _INVALID),
    Fault.BODY_TOO_LARGE: _Form(413, "Content Too Large", _INVALID),
    Fault.CLIENT_TOO_SLOW: _Form(408, "Request Timeout", _INVALID),
    Fault.NO_SUCH_ROUTE: _Form(404, "Not Found", _INVALID),
    Fault.UNSUPPORTED: _Form(501, "Not Implemented", _INVALID),
    Fault.UPGRADE_REFUSED: _Form(501, "Not Implemented", _INVALID),
    Fault.LOOP: _Form(508, "Loop Detected", _INVALID),
    Fault.TOO_MANY_CLIENTS: _Form(503, "Service Unavailable", _SERVER, 1),
    Fault.NO_BACKEND: _Form(503, "Service Unavailable", _SERVER, 5),
    Fault.BACKEND_UNREACHABLE: _Form(503, "Service Unavailable", _SERVER, 5),
    Fault.BACKEND_DIED: _Form(502, "Bad Gateway", _SERVER, 1),
    Fault.BACKEND_BROKEN: _Form(502, "Bad Gateway", _SERVER, 1),
    Fault.BACKEND_TIMEOUT: _Form(504, "Gateway Timeout", _SERVER, 5),
    Fault.SHUTDOWN: _Form(503, "Service Unavailable", _SERVER, 1),
}


class Refused(Exception):
    """A message that can't be taken as it is. The text is for the client."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message


def status_of(fault: Fault) -> int:
    """The status with which a fault is answered.

    Raises:
        KeyError: it is one that is never answered, since nobody is there to read it.
    """
    return _FORMS[fault].status


def answer(fault: Fault, message: str, *, with_body: bool = True) -> bytes:
    """The whole answer, which closes the connection; ``with_body`` is false after HEAD."""
    form = _FORMS[fault]
    said = {"message": message, "type": form.type, "param": None, "code": fault.value}
    body = json.dumps({"error": said}).encode()
    wait = f"Retry-After: {form.retry_after}\r\n" if form.retry_after is not None else ""
    head = (
        f"HTTP/1.1 {form.status} {form.reason}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{wait}"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
