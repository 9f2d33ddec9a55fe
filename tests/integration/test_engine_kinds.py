"""Servers of other kinds than vLLM over real HTTP: what a look says, who is asked, and what for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from activities.engine_pages import EnginePages
from activities.engine_requests import EngineRequests
from fleet.contracts.engine import AskRequest
from fleet.engine_sources import EngineSource
from fleet.engines.judge import find
from fleet.engines.reading import Answer, Came, Page
from fleet.engines.sighting import Sighting
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict
from tests.parts.plain import PlainServer, sim_plain

pytestmark = pytest.mark.anyio

LIMIT = timedelta(seconds=5)
WILLING = Policy(restart_unproven=True)


@pytest.fixture
def pages() -> EnginePages:
    return EnginePages()


@pytest.fixture(params=["openai", "ollama", "llamacpp", "router"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[PlainServer]:
    """Each of the servers without counters; llama.cpp's is started without ``--metrics``."""
    async with sim_plain(request.param, bare=True) as running:
        yield running


async def seen(pages: EnginePages, source: EngineSource) -> Reading:
    return await pages.look("p-1", source, LIMIT)


async def asked(pages: EnginePages, source: EngineSource, **request: Any) -> Reading:
    question = AskRequest(server="p-1", **request)
    return await EngineRequests(pages).ask("p-1", source, question)


def verdict(reading: Reading, policy: Policy | None = None) -> Verdict:
    return find(reading, None, policy or Policy()).verdict


def answer(reading: Reading) -> Answer:
    assert reading.engine is not None
    assert reading.engine.answer is not None
    return reading.engine.answer


class TestWithoutCounters:
    async def test_a_look_sends_no_work_and_an_answer_makes_it_healthy(
        self, pages: EnginePages, server: PlainServer
    ) -> None:
        source = server.source()
        look = await seen(pages, source)
        assert look.engine is not None
        assert look.engine.page is Page.LISTED
        assert verdict(look) is Verdict.IDLE
        assert (await server.say())["asked"] == 0
        said = await asked(pages, source)
        assert (answer(said).came, verdict(said)) == (Came.GIVEN, Verdict.HEALTHY)
        assert (await server.say())["asked"] == 1

    async def test_no_answer_is_unproven_and_never_stuck_or_unresponsive(
        self, pages: EnginePages, server: PlainServer
    ) -> None:
        source = server.source()
        await server.say("freeze")
        assert verdict(await seen(pages, source)) is Verdict.IDLE
        for suspected in (False, True):
            said = await asked(pages, source, suspected=suspected)
            assert (answer(said).came, verdict(said)) == (Came.NONE, Verdict.UNPROVEN)

    async def test_where_the_operator_says_so_no_answer_is_a_suspicion(
        self, pages: EnginePages, server: PlainServer
    ) -> None:
        await server.say("freeze")
        assert verdict(await asked(pages, server.source()), WILLING) is Verdict.SUSPECT

    @pytest.mark.parametrize(
        ("word", "came", "meant"),
        [
            ("full", Came.FULL, Verdict.BUSY),
            ("boot", Came.LOADING, Verdict.LOADING),
            ("fail", Came.FAILED, Verdict.DEGRADED),
        ],
    )
    async def test_an_error_proves_no_hang(
        self, pages: EnginePages, server: PlainServer, word: str, came: Came, meant: Verdict
    ) -> None:
        await server.say(word)
        said = await asked(pages, server.source(), suspected=True)
        assert (answer(said).came, verdict(said)) == (came, meant)
        assert verdict(said, WILLING) is meant

    async def test_one_that_nobody_may_probe_is_unproven_and_is_not_asked(
        self, pages: EnginePages, server: PlainServer
    ) -> None:
        source = server.source(probe=False)
        assert verdict(await seen(pages, source)) is Verdict.UNPROVEN
        await asked(pages, source)
        assert (await server.say())["asked"] == 0


