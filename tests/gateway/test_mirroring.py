"""A sample of production goes to candidates as well, and production does not feel it."""

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway import mirroring
from gateway.faults import Fault
from gateway.mirror import MirroredRequest, Result
from tests.parts.bad_candidates import (
    answers_early,
    answers_without_end,
    fails,
    never_answers,
    never_reads,
    reads_slowly,
    redirects,
    resets,
    speaks_no_http,
)
from tests.parts.gateways import PATIENCE, Serving, ended, results, serving, until
from tests.parts.ports import free_port
from tests.parts.raw_backend import LAST, OK, STREAM, Connection, echo, ok, raw_backend

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"


def candidate(url: str, **more: Any) -> dict[str, Any]:
    return {"url": url, "sample": 100, **more}


async def test_a_candidate_gets_the_request_with_its_own_host_a_marker_and_no_credentials() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(
            production.url, candidates={"next": candidate(f"{other.url}/base")}
        ) as gateway:
            await gateway.said(
                POST + b"X-Own: 1\r\nCookie: c=1\r\nAuthorization: Bearer k\r\nX-Api-Key: k\r\n"
                b"Steady-Mirror: forged\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"
            )
            assert gateway.core.tally.unmirrored["chat", "marked"] == 1
            await gateway.said(
                POST + b"X-Own: 1\r\nCookie: c=1\r\nAuthorization: Bearer k\r\nX-Api-Key: k\r\n"
                b"Connection: close\r\nContent-Length: 4\r\n\r\nbody"
            )
            assert await ended(gateway, 1) == {"completed": 1}
            token = gateway.gateway.mirrors.token
        assert [request.value("steady-mirror") for request in production.requests] == [None, None]
        assert [request.body for request in production.requests] == [b"body", b"body"]
        assert production.requests[1].value("cookie") == b"c=1"
        assert other.requests[0].raw == (
            b"POST /base/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Steady-Mirror: next; %b\r\nX-Own: 1\r\nContent-Length: 4\r\n\r\nbody"
            % (other.port, token)
        )


async def test_authorization_is_passed_on_only_where_the_operator_says_so() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        candidates = {"next": candidate(other.url, forward_authorization=True)}
        async with serving(production.url, candidates=candidates) as gateway:
            keys = {"Authorization": "Bearer k", "Cookie": "c=1"}
            await gateway.client.post(CHAT, json={}, headers=keys)
            await ended(gateway, 1)
        assert other.requests[0].value("authorization") == b"Bearer k"
        assert other.requests[0].value("cookie") is None


async def test_a_candidate_has_its_own_token() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        candidates = {"next": candidate(other.url)}
        async with serving(production.url, candidates=candidates) as gateway:
            gateway.gateway.mirrors.targets["chat"][0].secret = "own"
            await gateway.client.post(CHAT, json={}, headers={"Authorization": "Bearer k"})
            await ended(gateway, 1)
        assert other.requests[0].value("authorization") == b"Bearer own"


@pytest.mark.parametrize("size", [0, 10, 200_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_candidate_gets_the_same_body(size: int, chunked: bool) -> None:
    body = os.urandom(size)

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, size, 30_000):
            yield body[at : at + 30_000]
            await asyncio.sleep(0.002)

    async with raw_backend(echo) as production, raw_backend(ok) as other:
        async with serving(production.url, candidates={"next": candidate(other.url)}) as gateway:
            content: Any = parts() if chunked else body
            assert (await gateway.client.post(CHAT, content=content)).content == body
            assert await ended(gateway, 1) == {"completed": 1}
        assert other.requests[0].body == body
        framing = "transfer-encoding" if chunked else "content-length"
        assert other.requests[0].value(framing) is not None


BAD = {
    "accepts and never reads": (never_reads, {"candidate_timeout", "buffer_overflow"}),
    "reads a byte a second": (reads_slowly, {"candidate_timeout", "buffer_overflow"}),
    "resets in the middle": (resets, {"candidate_error"}),
    "answers before the body": (answers_early, {"completed", "candidate_timeout"}),
    "answers 500": (fails, {"candidate_error"}),
    "never answers": (never_answers, {"candidate_timeout"}),
    "answers without end": (answers_without_end, {"candidate_error"}),
    "speaks no HTTP": (speaks_no_http, {"candidate_error"}),
    "redirects": (redirects, {"completed", "candidate_timeout"}),
}
LIMITS = {"timeout": "600ms", "answer_limit": "256KiB", "buffer": "256KiB"}


async def streams(connection: Connection) -> None:
    """Production: takes the whole body, then streams its digest in small events."""
    while True:
        request = await connection.request()
        digest = hashlib.sha256(request.body).hexdigest()
        await connection.send(STREAM)
        for number in range(20):
            await connection.chunk(b"data: %d %b\n\n" % (number, digest.encode()))
            await asyncio.sleep(0.002)
        await connection.send(LAST)


async def asked(gateway: Serving, body: bytes) -> None:
    """Production's answer, byte for byte, to a body that is sent in parts."""

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 50_000):
            yield body[at : at + 50_000]

    answer = await gateway.client.post(CHAT, content=parts())
    digest = hashlib.sha256(body).hexdigest()
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.text == "".join(f"data: {number} {digest}\n\n" for number in range(20))


