"""The admin API over a real socket: what it orders is done, and what it refuses changes nothing."""

import asyncio
import hmac
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import structlog

from fleet.contracts.gateway import GatewayState, Lease
from fleet.endpoints import MOST_CANDIDATES
from gateway.faults import Fault
from gateway.kept import MOST_LEASES, Kept
from gateway.mirror import Result
from tests.parts.gateways import PATIENCE, TOKEN, administered, serving, until
from tests.parts.raw_backend import OK, Connection, ok, raw_backend
from worker import listener

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
LEASE = "/backends/gpu-1/leases/maintenance"
ADDED = "/endpoints/chat/candidates/new"
HOUR = {"holder": "ann", "for": "1h", "why": "new driver"}


def held() -> tuple[Callable[[Connection], Any], asyncio.Event]:
    """A backend that answers once it may."""
    may = asyncio.Event()

    async def script(connection: Connection) -> None:
        while True:
            await connection.request()
            await may.wait()
            await connection.send(OK)

    return script, may


async def state(admin: httpx.AsyncClient) -> GatewayState:
    return GatewayState.model_validate((await admin.get("/state")).json())


async def test_a_drained_backend_gets_no_new_requests_and_ends_those_that_it_has() -> None:
    script, may = held()
    async with (
        raw_backend(script) as one,
        raw_backend(ok) as two,
        serving(one.url, two.url) as gateway,
        administered(gateway) as admin,
    ):
        clients = [await gateway.raw(POST) for _ in range(2)]
        await until(lambda: one.requests and two.requests)
        answer = await admin.put(LEASE, json=HOUR)
        assert answer.status_code == 200
        assert Lease.model_validate(answer.json()).holder == "ann"
        for _ in range(6):
            assert (await gateway.client.post(CHAT, json={})).status_code == 200
        assert len(one.requests) == 1
        shown = (await state(admin)).backends["gpu-1"]
        assert (shown.in_flight, [lease.id for lease in shown.leases]) == (1, ["maintenance"])
        assert 'steady_gateway_drained{server="gpu-1"} 1.0' in gateway.metrics()
        may.set()
        for reader, writer in clients:
            async with asyncio.timeout(PATIENCE):
                assert (await reader.readexactly(len(OK))) == OK
            writer.close()
        await until(lambda: gateway.core.router.backends["gpu-1"].in_flight == 0)
        assert (await admin.delete(LEASE)).json()["drained_until"] is None
        for _ in range(4):
            await gateway.client.post(CHAT, json={})
        assert len(one.requests) > 1
        assert 'steady_gateway_drained{server="gpu-1"} 0.0' in gateway.metrics()