class TestOnDemand:
    """A request never loads a model that is not loaded."""

    @pytest.mark.parametrize("model", [None, "tiny"])
    @pytest.mark.parametrize("kind", ["ollama", "router"])
    async def test_where_nothing_is_loaded_it_is_asleep_and_not_asked(
        self, pages: EnginePages, kind: str, model: str | None
    ) -> None:
        async with sim_plain(kind) as server:
            await server.say("unload")
            source = server.source(model=model)
            assert verdict(await seen(pages, source)) is Verdict.ASLEEP
            await asked(pages, source, suspected=True)
            assert (await server.say())["asked"] == 0

    async def test_a_model_that_is_not_the_loaded_one_is_not_asked_for(
        self, pages: EnginePages
    ) -> None:
        async with sim_plain("ollama") as server:
            said = await asked(pages, server.source(model="large"))
            assert (answer(said).came, verdict(said)) == (Came.ASLEEP, Verdict.ASLEEP)
            assert (await server.say())["asked"] == 0

    @pytest.mark.parametrize("kind", ["openai", "engine", "llamacpp", "vllm", "tgi"])
    async def test_an_ollama_that_is_taken_for_another_server_loads_nothing_either(
        self, pages: EnginePages, kind: str
    ) -> None:
        async with sim_plain("ollama") as server:
            await server.say("unload")
            source = server.source(kind=kind)
            assert verdict(await seen(pages, source)) is Verdict.IDLE
            assert answer(await asked(pages, source)).came is Came.ASLEEP
            assert (await server.say())["loads"] == 0

    async def test_the_router_is_told_to_load_none(self, pages: EnginePages) -> None:
        """The model may be unloaded between the list and the request."""
        async with sim_plain("router") as server:
            source = server.source()
            got = await pages.post(source, "/v1/completions?autoload=false", {"model": "tiny"}, {})
            assert got.status == 200
            await server.say("unload")
            got = await pages.post(source, "/v1/completions?autoload=false", {"model": "tiny"}, {})
            assert got.status == 400
            assert (await server.say())["loads"] == 0

    @pytest.mark.parametrize("kind", ["llamacpp", "openai", "engine"])
    async def test_a_sleeping_llama_cpp_is_never_woken(self, pages: EnginePages, kind: str) -> None:
        async with sim_plain("llamacpp") as server:
            await server.say("sleep")
            said = await asked(pages, server.source(kind=kind), suspected=True)
            assert verdict(said) is Verdict.ASLEEP
            assert (await server.say())["loads"] == 0


class TestLlamaCpp:
    async def test_its_counters_are_read_and_where_it_routes_those_of_the_named_model(
        self, pages: EnginePages
    ) -> None:
        for kind in ("llamacpp", "router"):
            async with sim_plain(kind, working=True) as server:
                source = server.source(model="tiny")
                first = await seen(pages, source)
                assert first.engine is not None
                assert first.engine.page is Page.OK
                assert first.engine.in_flight
                await server.say()
                while True:
                    second = await seen(pages, source)
                    found = find(second, Sighting.of(first.engine), Policy())
                    if found.verdict is Verdict.BUSY and "moved" in found.why:
                        break


class TestOwnStep:
    """A probe's own step is no progress of the work of others."""

    @pytest.mark.parametrize(
        ("moves", "came"), [(0, Came.NONE), (1, Came.NONE), (10_000, Came.MOVED)]
    )
    async def test_what_moves_once_after_the_request_was_its_own_prompt(
        self, pages: EnginePages, moves: int, came: Came
    ) -> None:
        """In flight is a request that stands still. The new one is taken in, and never answered."""
        async with _engine_that_moves(moves) as source:
            first = (await seen(pages, source)).engine
            said = await asked(pages, source, since=first, suspected=True)
            assert answer(said).came is came


@asynccontextmanager
async def _engine_that_moves(moves: int) -> AsyncIterator[EngineSource]:
    """A vLLM whose witness moves ``moves`` times, a page each, once it was sent a request."""
    left, count = 0, 1

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left, count
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                left = moves
                await reader.read()
            body = b""
            if b" /metrics " in head:
                count, left = count + (left > 0), max(left - 1, 0)
                body = (
                    'vllm:num_requests_running{engine="0"} 1\n'
                    f'vllm:iteration_tokens_total_sum{{engine="0"}} {count}\n'
                ).encode()
            elif b" /v1/models " in head:
                body = b'{"data": [{"id": "tiny"}]}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield EngineSource(url=f"http://127.0.0.1:{port}", deadline=timedelta(milliseconds=1500))


@pytest.mark.parametrize(
    ("kind", "request_", "path"),
    [
        ("openai", "completion", "/v1/completions"),
        ("openai", "chat", "/v1/chat/completions"),
        ("openai", "embedding", "/v1/embeddings"),
        ("openai", "rerank", "/v1/rerank"),
        ("openai", {"path": "/v1/score", "body": {"model": "tiny", "text_1": "a"}}, "/v1/score"),
        ("ollama", "completion", "/api/generate"),
        ("ollama", "chat", "/api/chat"),
        ("ollama", "embedding", "/api/embed"),
        ("tgi", "completion", "/generate"),
    ],
)
async def test_each_kind_of_request_goes_where_the_server_serves_it(
    pages: EnginePages, kind: str, request_: Any, path: str
) -> None:
    async with sim_plain("ollama" if kind == "ollama" else "openai") as server:
        said = await asked(pages, server.source(kind=kind, request=request_))
        assert answer(said).came is Came.GIVEN
        assert (await server.say())["requests"] == {path: 1}


async def test_what_triton_takes_is_not_guessed(pages: EnginePages) -> None:
    async with sim_plain("openai") as server:
        idle = await asked(pages, server.source(kind="triton"))
        assert idle.engine is not None
        assert idle.engine.answer is None
        doubted = await asked(pages, server.source(kind="triton"), suspected=True)
        assert answer(doubted).came is Came.REFUSED
        assert "set source.request" in answer(doubted).detail
        own = {"path": "/v2/models/m/infer", "body": {"inputs": []}}
        assert answer(await asked(pages, server.source(kind="triton", request=own))).sent == 1
        assert (await server.say())["requests"] == {"/v2/models/m/infer": 1}