@pytest.mark.parametrize("case", BAD)
async def test_production_is_the_same_to_the_byte_with_a_candidate_that(case: str) -> None:
    script, expected = BAD[case]
    async with raw_backend(streams) as production, raw_backend(script) as bad:
        candidates = {"bad": candidate(bad.url, **LIMITS)}
        async with serving(production.url, candidates=candidates) as gateway:
            for size in (100, 3_000_000, 10):
                await asked(gateway, os.urandom(size))
            found = await ended(gateway, 3)
            assert found.total() == 3
            # On a machine that is busy, any of them may also be too slow.
            assert found.keys() <= expected | {"buffer_overflow", "candidate_timeout"}
            assert found.keys() & expected
            assert production.connections == 1
        assert bad.connections <= 3  # nothing was tried twice


async def test_ten_bad_candidates_at_once_are_not_felt_by_production() -> None:
    async with (
        raw_backend(streams) as production,
        raw_backend(never_reads) as one,
        raw_backend(reads_slowly) as two,
        raw_backend(resets) as three,
        raw_backend(answers_early) as four,
        raw_backend(fails) as five,
        raw_backend(never_answers) as six,
        raw_backend(answers_without_end) as seven,
        raw_backend(speaks_no_http) as eight,
        raw_backend(redirects) as nine,
    ):
        urls = [each.url for each in (one, two, three, four, five, six, seven, eight, nine)]
        urls.append(f"http://127.0.0.1:{free_port()}")
        candidates = {f"bad-{at}": candidate(url, **LIMITS) for at, url in enumerate(urls)}
        async with serving(production.url, candidates=candidates) as gateway:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(asked(gateway, os.urandom(20_000)) for _ in range(8)))
            assert (await ended(gateway, 80)).total() == 80
            assert not gateway.core.tally.faults


async def test_a_dead_candidate_is_not_connected_to_for_each_request() -> None:
    async with raw_backend(ok) as production:
        candidates = {"dead": candidate(f"http://127.0.0.1:{free_port()}")}
        async with serving(production.url, candidates=candidates) as gateway:
            for _ in range(10):
                await gateway.client.post(CHAT, json={})
            assert await ended(gateway, 10) == {"candidate_not_ready": 10}


