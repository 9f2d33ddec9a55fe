"""The admin API of a gateway: HTTP and JSON on one side, ``gateway.control`` on the other."""

import hmac
import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import structlog
from pydantic import BaseModel, ValidationError

from fleet.contracts.gateway import LEASE_ID, BackendChange, CandidateChange, LeaseTerms
from fleet.endpoints import NAME, Candidate
from gateway.control import Conflict, Control, Unknown
from gateway.kept import TooManyLeases
from gateway.plane import NotTaken
from worker.listener import Request

_log = structlog.get_logger(__name__)

#: Method and path of all that is taken; what is in capitals stands for a name.
ORDERS = (
    ("GET", "/state"),
    ("GET", "/backends/NAME"),
    ("PUT", "/backends/NAME/leases/ID"),
    ("DELETE", "/backends/NAME/leases/ID"),
    ("DELETE", "/backends/NAME/leases"),
    ("PATCH", "/endpoints/NAME/backends/NAME"),
    ("PATCH", "/endpoints/NAME/candidates/NAME"),
    ("PUT", "/endpoints/NAME/candidates/NAME"),
    ("DELETE", "/endpoints/NAME/candidates/NAME"),
)

Body = TypeVar("Body", bound=BaseModel)
Reply = tuple[int, dict[str, Any]]


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Match(NamedTuple):
    """What a path names; ``of`` are the parts that differ."""

    act: Callable[..., Reply]
    of: tuple[str, ...]


class Api:
    """Without ``token`` there is none: every request is told how to get it."""

    def __init__(self, control: Control, token: str | None) -> None:
        self._control = control
        self._token = token.encode() if token is not None else None
        acts: tuple[Callable[..., Reply], ...] = (
            self._state,
            self._backend,
            self._drain,
            self._undrain,
            self._undrain,
            self._weigh,
            self._sample,
            self._add,
            self._remove,
        )
        self._routes = [
            (method, _path(path), act) for (method, path), act in zip(ORDERS, acts, strict=True)
        ]

    def answer(self, request: Request) -> tuple[int, bytes]:
        """Status and JSON. What was ordered is logged, and the token never is."""
        try:
            self._let_in(request)
            match = self._match(request)
            status, said = match.act(request, *match.of)
        except _Refused as no:
            status, said = no.status, _error(no.code, str(no))
        except Unknown as no:
            status, said = HTTPStatus.NOT_FOUND, _error("not_found", str(no))
        except TooManyLeases as no:
            status, said = HTTPStatus.CONFLICT, _error("too_many_leases", str(no))
        except Conflict as no:
            status, said = HTTPStatus.CONFLICT, _error("conflict", str(no))
        except NotTaken as no:
            status, said = HTTPStatus.SERVICE_UNAVAILABLE, _error("not_taken", str(no))
        except OSError as no:
            why = (no.strerror or str(no)).lower()
            message = f"it can't be kept ({why}), so nothing was changed"
            status, said = HTTPStatus.INSUFFICIENT_STORAGE, _error("not_kept", message)
        if request.method != "GET":
            path = request.path[:200]
            _log.info("an order", method=request.method, path=path, status=int(status))
        return int(status), json.dumps(said, indent=2).encode() + b"\n"

    def _let_in(self, request: Request) -> None:
        if self._token is None:
            message = "the admin API is off: name a token in gateway.admin_token"
            raise _Refused(HTTPStatus.FORBIDDEN, "no_token_configured", message)
        scheme, _, given = request.authorization.partition(" ")
        # Header fields come as Latin-1.
        right = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token)
        if scheme.lower() != "bearer" or not right:
            message = "send the gateway's admin token: Authorization: Bearer …"
            raise _Refused(HTTPStatus.UNAUTHORIZED, "unauthorized", message)

    def _match(self, request: Request) -> _Match:
        methods = []
        for method, path, act in self._routes:
            found = path.fullmatch(request.path)
            if found is not None and method == request.method:
                return _Match(act, tuple(unquote(part) for part in found.groups()))
            methods += [method] if found is not None else []
        if methods:
            message = f"this path takes {', '.join(methods)}"
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", message)
        raise _Refused(HTTPStatus.NOT_FOUND, "not_found", "there is no such path; GET /state")

    # --- what each path does ---------------------------------------------------------------------

    def _state(self, _: Request) -> Reply:
        return HTTPStatus.OK, self._control.state().model_dump(mode="json")

    def _backend(self, _: Request, backend: str) -> Reply:
        return HTTPStatus.OK, self._control.backend(backend).model_dump(mode="json")

    def _drain(self, request: Request, backend: str, lease: str) -> Reply:
        if not re.fullmatch(LEASE_ID, lease):
            message = "the ID of a lease is of letters, digits and @ . _ : -, 200 at most"
            raise _Refused(HTTPStatus.BAD_REQUEST, "bad_request", message)
        granted, waiting = self._control.drain(backend, lease, _read(LeaseTerms, request))
        return _done(granted.model_dump(mode="json"), waiting)

    def _undrain(self, _: Request, backend: str, lease: str | None = None) -> Reply:
        waiting = self._control.undrain(backend, lease)
        return _done(self._control.backend(backend).model_dump(mode="json"), waiting)

    def _weigh(self, request: Request, endpoint: str, backend: str) -> Reply:
        weight = _read(BackendChange, request).weight
        return self._endpoint(endpoint, self._control.weigh(endpoint, backend, weight))

    def _sample(self, request: Request, endpoint: str, candidate: str) -> Reply:
        percent = _read(CandidateChange, request).sample
        return self._endpoint(endpoint, self._control.sample(endpoint, candidate, percent))

    def _add(self, request: Request, endpoint: str, candidate: str) -> Reply:
        if not re.fullmatch(NAME, candidate):
            message = "the name of a candidate is of letters, digits and . _ -, 63 at most"
            raise _Refused(HTTPStatus.BAD_REQUEST, "bad_request", message)
        spec = _read(Candidate, request)
        if spec.token is not None:
            message = "token: only a candidate of the fleet file has one"
            raise _Refused(HTTPStatus.BAD_REQUEST, "bad_request", message)
        return self._endpoint(endpoint, self._control.add(endpoint, candidate, spec))

    def _remove(self, _: Request, endpoint: str, candidate: str) -> Reply:
        return self._endpoint(endpoint, self._control.remove(endpoint, candidate))

    def _endpoint(self, name: str, waiting: list[str]) -> Reply:
        return _done(self._control.state().endpoints[name].model_dump(mode="json"), waiting)


def _done(said: dict[str, Any], waiting: list[str]) -> Reply:
    """``waiting`` stands there only where something is: what begins with the order later."""
    return HTTPStatus.OK, {**said, "waiting": waiting} if waiting else said


def _path(template: str) -> re.Pattern[str]:
    return re.compile(re.sub("[A-Z]+", "([^/]{1,600})", template))


def _read(model: type[Body], request: Request) -> Body:
    try:
        return model.model_validate_json(request.body)
    except ValidationError as problem:
        said = "; ".join(
            ": ".join(filter(None, [".".join(map(str, each["loc"])), each["msg"]]))
            for each in problem.errors(include_url=False, include_input=False)[:5]
        )
        raise _Refused(HTTPStatus.BAD_REQUEST, "bad_request", said[:500]) from problem


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