async def test_where_all_backends_drain_it_is_503_in_openais_form_with_retry_after() -> None:
    async with (
        raw_backend(ok) as one,
        raw_backend(ok) as two,
        serving(one.url, two.url) as gateway,
        administered(gateway) as admin,
    ):
        for number in (1, 2):
            await admin.put(f"/backends/gpu-{number}/leases/x", json=HOUR)
        answer = await gateway.client.post(CHAT, json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", "no_backend")
        assert gateway.faults(Fault.NO_BACKEND) == 1
        assert (await gateway.client.get("/backends/gpu-1/health")).status_code == 200


async def test_a_lease_ends_by_itself() -> None:
    async with (
        raw_backend(ok) as one,
        serving(one.url) as gateway,
        administered(gateway) as admin,
    ):
        await admin.put(LEASE, json={"holder": "ann", "for": "1s"})
        assert (await gateway.client.post(CHAT, json={})).status_code == 503
        async with asyncio.timeout(PATIENCE):
            while (await gateway.client.post(CHAT, json={})).status_code == 503:
                await asyncio.sleep(0.05)
        shown = (await state(admin)).backends["gpu-1"]
        assert (shown.drained_until, shown.leases) == (None, [])


async def test_a_lease_is_renewed_to_a_later_end_or_an_earlier() -> None:
    async with (
        raw_backend(ok) as one,
        serving(one.url) as gateway,
        administered(gateway) as admin,
    ):
        ends = []
        for lasting in ("1h", "2h", "10m"):
            answer = await admin.put(LEASE, json={**HOUR, "for": lasting})
            shown = (await state(admin)).backends["gpu-1"]
            assert len(shown.leases) == 1
            assert shown.drained_until == Lease.model_validate(answer.json()).until
            ends.append(shown.drained_until)
        assert ends[2] < ends[0] < ends[1]


async def test_a_last_resort_is_closed_where_another_lease_leaves_it_nothing() -> None:
    async with (
        raw_backend(ok) as one,
        serving(one.url) as gateway,
        administered(gateway) as admin,
    ):
        answer = await admin.put(LEASE, json={**HOUR, "last_resort": True})
        assert Lease.model_validate(answer.json()).last_resort
        assert (await gateway.client.post(CHAT, json={})).status_code == 200
        shown = (await state(admin)).backends["gpu-1"]
        assert shown.drained_until is not None
        await admin.put("/backends/gpu-1/leases/by-hand", json=HOUR)
        assert (await gateway.client.post(CHAT, json={})).status_code == 503
        await admin.delete("/backends/gpu-1/leases/by-hand")
        assert (await gateway.client.post(CHAT, json={})).status_code == 200


async def test_a_backend_is_drained_until_its_last_holder_lets_go() -> None:
    async with (
        raw_backend(ok) as one,
        serving(one.url) as gateway,
        administered(gateway) as admin,
    ):
        await admin.put(LEASE, json=HOUR)
        await admin.put("/backends/gpu-1/leases/gpu-1@20260101", json={**HOUR, "holder": "steady"})
        assert (await admin.delete("/backends/gpu-1/leases/gpu-1@20260101")).status_code == 200
        assert (await gateway.client.post(CHAT, json={})).status_code == 503
        assert (await admin.delete("/backends/gpu-1/leases")).json()["leases"] == []
        assert (await gateway.client.post(CHAT, json={})).status_code == 200
        again = await admin.delete(LEASE)
        assert again.status_code == 200  # it is as it was to be


async def test_a_backend_has_so_many_leases_at_most() -> None:
    async with (
        raw_backend(ok) as one,
        serving(one.url) as gateway,
        administered(gateway) as admin,
    ):
        for number in range(MOST_LEASES):
            answer = await admin.put(f"/backends/gpu-1/leases/{number}", json=HOUR)
            assert answer.status_code == 200
        refused = await admin.put(LEASE, json=HOUR)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "too_many_leases")
        assert (await admin.put("/backends/gpu-1/leases/0", json=HOUR)).status_code == 200


async def test_a_sample_is_changed_while_it_runs() -> None:
    async with raw_backend(ok) as one, raw_backend(ok) as other:
        candidates = {"next": {"url": other.url}}
        async with (
            serving(one.url, candidates=candidates) as gateway,
            administered(gateway) as admin,
        ):
            await gateway.client.post(CHAT, json={})
            changed = await admin.patch("/endpoints/chat/candidates/next", json={"sample": 100})
            assert changed.json()["candidates"]["next"]["sample"] == 100
            await gateway.client.post(CHAT, json={})
            await until(lambda: other.requests)
            text = 'sample_percent{by="request",candidate="next",endpoint="chat"} 100.0'
            assert text in gateway.metrics()
            await admin.patch("/endpoints/chat/candidates/next", json={"sample": 0})
            await gateway.client.post(CHAT, json={})
            assert not gateway.gateway.mirrors.running
            assert (len(one.requests), len(other.requests)) == (3, 1)


async def test_backends_have_requests_in_flight_by_their_weights() -> None:
    script, may = held()
    async with (
        raw_backend(script) as one,
        raw_backend(script) as two,
        serving(one.url, two.url) as gateway,
        administered(gateway) as admin,
    ):
        changed = await admin.patch("/endpoints/chat/backends/gpu-1", json={"weight": 3})
        assert changed.json()["weights"] == {"gpu-1": 3, "gpu-2": 1}
        assert 'weight{endpoint="chat",server="gpu-1"} 3.0' in gateway.metrics()
        clients = [await gateway.raw(POST) for _ in range(12)]
        await until(lambda: len(one.requests) + len(two.requests) == 12)
        assert (len(one.requests), len(two.requests)) == (9, 3)
        may.set()
        for _, writer in clients:
            writer.close()