async def test_an_upload_with_three_slow_candidates_stays_within_the_budget() -> None:
    size, part = 100_000_000, os.urandom(100_000)

    async def reads(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        left = size
        while left:
            left -= len(await connection.reader.read(min(left, 1 << 20)))
        await connection.send(OK)
        await connection.gone()

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(size // len(part)):
            yield part

    async with raw_backend(reads) as production, raw_backend(never_reads) as slow:
        candidates = {
            f"slow-{at}": candidate(slow.url, buffer="1GiB", timeout="10s") for at in range(3)
        }
        async with serving(
            production.url, candidates=candidates, mirror_budget="8MiB", max_body="1GiB"
        ) as gateway:
            headers = {"Content-Length": str(size)}
            answer = await gateway.client.post(CHAT, content=parts(), headers=headers)
            assert answer.status_code == 200
            budget = gateway.gateway.mirrors.budget
            assert 4 * 2**20 < budget.peak <= budget.limit == 8 * 2**20
            assert await ended(gateway, 3) == {"budget_exceeded": 3}
            assert "steady_gateway_mirror_bytes 0.0" in gateway.metrics()
            shown = gateway.metrics().rpartition("steady_gateway_mirror_bytes_peak ")[2]
            assert float(shown.partition("\n")[0]) == budget.peak


async def test_one_slow_mirror_is_given_up_and_the_other_goes_on() -> None:
    body = os.urandom(4_000_000)
    async with (
        raw_backend(echo) as production,
        raw_backend(never_reads) as slow,
        raw_backend(ok) as quick,
    ):
        candidates = {"slow": candidate(slow.url), "quick": candidate(quick.url, buffer="64MiB")}
        async with serving(production.url, candidates=candidates) as gateway:
            assert (await gateway.client.post(CHAT, content=body)).content == body
            await ended(gateway, 2)
            tally = gateway.core.tally
            assert tally.results["chat", "slow", "buffer_overflow"] == 1
            assert tally.results["chat", "quick", "completed"] == 1
        assert quick.requests[0].body == body


async def test_what_a_socket_still_holds_counts_until_it_is_closed() -> None:
    async with raw_backend(ok) as production, raw_backend(never_reads) as slow:
        candidates = {"slow": candidate(slow.url, buffer="64MiB", timeout="1m")}
        async with serving(production.url, candidates=candidates) as gateway:
            await gateway.client.post(CHAT, content=os.urandom(8_000_000))
            mirrors = gateway.gateway.mirrors
            await until(lambda: mirrors.budget.retained)
            (one,) = mirrors.running
            assert isinstance(one, MirroredRequest)
            await until(lambda: one._connection is not None and one._connection.blocked)
            whole = mirrors.budget.retained
            one.finish(Result.CANDIDATE_TIMEOUT)
            assert 0 < mirrors.budget.retained < whole  # only what its socket has
            assert await ended(gateway, 1) == {"candidate_timeout": 1}


async def test_a_mirror_delays_neither_the_close_nor_the_next_request() -> None:
    async with raw_backend(ok) as production, raw_backend(never_answers) as slow:
        candidates = {"slow": candidate(slow.url, timeout="1m")}
        async with serving(production.url, candidates=candidates) as gateway:
            for _ in range(5):
                assert (await gateway.client.post(CHAT, json={})).text == "ok"
            said = await gateway.said(POST + b"Connection: close\r\nContent-Length: 1\r\n\r\nx")
            assert said.endswith(b"ok")
            assert len(gateway.gateway.mirrors.running) == 6
            assert results(gateway).total() == 0
            await gateway.gateway.stop()
            assert results(gateway) == {"shutdown": 6}


async def test_a_client_that_goes_away_cancels_its_mirrors() -> None:
    async with raw_backend(never_answers) as production, raw_backend(never_answers) as other:
        candidates = {"next": candidate(other.url)}
        async with serving(production.url, candidates=candidates) as gateway:
            _, writer = await gateway.raw(POST + b"Content-Length: 2\r\n\r\n{}")
            await until(lambda: other.requests)
            writer.close()
            assert await ended(gateway, 1) == {"client_aborted": 1}
            await until(lambda: other.open == production.open == 0)


async def test_what_production_rejects_before_it_reads_it_reaches_no_candidate() -> None:
    async def refuses(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        await connection.gone()

    async with raw_backend(refuses) as production, raw_backend(ok) as other:
        candidates = {"next": candidate(other.url)}
        async with serving(production.url, candidates=candidates) as gateway:
            said = await gateway.said(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
            assert await ended(gateway, 1) == {"production_rejected": 1}
        assert other.connections == 0


async def test_what_production_rejects_in_the_body_is_cancelled_before_its_answer_ends() -> None:
    async def refuses(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.reader.readexactly(4)
        await connection.send(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9\r\n\r\nhalf")
        await connection.gone()

    async with (
        raw_backend(refuses) as production,
        raw_backend(never_answers) as other,
        serving(production.url, candidates={"next": candidate(other.url)}) as gateway,
    ):
        reader, writer = await gateway.raw(POST + b"Content-Length: 8\r\n\r\nbody")
        await reader.readuntil(b"half")
        assert await ended(gateway, 1) == {"production_rejected": 1}
        await until(lambda: other.open == 0)
        assert production.open == 1
        writer.close()


async def test_what_no_backend_took_is_cancelled_at_the_candidate() -> None:
    async with raw_backend(never_answers) as other:
        dead = f"http://127.0.0.1:{free_port()}"
        async with serving(dead, dead, candidates={"next": candidate(other.url)}) as gateway:
            assert (await gateway.client.post(CHAT, json={})).status_code == 503
            assert await ended(gateway, 1) == {"production_rejected": 1}
        await until(lambda: other.open == 0)


async def test_an_upgrade_is_never_mirrored() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(production.url, candidates={"next": candidate(other.url)}) as gateway:
            said = await gateway.said(
                POST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx"
            )
            assert said.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
            assert results(gateway).total() == 0
        assert production.connections == other.connections == 0


async def test_what_is_refused_in_its_middle_is_cancelled_at_the_candidate() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(
            production.url, candidates={"next": candidate(other.url)}, max_body="64KiB"
        ) as gateway:
            head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
            reader, writer = await gateway.raw(head + b"8000\r\n%b\r\n" % (b"x" * 0x8000))
            await until(lambda: other.connections)
            writer.write(b"8001\r\n%b\r\n" % (b"x" * 0x8001))
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
            assert await ended(gateway, 1) == {"production_rejected": 1}
            writer.close()
        assert other.requests == []


async def test_more_at_once_than_a_candidate_takes_are_not_sent() -> None:
    async with raw_backend(ok) as production, raw_backend(never_answers) as other:
        candidates = {"next": candidate(other.url, max_in_flight=2, timeout="500ms")}
        async with serving(production.url, candidates=candidates) as gateway:
            for _ in range(5):
                await gateway.client.post(CHAT, json={})
            assert await ended(gateway, 5) == {"concurrency_limited": 3, "candidate_timeout": 2}


async def test_candidates_of_one_share_see_the_same_requests() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as one, raw_backend(ok) as two:
        candidates = {
            "one": candidate(one.url, sample=30),
            "two": candidate(two.url, sample=30),
            "none": candidate(two.url, sample=0),
        }
        async with serving(production.url, candidates=candidates) as gateway:
            for number in range(150):
                await gateway.client.post(CHAT, json={"number": number})
            await until(lambda: not gateway.gateway.mirrors.running)
        sent = [request.body for request in one.requests]
        assert sorted(sent) == sorted(request.body for request in two.requests)
        assert 11 < len(sent) < 80  # of 150: six deviations to each side


async def test_a_conversation_sticks_to_the_sample_by_its_header() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        async with serving(
            production.url,
            candidates={"next": candidate(other.url, sample=50)},
            endpoint={"sample_by": "header:X-Session-Id"},
        ) as gateway:
            for _ in range(4):
                for session in range(30):
                    headers = {"X-Session-Id": f"s{session}"}
                    await gateway.client.post(CHAT, json={}, headers=headers)
            await until(lambda: not gateway.gateway.mirrors.running)
            by = 'by="header:x-session-id",candidate="next",endpoint="chat"'
            assert f"steady_gateway_sample_percent{{{by}}} 50.0" in gateway.metrics()
        counts = Counter(request.value("x-session-id") for request in other.requests)
        assert set(counts.values()) == {4}
        assert 0 < len(counts) < 30


async def test_what_can_not_be_mirrored_is_passed_on_and_reported() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        candidates = {"next": candidate(other.url)}
        async with serving(production.url, candidates=candidates) as gateway:
            await gateway.client.get("/v1/models")
            await gateway.client.delete("/v1/files/f1")
            await gateway.client.post("/v1/files", content=b"x")
            await gateway.client.post(f"{CHAT}/../files", content=b"x")
            await gateway.client.post("/backends/gpu-1" + CHAT, content=b"x")
            shown = gateway.metrics()
            assert 'steady_gateway_unmirrored_total{endpoint="chat",reason="method"} 2.0' in shown
            assert 'steady_gateway_unmirrored_total{endpoint="chat",reason="path"} 2.0' in shown
        assert len(production.requests) == 5
        assert other.connections == 0


async def test_a_candidate_that_leads_back_to_the_gateway_is_no_endless_loop() -> None:
    async with raw_backend(ok) as production, serving(production.url) as gateway:
        target = {"next": candidate(f"http://127.0.0.1:{gateway.port}")}
        async with serving(production.url, candidates=target) as other:
            own = other.gateway.mirrors.targets["chat"][0]
            own.pool.address = own.pool.address._replace(port=other.port)
            assert (await other.client.post(CHAT, json={})).text == "ok"
            assert await ended(other, 1) == {"candidate_error": 1}
            assert other.faults(Fault.LOOP, "") == 1
        assert len(production.requests) == 1


async def test_mirrored_traffic_is_kept_apart_in_the_figures() -> None:
    async with raw_backend(ok) as production, raw_backend(ok) as other:
        candidates = {"next": candidate(other.url)}
        async with serving(production.url, candidates=candidates) as gateway:
            for _ in range(3):
                await gateway.client.post(CHAT, json={})
            await ended(gateway, 3)
            shown = gateway.metrics()
    assert 'role="production",server="gpu-1",status="2xx"} 3.0' in shown
    assert 'role="mirror",server="next",status="2xx"} 3.0' in shown
    completed = 'candidate="next",endpoint="chat",result="completed"} 3.0'
    assert f"steady_gateway_mirror_results_total{{{completed}" in shown
    assert 'candidate="next",endpoint="chat",result="shutdown"} 0.0' in shown


@pytest.mark.parametrize("where", ["offer", "_unmirrored"])
async def test_a_fault_of_ours_in_mirroring_is_told_and_not_felt_by_production(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(mirroring, where, fails)
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    try:
        async with raw_backend(echo) as production, raw_backend(ok) as other:
            candidates = {"next": candidate(other.url, timeout="1m")}
            async with serving(production.url, candidates=candidates) as gateway:
                for _ in range(2):
                    assert (await gateway.client.post(CHAT, content=b"body")).content == b"body"
                await until(lambda: not gateway.gateway.mirrors.running)
    finally:
        asyncio.get_running_loop().set_exception_handler(None)
    assert {type(each["exception"]) for each in told} == {ZeroDivisionError}
