"""What the gateway measures of answers, for each server and role, without changing one byte."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.events import Events
from gateway.tally import MOST_MODELS, OTHER_MODELS, Generation, Who
from tests.gateway.test_events import ENGINE, MESSAGES, chat, data
from tests.parts.gateways import Serving, serving, until
from tests.parts.raw_backend import LAST, STREAM, Connection, Script, raw_backend

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
ANSWER = {
    "choices": [{"message": {"content": 'the word "usage" is no key here'}}],
    "usage": {"prompt_tokens": 11, "total_tokens": 16, "completion_tokens": 5},
}


def tokens(of: Generation) -> tuple[int, int, int]:
    """Of prompts, of answers as told, and as counted."""
    return of.input.total, of.told.total, of.counted.total


def answers(body: bytes, **fields: str) -> Script:
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    whole = f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def script(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.send(whole)

    return script


@asynccontextmanager
async def serves(body: bytes) -> AsyncIterator[Serving]:
    async with (
        raw_backend(answers(body, Content_Type="application/json")) as backend,
        serving(backend.url) as gateway,
    ):
        yield gateway


def streams(*events: bytes, pause: float = 0.0) -> Script:
    async def script(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.send(STREAM)
            for event in events:
                await connection.chunk(event)
                await asyncio.sleep(pause)
            await connection.send(LAST)

    return script


def generation(
    gateway: Serving, server: str = "gpu-1", role: str = "production", operation: str = "chat"
) -> Generation:
    generations = gateway.core.tally.of(Who("chat", server, role)).generations
    [found] = [each for asked, each in generations.items() if asked.operation == operation]
    return found


async def test_tokens_of_a_whole_answer_are_those_that_it_tells() -> None:
    body = json.dumps(ANSWER).encode()
    async with serves(body) as gateway:
        assert (await gateway.client.post(CHAT, json={})).content == body
        found, shown = generation(gateway), gateway.metrics()
    assert tokens(found) == (11, 5, 0)
    assert not found.unread
    labels = 'endpoint="chat",gen_ai_operation_name="chat"'
    who = 'role="production",server="gpu-1",source="told"'
    assert f'steady_gateway_tokens_total{{{labels},{who},type="output"}} 5.0' in shown
    usage = f'{labels},gen_ai_token_type="input",{who}'
    assert re.search(rf"gen_ai_client_token_usage_sum{{{usage}}} 11.0", shown)
    assert 'le="16.0"' in shown


async def test_the_usage_of_a_long_answer_is_found_at_its_end() -> None:
    body = json.dumps({"data": ["x" * 1_000_000], "usage": {"prompt_tokens": 3}}).encode()
    async with serves(body) as gateway:
        assert (await gateway.client.post("/v1/embeddings", json={})).content == body
        assert tokens(generation(gateway, operation="embeddings")) == (3, 0, 0)


async def test_of_a_stream_each_time_is_measured_as_vllms_benchmark_does() -> None:
    """First token, gaps between events, and (last - first) / (tokens - 1), with the usage told."""
    async with (
        raw_backend(streams(*ENGINE, pause=0.1)) as backend,
        serving(backend.url) as gateway,
    ):
        answer = await gateway.client.post(CHAT, json={})
        assert answer.content == b"".join(ENGINE)
        found = generation(gateway)
    assert tokens(found) == (7, 9, 0)
    assert (sum(found.first_token.counts), sum(found.gaps.counts)) == (1, 1)
    assert found.first_token.total >= 0.09  # the first event was empty
    assert found.gaps.total >= 0.09
    assert found.per_told.total == pytest.approx(found.gaps.total / 8)
    assert found.whole.total >= found.first_token.total + found.gaps.total


async def test_without_usage_tokens_are_counted_from_the_stream_and_said_to_be() -> None:
    events = [chat({"content": "a"}), chat({"content": "b"}), chat({"content": "c"})]
    async with raw_backend(streams(*events)) as backend, serving(backend.url) as gateway:
        await gateway.client.post(CHAT, json={})
        found = generation(gateway)
    assert tokens(found) == (0, 0, 3)
    assert sum(found.per_counted.counts) == 1
    assert sum(found.per_told.counts) == 0


async def test_a_mirrors_tokens_are_the_candidates_and_never_productions() -> None:
    body = json.dumps(ANSWER).encode()
    async with (
        raw_backend(answers(body, Content_Type="application/json")) as production,
        raw_backend(streams(*MESSAGES)) as other,
        serving(production.url, candidates={"next": {"url": other.url, "sample": 100}}) as gateway,
    ):
        for _ in range(3):
            await gateway.client.post(CHAT, json={})
        await gateway.client.post(f"/candidates/next{CHAT}", json={})
        await until(lambda: gateway.core.tally.results["chat", "next", "completed"] == 3)
        own = generation(gateway)
        mirrored = generation(gateway, "next", "mirror")
        direct = generation(gateway, "next", "direct")
    assert own.told.total == 15
    assert mirrored.told.total == 9
    assert direct.told.total == 3
    assert sum(own.first_token.counts) == 0
    assert sum(mirrored.first_token.counts) == 3


async def test_what_is_compressed_is_passed_on_and_not_unpacked() -> None:
    body = gzip.compress(json.dumps(ANSWER).encode())
    script = answers(body, Content_Type="application/json", Content_Encoding="gzip")
    async with raw_backend(script) as backend, serving(backend.url) as gateway:
        assert (await gateway.client.post(CHAT, json={})).json() == ANSWER
        found = generation(gateway)
    assert (found.unread, tokens(found)) == ({"compressed": 1}, (0, 0, 0))
    assert sum(found.whole.counts) == 1


async def test_an_answer_that_tells_no_usage_is_counted() -> None:
    async with serves(b"{}") as gateway:
        await gateway.client.post(CHAT, json={})
        assert generation(gateway).unread == {"no_usage": 1}


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/models"), ("POST", "/v1/files")])
async def test_what_asks_no_model_is_not_measured_as_if_it_did(method: str, path: str) -> None:
    body = json.dumps(ANSWER).encode()
    async with serves(body) as gateway:
        await gateway.client.request(method, path)
        series = gateway.core.tally.of(Who("chat", "gpu-1", "production"))
    assert sum(series.whole.counts) == 1
    assert series.generations == {}


async def test_tokens_of_a_stream_that_broke_off_are_booked_and_are_no_whole_answer() -> None:
    async def breaks(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        for event in MESSAGES[:5]:
            await connection.chunk(event)

    async with raw_backend(breaks) as backend, serving(backend.url) as gateway:
        with pytest.raises(Exception, match=r"closed|disconnected|incomplete"):
            await gateway.client.post("/v1/messages", json={})
        found, shown = generation(gateway), gateway.metrics()
    # The stream had told of one token when it began, and two had come.
    assert tokens(found) == (5, 0, 2)
    assert sum(found.first_token.counts) == 1
    assert sum(found.whole.counts) == sum(found.per_counted.counts) == 0
    assert sum(found.counted.whole.counts) == sum(found.input.whole.counts) == 0
    who = 'role="production",server="gpu-1"'
    assert f'errors_total{{endpoint="chat",kind="backend_died",{who}}} 1.0' in shown


async def test_a_client_that_goes_ends_the_measuring_of_its_stream() -> None:
    async def endless(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        while True:
            await connection.chunk(chat({"content": "a"}))
            await asyncio.sleep(0.01)

    async with raw_backend(endless) as backend, serving(backend.url) as gateway:
        async with gateway.client.stream("POST", CHAT, json={}) as answer:
            async for _ in answer.aiter_bytes():
                break
        await until(lambda: generation(gateway).counted.total)


async def test_a_stream_that_tells_of_an_error_is_counted_as_failed() -> None:
    events = [chat({"content": "a"}), data({"error": {"message": "no memory"}})]
    async with raw_backend(streams(*events)) as backend, serving(backend.url) as gateway:
        await gateway.client.post(CHAT, json={})
        assert generation(gateway).failed == 1


@pytest.mark.parametrize("cut", range(1, 60, 7))
async def test_production_gets_every_byte_wherever_an_event_is_cut(cut: int) -> None:
    whole = b"".join(ENGINE)
    chunks = [whole[at : at + cut] for at in range(0, len(whole), cut)]
    async with raw_backend(streams(*chunks)) as backend, serving(backend.url) as gateway:
        assert (await gateway.client.post(CHAT, json={})).content == whole
        assert generation(gateway).told.total == 9


async def test_a_fault_in_measuring_changes_nothing_for_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def broken(_: object, data: bytes) -> int:
        raise ZeroDivisionError(data)

    monkeypatch.setattr(Events, "feed", broken)
    async with raw_backend(streams(*ENGINE)) as backend, serving(backend.url) as gateway:
        assert (await gateway.client.post(CHAT, json={})).content == b"".join(ENGINE)
        assert generation(gateway).unread == {"fault": 1}
    assert len(told) == 1
    asyncio.get_running_loop().set_exception_handler(None)


async def test_what_a_server_costs_grows_with_time_whether_it_works_or_not() -> None:
    endpoint = {"backends": {"gpu-1": {"url": "http://127.0.0.1:1", "price_per_hour": 3600}}}
    candidates = {"next": {"url": "http://127.0.0.1:1", "price_per_hour": 7200}}
    async with serving(candidates=candidates, endpoint=endpoint) as gateway:
        began, core = costs(gateway.metrics()), gateway.core
        earlier = core.sweeper.now
        await until(lambda: core.sweeper.now > earlier + 0.2)
        for server, per_second in (("gpu-1", 1), ("next", 2)):
            grown = costs(gateway.metrics())[server] - began[server]
            assert grown == pytest.approx((core.sweeper.now - earlier) * per_second, abs=0.2)
        shown = gateway.metrics()
    assert 'steady_gateway_price_per_hour{kind="candidate",server="next"} 7200.0' in shown


def costs(shown: str) -> dict[str, float]:
    line = r'steady_gateway_cost_total\{kind=".*?",server="(.*?)"\} ([0-9.e+-]+)'
    return {server: float(cost) for server, cost in re.findall(line, shown)}


MODELS = "gen_ai_client_token_usage_count"


def models(gateway: Serving) -> dict[str, float]:
    """Answers whose tokens were booked, by the label of the model."""
    found: dict[str, float] = {}
    for line in gateway.metrics().splitlines():
        if line.startswith(MODELS) and 'token_type="output"' in line and 'source="told"' in line:
            label = re.search(r'gen_ai_response_model="([^"]*)"', line)
            found[label[1] if label else ""] = float(line.rpartition(" ")[2])
    return found


@pytest.mark.parametrize(
    "answer",
    [
        b'{"model":"m-8b","usage":{"prompt_tokens":1,"completion_tokens":2}}',
        b'{"model": "m-8b", "x": "%b", "usage": {"completion_tokens": 2}}' % (b"x" * 100_000),
        b'{"x": "%b", "model":"m-8b", "usage": {"completion_tokens": 2}}' % (b"x" * 100_000),
    ],
)
async def test_an_answer_is_counted_under_the_model_that_it_names(answer: bytes) -> None:
    async with serves(answer) as gateway:
        await gateway.client.post(CHAT, json={"model": "a-name-of-the-client"})
        assert models(gateway) == {"m-8b": 1}


async def test_a_stream_is_counted_under_the_model_that_it_names() -> None:
    began = b'data: {"type":"response.created","response":{"model":"m-8b"}}\n\n'
    said = b'event: response.output_text.delta\ndata: {"delta":"a \\"model\\":\\"b\\""}\n\n'
    usage = b'data: {"usage":{"input_tokens":1,"output_tokens":2}}\n\n'
    async with (
        raw_backend(streams(b": ping\n\n", began, said, usage)) as backend,
        serving(backend.url) as gateway,
    ):
        await gateway.client.post("/v1/responses", json={"stream": True})
        assert models(gateway) == {"m-8b": 1}


async def test_what_names_no_model_has_no_such_label() -> None:
    async with serves(b'{"usage":{"prompt_tokens":1,"completion_tokens":2}}') as gateway:
        await gateway.client.post(CHAT, json={"model": "m"})
        assert models(gateway) == {"": 1}
        assert "gen_ai_response_model" not in gateway.metrics()
        assert "gen_ai_provider_name" not in gateway.metrics()


async def test_a_client_that_invents_models_fills_no_memory() -> None:
    """As llama.cpp answers: with the name that it was asked for."""

    async def repeats(connection: Connection) -> None:
        while True:
            name = json.loads((await connection.request()).body)["model"]
            body = json.dumps({"model": name, "usage": {"completion_tokens": 1}}).encode()
            kind = b"Content-Type: application/json\r\n"
            await connection.send(
                b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (kind, len(body), body)
            )

    async with raw_backend(repeats) as backend, serving(backend.url) as gateway:
        for number in range(MOST_MODELS + 20):
            await gateway.client.post(CHAT, json={"model": f"m-{number}"})
        found = models(gateway)
    assert len(found) == MOST_MODELS + 1
    assert found[OTHER_MODELS] == 20


async def test_what_a_server_runs_is_said_by_whoever_configured_it() -> None:
    body = b'{"usage":{"prompt_tokens":1,"completion_tokens":2}}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"

    async def script(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.send(answer % (len(body), body))

    async with raw_backend(script) as backend:
        endpoint = {"backends": {"gpu-1": {"url": backend.url, "provider": "vllm"}}}
        candidates = {"next": {"url": backend.url, "sample": 100, "provider": "sglang"}}
        async with serving(endpoint=endpoint, candidates=candidates) as gateway:
            await gateway.client.post(CHAT, json={})
            await until(lambda: gateway.core.tally.results["chat", "next", "completed"])
            page = gateway.metrics()
    for role, provider in (("production", "vllm"), ("mirror", "sglang")):
        assert re.search(
            rf'gen_ai_server_request_duration_seconds_count{{.*provider_name="{provider}".*'
            rf'role="{role}".*}} 1.0',
            page,
        )