async def test_a_weight_is_taken_from_the_fleet_file() -> None:
    backends = {"gpu-1": {"url": "http://a:1", "weight": 2}, "gpu-2": {"url": "http://b:1"}}
    async with serving(endpoint={"backends": backends}) as gateway, administered(gateway) as admin:
        assert (await state(admin)).endpoints["chat"].weights == {"gpu-1": 2, "gpu-2": 1}


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer x{TOKEN}"],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/state"), ("PUT", LEASE), ("GET", "/x")])
async def test_without_the_token_nothing_is_shown_or_done(
    given: str, method: str, path: str
) -> None:
    async with serving("http://127.0.0.1:1") as gateway, administered(gateway) as admin:
        answer = await admin.request(method, path, json=HOUR, headers={"Authorization": given})
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "unauthorized"
        assert "gpu-1" not in answer.text
        assert (await state(admin)).backends["gpu-1"].leases == []


async def test_the_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return hmac.compare_digest(one, other)

    monkeypatch.setattr("worker.gateway_api.hmac", type("Hmac", (), {"compare_digest": compare}))
    async with serving("http://127.0.0.1:1") as gateway, administered(gateway) as admin:
        assert (await admin.get("/state")).status_code == 200
        assert (await admin.get("/state", headers={"Authorization": ""})).status_code == 401
    assert compared == [TOKEN.encode()] * 2


async def test_orders_are_logged_and_the_token_never_is() -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving("http://127.0.0.1:1") as gateway, administered(gateway) as admin:
            await admin.put(f"{LEASE}?token={TOKEN}", json=HOUR)
            await admin.put(LEASE, json={}, headers={"Authorization": f"Token {TOKEN}"})
    assert [(each["event"], each["status"]) for each in logs] == [
        ("an order", 200),
        ("an order", 401),
    ]
    assert TOKEN not in str(logs)


async def test_without_a_token_in_the_fleet_file_there_is_no_api() -> None:
    async with (
        serving("http://127.0.0.1:1") as gateway,
        administered(gateway, token=None) as admin,
    ):
        answer = await admin.put(LEASE, json=HOUR)
        assert answer.status_code == 403
        assert "gateway.admin_token" in answer.json()["error"]["message"]
        assert (await admin.get("/state")).status_code == 403
        for page in ("/health", "/metrics"):
            assert (await admin.get(page, headers={"Authorization": ""})).status_code == 200


