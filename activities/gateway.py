"""Orders to gateways: take a server out of rotation for a restart, and put it back."""

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote

import httpx
from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.answers import LARGEST_RECORD
from activities.pulse import pulse
from activities.secrets import SecretError, resolve
from activities.web import http_url, new_client, place, why
from fleet.contracts.gateway import (
    BackendState,
    DrainRequest,
    DrainResult,
    Gateways,
    UndrainRequest,
)
from fleet.durations import show

#: For one order, its connection included: a gateway answers within milliseconds.
_WITHIN = 5.0
_LOOK_EVERY = 0.5
NOT_UNDRAINED = "NotUndrained"
_MEANING = {
    401: "its admin_token is another",
    403: "its fleet file has no admin_token",
    404: "it does not know {server}: is its fleet file an older one?",
    409: "{server} has too many leases there",
    503: "it did not take the order in time",
    507: "it can't keep what is set",
}


class _Failed(Exception):
    """The gateway did not do it. The text names it and says why, and has no secret in it."""


class GatewayActivities:
    @activity.defn
    async def drain_server(self, request: DrainRequest) -> DrainResult:
        """Drain servers in all of their gateways, side by side; then wait, within its bound, until
        each has nothing in flight. What fails is in the result: it holds nothing up.
        """
        servers = request.servers or [request.server]
        async with pulse(), _client(request.gateways) as client:
            try:
                orders = _orders(client, request.gateways, servers)
            except SecretError as problem:
                return DrainResult(failed=[f"gateway.admin_token: {problem}"])
            found = await asyncio.gather(*(each.drain(request) for each in orders))
            failed = list(dict.fromkeys(each for each in found if each))
            took = [each for each, said in zip(orders, found, strict=True) if not said]
            began = time.monotonic()
            bounds = dict.fromkeys(servers, request.wait_others) | {request.server: request.wait}
            left = sum(
                await asyncio.gather(
                    *(_emptied([o for o in took if o.server == s], bounds[s]) for s in servers)
                )
            )
            waited = timedelta(seconds=time.monotonic() - began)
            return DrainResult(drained=len(took), in_flight=left, waited=waited, failed=failed)

    @activity.defn
    async def undrain_server(self, request: UndrainRequest) -> None:
        """Release the lease in all gateways.

        Raises:
            ApplicationError: type ``NotUndrained``; one of them did not do it.
        """
        async with pulse(), _client(request.gateways) as client:
            try:
                servers = request.servers or [request.server]
                orders = _orders(client, request.gateways, servers)
            except SecretError as problem:
                raise ApplicationError(
                    f"gateway.admin_token: {problem}", type=NOT_UNDRAINED
                ) from None
            found = await asyncio.gather(*(each.undrain(request.lease) for each in orders))
            failed = list(dict.fromkeys(each for each in found if each))
            if failed:
                raise ApplicationError("; ".join(failed), type=NOT_UNDRAINED)


class _Orders:
    """What one gateway is told about one server."""

    def __init__(self, client: httpx.AsyncClient, base: str, token: str, server: str) -> None:
        self._client, self._token = client, token
        self.server = server
        self._url = f"{http_url(base)}/backends/{quote(server, safe='')}"
        self._name = f"the gateway at {place(base)}"

    async def drain(self, request: DrainRequest) -> str:
        """Why it could not be drained; empty where it was."""
        terms: dict[str, str | bool] = {
            "holder": "steady",
            "for": show(request.lasting),
            "why": request.why[:300],
        }
        if request.last_resort:
            terms["last_resort"] = True
        try:
            await self._ask("PUT", self._lease(request.lease), terms)
        except _Failed as problem:
            return str(problem)
        return ""

    async def undrain(self, lease: str) -> str:
        """Why it could not be undrained; empty where it was."""
        try:
            await self._ask("DELETE", self._lease(lease))
        except _Failed as problem:
            return str(problem)
        return ""

    async def in_flight(self) -> int | None:
        """What it has in flight now; none where that can't be read."""
        try:
            return BackendState.model_validate_json(await self._ask("GET", self._url)).in_flight
        except (_Failed, ValidationError):
            return None

    def _lease(self, lease: str) -> str:
        return f"{self._url}/leases/{quote(lease, safe='@:')}"

    async def _ask(
        self, method: str, url: str, body: Mapping[str, str | bool] | None = None
    ) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(_WITHIN),
                self._client.stream(method, url, json=body, headers=headers) as answer,
            ):
                said = await _bounded(answer)
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise _Failed(f"{self._name}: {why(problem)}") from None
        except TimeoutError:
            raise _Failed(f"{self._name}: no answer within {_WITHIN:.0f} s") from None
        except UnicodeEncodeError:
            raise _Failed(f"{self._name}: the token has characters that HTTP can't send") from None
        if answer.status_code != httpx.codes.OK:
            meaning = _MEANING.get(answer.status_code, "is it a gateway of steady?")
            meaning = meaning.format(server=self.server)
            raise _Failed(f"{self._name} answers {answer.status_code}: {meaning}")
        return said


def _client(where: Gateways) -> httpx.AsyncClient:
    return new_client(trust_env=False, urls=where.urls)


def _orders(client: httpx.AsyncClient, where: Gateways, servers: list[str]) -> list[_Orders]:
    token = resolve(where.token)
    return [_Orders(client, url, token, each) for each in servers for url in where.urls]


async def _emptied(orders: list[_Orders], within: timedelta) -> int:
    """Wait until nothing is in flight; what is left at the end. What can't be read is not waited
    for.
    """
    if not orders:
        return 0
    end = time.monotonic() + within.total_seconds()
    while True:
        counts = await asyncio.gather(*(each.in_flight() for each in orders))
        left = sum(count or 0 for count in counts)
        if left == 0 or time.monotonic() >= end:
            return left
        await asyncio.sleep(min(_LOOK_EVERY, max(end - time.monotonic(), 0.01)))


async def _bounded(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > LARGEST_RECORD:
            return b""
    return bytes(body)
