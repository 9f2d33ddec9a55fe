"""A person's orders to the gateways of a fleet file, and what they answer in words."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from activities.secrets import SecretError, resolve
from activities.web import http_url, place, why
from fleet.addresses import unix_path
from fleet.config import Fleet
from fleet.contracts.gateway import GatewayState
from fleet.durations import show
from fleet.routed import admin_urls
from worker.commands.exits import Exit, Stop
from worker.errors import SettingError, SetupError

#: The lease of people, all of them: who undrains, undrains for all.
LEASE = "by-hand"
_WITHIN = 10.0


class Answered(NamedTuple):
    url: str
    said: dict[str, Any]

    @property
    def name(self) -> str:
        return place(self.url)


class GatewayOrders:
    """Every order goes to every gateway; the first that does not take it ends the command.

    Raises:
        SettingError: the fleet file names no token, or it can't be read here.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        if not fleet.endpoints:
            raise SettingError("the fleet file has no endpoints, so there is no gateway")
        if fleet.gateway.admin_token is None:
            raise SettingError("the gateway takes no orders: name a token in gateway.admin_token")
        try:
            self._token = resolve(fleet.gateway.admin_token)
        except SecretError as problem:
            raise SettingError(f"gateway.admin_token: {problem}") from None

    def state(self) -> list[Answered]:
        return self._ask("GET", "/state")

    def drain(self, server: str, holder: str, lasting: timedelta, why: str) -> list[Answered]:
        terms = {"holder": holder, "for": show(lasting), "why": why[:300]}
        return self._ask("PUT", f"/backends/{_part(server)}/leases/{LEASE}", terms)

    def undrain(self, server: str, *, everybody: bool) -> list[Answered]:
        which = "" if everybody else f"/{LEASE}"
        return self._ask("DELETE", f"/backends/{_part(server)}/leases{which}")

    def sample(self, candidate: str, percent: float) -> list[Answered]:
        for name, endpoint in self._fleet.endpoints.items():
            if candidate in endpoint.candidates:
                path = f"/endpoints/{_part(name)}/candidates/{_part(candidate)}"
                return self._ask("PATCH", path, {"sample": percent})
        raise Stop(f"the fleet file has no candidate {candidate}", Exit.WRONG_INPUT)

    def weigh(self, server: str, weight: float) -> list[Answered]:
        answered = []
        for name, endpoint in self._fleet.endpoints.items():
            if server in endpoint.backends:
                path = f"/endpoints/{_part(name)}/backends/{_part(server)}"
                answered += self._ask("PATCH", path, {"weight": weight})
        if not answered:
            raise Stop(f"the fleet file has no backend {server}", Exit.WRONG_INPUT)
        return answered

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> list[Answered]:
        return [
            Answered(url, self._told(url, method, path, body))
            for url in admin_urls(self._fleet.gateway)
        ]

    def _told(
        self, url: str, method: str, path: str, body: dict[str, Any] | None
    ) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}"}
        name = f"the gateway at {place(url)}"
        socket = unix_path(url)
        transport = httpx.HTTPTransport(uds=socket) if socket is not None else None
        try:
            with httpx.Client(trust_env=False, timeout=_WITHIN, transport=transport) as client:
                asked = f"{http_url(url)}{path}"
                answer = client.request(method, asked, json=body, headers=headers)
        except httpx.HTTPError as problem:
            raise SetupError(f"{name}: {why(problem)}: does `steady gateway` run?") from None
        said = _object(answer)
        if said is None:
            raise SetupError(f"{name} answers {answer.status_code}, and not as a gateway does")
        if answer.is_success:
            return said
        error = said.get("error")
        message = error.get("message") if isinstance(error, dict) else None
        text = f"{name}: {message or answer.status_code}"
        raise Stop(text, Exit.WRONG_INPUT if answer.is_client_error else Exit.UNREACHED)


def _object(answer: httpx.Response) -> dict[str, Any] | None:
    try:
        said = answer.json()
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def lines(answered: Answered) -> Iterator[str]:
    """The state of a gateway, a line for each backend and each candidate."""
    state = GatewayState.model_validate(answered.said)
    for name, backend in state.backends.items():
        until = drained(backend.model_dump(mode="json"))
        yield f"{answered.name}: backend {name}, {backend.in_flight} in flight, {until}"
        for lease in backend.leases:
            reason = f": {lease.why}" if lease.why else ""
            yield f"  {lease.id} of {lease.holder} until {in_words(lease.until)}{reason}"
    for name, endpoint in state.endpoints.items():
        uneven = len(set(endpoint.weights.values())) > 1
        for server, weight in endpoint.weights.items() if uneven else ():
            yield f"{answered.name}: endpoint {name}, backend {server} has the weight {weight:g}"
        for candidate, each in endpoint.candidates.items():
            sent = f"is sent {each.sample:g} %, {each.in_flight} in flight"
            yield f"{answered.name}: endpoint {name}, candidate {candidate} {sent}"


def drained(backend: dict[str, Any]) -> str:
    """Whether a backend is sent requests, after a name."""
    until = backend.get("drained_until")
    holders = ", ".join(str(each["holder"]) for each in backend.get("leases", ()))
    return f"is drained until {in_words(until)} by {holders}" if until else "is sent requests"


def in_words(at: datetime | str) -> str:
    """A time as people read it; a gateway writes it in UTC."""
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _part(name: str) -> str:
    return quote(name, safe="")