WRONG: dict[str, tuple[str, str, Any, int, str]] = {
    "no backend": (
        "PUT",
        "/backends/gpu-9/leases/x",
        HOUR,
        404,
        "no backend gpu-9; there are gpu-1",
    ),
    "no endpoint": ("PATCH", "/endpoints/x/backends/gpu-1", {"weight": 1}, 404, "no endpoint x"),
    "no candidate": (
        "PATCH",
        "/endpoints/chat/candidates/x",
        {"sample": 1},
        404,
        "the endpoint chat has no candidate x",
    ),
    "not its backend": ("PATCH", "/endpoints/chat/backends/x", {"weight": 1}, 404, "no backend x"),
    "no path": ("GET", "/stat", None, 404, "there is no such path"),
    "no method": ("POST", LEASE, HOUR, 405, "this path takes PUT, DELETE"),
    "no lease ID": ("PUT", "/backends/gpu-1/leases/a%20b", HOUR, 400, "the ID of a lease"),
    "a long ID": ("PUT", f"/backends/gpu-1/leases/{'a' * 201}", HOUR, 400, "the ID of a lease"),
    "no holder": ("PUT", LEASE, {"for": "1h"}, 400, "holder: Field required"),
    "for ever": ("PUT", LEASE, {**HOUR, "for": "8d"}, 400, "for: 8d is out of range"),
    "no span": ("PUT", LEASE, {**HOUR, "for": "x"}, 400, "'x' is no duration"),
    "more than is known": ("PUT", LEASE, {**HOUR, "till": 1}, 400, "till: Extra inputs"),
    "a sample": ("PATCH", "/endpoints/chat/candidates/next", {"sample": 101}, 400, "sample: "),
    "a weight": ("PATCH", "/endpoints/chat/backends/gpu-1", {"weight": 0}, 400, "weight: "),
    "a candidate of the fleet file": (
        "PUT",
        "/endpoints/chat/candidates/next",
        {"url": "http://a"},
        409,
        "change it there",
    ),
    "its end": ("DELETE", "/endpoints/chat/candidates/next", None, 409, "set its sample to 0"),
    "a URL": ("PUT", ADDED, {"url": "ftp://a"}, 400, "url: "),
    "a token": ("PUT", ADDED, {"url": "http://a", "token": {"env": "HOME"}}, 400, "token: only"),
    "the name of a candidate": (
        "PUT",
        "/endpoints/chat/candidates/a%20b",
        {"url": "http://a"},
        400,
        "the name of a",
    ),
    "another endpoint": (
        "PUT",
        "/endpoints/x/candidates/new",
        {"url": "http://a"},
        404,
        "no endpoint x",
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_is_wrong_is_said_and_changes_nothing(what: str) -> None:
    method, path, body, status, said = WRONG[what]
    candidates = {"next": {"url": "http://127.0.0.1:1"}}
    async with (
        serving("http://127.0.0.1:1", candidates=candidates) as gateway,
        administered(gateway) as admin,
    ):
        before = await state(admin)
        answer = await admin.request(method, path, json=body)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/json"
        assert said in answer.json()["error"]["message"]
        assert await state(admin) == before


async def test_a_body_that_is_no_json_is_said() -> None:
    async with serving("http://127.0.0.1:1") as gateway, administered(gateway) as admin:
        answer = await admin.put(LEASE, content=b'{"holder": ')
        assert answer.status_code == 400
        assert "Invalid JSON" in answer.json()["error"]["message"]


async def test_a_body_is_bounded_and_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener._Handler, "timeout", 0.2)

    async def trickle() -> Any:
        yield b"{"

    async with serving("http://127.0.0.1:1") as gateway, administered(gateway) as admin:
        for size in (16_385, 900_000):
            assert (await admin.put(LEASE, content=b"x" * size)).status_code == 413
        assert (await admin.put(LEASE, content=trickle())).status_code == 411
        reader, writer = await asyncio.open_connection("127.0.0.1", admin.base_url.port or 0)
        writer.write(b"PUT /state HTTP/1.1\r\nContent-Length: 5\r\n\r\n{")
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.0 408 ")
        assert b'"the body did not come in time"' in answer


async def test_an_order_that_cant_be_kept_is_not_in_force() -> None:
    def full(_: Kept) -> None:
        raise OSError(28, "No space left on device")

    async with (
        raw_backend(ok) as one,
        serving(one.url) as gateway,
        administered(gateway, full) as admin,
    ):
        answer = await admin.put(LEASE, json=HOUR)
        assert answer.status_code == 507
        said = "it can't be kept (no space left on device), so nothing was changed"
        assert answer.json()["error"] == {"code": "not_kept", "message": said}
        assert (await gateway.client.post(CHAT, json={})).status_code == 200
        assert (await state(admin)).backends["gpu-1"].leases == []


async def test_a_gateway_whose_event_loop_stands_still_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.plane._WITHIN", 0.1)
    async with serving("http://127.0.0.1:1") as gateway, administered(gateway) as admin:
        url = str(admin.base_url.join(LEASE))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        # On the loop's own thread: while it is asked, it stands still.
        answer = httpx.put(url, json=HOUR, headers=headers, timeout=PATIENCE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_taken")
        await until(lambda: 'drained{server="gpu-1"} 1.0' in gateway.metrics())


async def test_what_was_kept_is_in_force_from_the_beginning() -> None:
    saved: list[Kept] = []
    candidates = {"next": {"url": "http://127.0.0.1:1"}}
    backends = {name: {"url": "http://127.0.0.1:1"} for name in ("gpu-1", "gpu-2")}
    spec = {"backends": backends, "candidates": candidates}
    async with serving(endpoint=spec) as gateway, administered(gateway, saved.append) as admin:
        await admin.put(LEASE, json=HOUR)
        await admin.patch("/endpoints/chat/candidates/next", json={"sample": 7})
        await admin.patch("/endpoints/chat/backends/gpu-2", json={"weight": 0.5})
        before = await state(admin)
    kept = Kept.model_validate_json(json.dumps(json.loads(saved[-1].model_dump_json())))
    async with serving(endpoint=spec) as gateway, administered(gateway, kept=kept) as admin:
        assert await state(admin) == before
        assert gateway.core.router.backends["gpu-1"].drained_until > gateway.core.sweeper.now + 3000


async def test_a_candidate_is_added_and_removed_while_it_runs() -> None:
    saved: list[Kept] = []
    async with raw_backend(ok) as one, raw_backend(ok) as other:
        async with (
            serving(one.url) as gateway,
            administered(gateway, saved.append) as admin,
        ):
            spec = {"url": other.url, "sample": 100, "timeout": "5s"}
            added = await admin.put(ADDED, json=spec)
            shown = added.json()["candidates"]["new"]
            assert (shown["url"], shown["sample"]) == (other.url, 100)
            await gateway.client.post(CHAT, json={})
            await until(lambda: len(other.requests) == 1)
            assert (await gateway.client.get("/candidates/new/health")).status_code == 200
            await admin.patch(ADDED, json={"sample": 0})
            assert (await admin.delete(ADDED)).json()["candidates"] == {}
            await gateway.client.post(CHAT, json={})
            assert (await gateway.client.get("/candidates/new/health")).status_code == 404
            assert (len(one.requests), len(other.requests)) == (2, 2)
            assert (await admin.delete(ADDED)).status_code == 200  # it is as it was to be
        assert saved[-1] == Kept()
        async with (
            serving(one.url) as gateway,
            administered(gateway, kept=saved[0]) as admin,
        ):
            assert (await state(admin)).endpoints["chat"].candidates["new"].sample == 100


async def never(connection: Connection) -> None:
    await connection.request()
    await connection.gone()


async def test_a_candidate_that_is_removed_ends_its_mirrors_and_nothing_else() -> None:
    script, may = held()
    async with (
        raw_backend(script) as one,
        raw_backend(never) as other,
        raw_backend(script) as stays,
        serving(one.url, candidates={"next": {"url": stays.url, "sample": 100}}) as gateway,
        administered(gateway) as admin,
    ):
        await admin.put(ADDED, json={"url": other.url, "sample": 100})
        body = POST.replace(b"Length: 0", b"Length: 2") + b"{}"
        reader, writer = await gateway.raw(body)
        await until(lambda: one.requests and other.requests and stays.requests)
        await admin.delete(ADDED)
        await until(lambda: other.open == 0)
        results = gateway.core.tally.results
        assert results["chat", "new", Result.SHUTDOWN] == 1
        assert len(gateway.gateway.mirrors.running) == 1
        may.set()
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readexactly(len(OK))) == OK
        await until(lambda: results["chat", "next", Result.COMPLETED] == 1)
        assert gateway.gateway.mirrors.budget.retained == 0
        writer.close()


async def test_a_candidate_that_is_added_again_is_changed() -> None:
    async with (
        raw_backend(ok) as one,
        raw_backend(ok) as other,
        serving(one.url) as gateway,
        administered(gateway) as admin,
    ):
        await admin.put(ADDED, json={"url": "http://127.0.0.1:1", "sample": 100})
        await admin.put(ADDED, json={"url": other.url, "sample": 100})
        await gateway.client.post(CHAT, json={})
        await until(lambda: other.requests)
        assert len(gateway.gateway.mirrors.targets["chat"]) == 1


async def test_an_endpoint_has_so_many_candidates_at_most() -> None:
    async with serving("http://127.0.0.1:1") as gateway, administered(gateway) as admin:
        for number in range(MOST_CANDIDATES):
            path = f"/endpoints/chat/candidates/{number}"
            assert (await admin.put(path, json={"url": "http://a"})).status_code == 200
        assert (await admin.put(ADDED, json={"url": "http://a"})).status_code == 409
