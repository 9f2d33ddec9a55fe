"""A simulated vLLM over real HTTP: what its page says in every state, and what is made of it."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic_core import to_json

from activities import engine_pages
from activities.engine_pages import EnginePages
from fleet.engine_sources import EngineSource
from fleet.engines.judge import find
from fleet.engines.reading import EngineReading, Page
from fleet.engines.sighting import Sighting, compare
from fleet.policy import Policy
from fleet.readings import Reading, ReadStatus
from fleet.verdicts import Verdict
from tests.parts.ports import free_port
from tests.parts.vllm import sim_vllm

pytestmark = pytest.mark.anyio

LIMIT = timedelta(seconds=3)


@pytest.fixture
def pages() -> EnginePages:
    return EnginePages()


def engine_of(reading: Reading) -> EngineReading:
    assert reading.engine is not None
    return reading.engine


async def judged(pages: EnginePages, source: EngineSource, apart: float = 0.4) -> Verdict:
    """The verdict of two looks."""
    before = Sighting.of(engine_of(await pages.look("v-1", source, LIMIT)))
    await asyncio.sleep(apart)
    return find(await pages.look("v-1", source, LIMIT), before, Policy()).verdict


async def test_a_full_server_is_busy_and_a_chat_request_to_it_waits(pages: EnginePages) -> None:
    async with sim_vllm(load=4, slots=4) as server:
        asking = asyncio.create_task(server.complete())
        await asyncio.sleep(0.5)
        assert await judged(pages, server.source()) is Verdict.BUSY
        reading = await pages.look("v-1", server.source(), LIMIT)
        assert (engine_of(reading).engines[0].running, engine_of(reading).engines[0].waiting) == (
            4,
            1,
        )
        assert not asking.done()
        asking.cancel()
        assert await server.asked() == 1


async def test_frozen_under_load_its_pages_answer_and_nothing_moves(pages: EnginePages) -> None:
    async with sim_vllm(load=2) as server:
        assert await judged(pages, server.source()) is Verdict.BUSY
        await server.say("freeze")
        assert await judged(pages, server.source()) is Verdict.SUSPECT
        await server.say("thaw")
        assert await judged(pages, server.source()) is Verdict.BUSY


async def test_frozen_while_idle_it_looks_idle_and_a_request_never_ends(pages: EnginePages) -> None:
    async with sim_vllm() as server:
        assert await server.complete() == 200
        assert await judged(pages, server.source()) is Verdict.IDLE
        await server.say("freeze")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await server.complete()
        assert await judged(pages, server.source()) is Verdict.IDLE


async def test_a_lone_long_prompt_freezes_the_step_counter_only(pages: EnginePages) -> None:
    async with sim_vllm(chunk=16, step=0.05) as server:
        asking = asyncio.create_task(server.complete("x" * 20_000))
        await asyncio.sleep(0.5)
        first = engine_of(await pages.look("v-1", server.source(), LIMIT))
        await asyncio.sleep(0.5)
        second = engine_of(await pages.look("v-1", server.source(), LIMIT))
        assert first.engines[0].steps == second.engines[0].steps == 0
        assert first.engines[0].witnesses["output"] == second.engines[0].witnesses["output"] == 0
        assert compare(second, Sighting.of(first)).moved
        asking.cancel()


async def test_one_frozen_rank_is_seen_beside_one_that_works(pages: EnginePages) -> None:
    async with sim_vllm(ranks=2, load=2) as server:
        await server.say("freeze", rank=0)
        assert await judged(pages, server.source()) is Verdict.SUSPECT
        assert engine_of(await pages.look("v-1", server.source(), LIMIT)).started is None


async def test_stale_gauges_look_stuck_and_the_server_answers(pages: EnginePages) -> None:
    async with sim_vllm(load=2) as server:
        await asyncio.sleep(0.2)
        await server.say("stale")
        assert await judged(pages, server.source()) is Verdict.SUSPECT
        assert await server.complete() == 200


async def test_a_sleeping_one_is_asleep(pages: EnginePages) -> None:
    async with sim_vllm(load=1) as server:
        await server.say("sleep")
        assert await judged(pages, server.source()) is Verdict.ASLEEP


async def test_its_page_is_a_page_to_the_parser_of_prometheus() -> None:
    async with sim_vllm(ranks=2, load=1, mfu=True) as server:
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"{server.url}/metrics")).text
        names = {family.name for family in text_string_to_metric_families(text)}
        assert {"vllm:num_requests_running", "vllm:iteration_tokens_total"} <= names


async def test_while_it_loads_its_port_is_closed(pages: EnginePages) -> None:
    source = EngineSource(url=f"http://127.0.0.1:{free_port()}")
    reading = await pages.look("v-1", source, LIMIT)
    assert (reading.status, engine_of(reading).page) == (ReadStatus.MISSING, Page.REFUSED)
    assert "connection refused" in reading.detail


# --- pages that are none -------------------------------------------------------------------------


@asynccontextmanager
async def server_that_says(*parts: bytes, hangs: bool = False) -> AsyncIterator[EngineSource]:
    """A server that answers each request with the next of ``parts``, and the last one again."""
    left = list(parts)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            while hangs:
                await asyncio.sleep(0.01)
                writer.write(b"x" * 1000)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield EngineSource(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base")


def said(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


GOOD = b'vllm:generation_tokens_total{engine="0"} 1\n'


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (said("200 OK", GOOD), Page.OK, ""),
        (said("200 OK", b"<html>hello"), Page.UNREADABLE, "HTML"),
        (said("200 OK", b"\x00\x01"), Page.UNREADABLE, "binary"),
        (said("200 OK", b"process_start_time_seconds 1\n"), Page.LISTED, "none of the counters"),
        (said("200 OK", gzip.compress(GOOD), "Content-Encoding: gzip"), Page.OK, ""),
        (said("200 OK", GOOD, "Content-Encoding: gzip"), Page.UNREADABLE, "and is not"),
        (said("200 OK", GOOD, "Content-Encoding: br"), Page.UNREADABLE, "packed as 'br'"),
        (said("401 Unauthorized", b"who?"), Page.UNREADABLE, "asks for source.api_key"),
        (said("404 Not Found"), Page.UNREADABLE, "is source.url the base URL"),
        (said("500 Oops", b"RuntimeError: boom\nat"), Page.FAILING, "answers 500"),
        (said("503 No", b"Loading model"), Page.UNAVAILABLE, "Loading model"),
        (
            said("302 Found", b"", "Location: http://elsewhere/metrics"),
            Page.UNREADABLE,
            "redirects",
        ),
        (said("307 Yes", b"", "Location: /base/metrics/"), Page.UNREADABLE, "redirects"),
        (b"SSH-2.0-OpenSSH\r\n", Page.SLOW, "no answer in HTTP"),
    ],
)
async def test_each_kind_of_answer_is_told_apart(
    pages: EnginePages, answer: bytes, kind: Page, words: str
) -> None:
    async with server_that_says(answer) as source:
        reading = await pages.look("v-1", source, LIMIT)
    assert engine_of(reading).page is kind
    assert words in reading.detail
    assert "http://" not in reading.detail


async def test_a_redirect_to_the_same_page_with_a_slash_is_followed(pages: EnginePages) -> None:
    redirect = said("307 Temporary Redirect", b"", "Location: /base/metrics/")
    async with server_that_says(redirect, said("200 OK", GOOD)) as source:
        assert engine_of(await pages.look("v-1", source, LIMIT)).page is Page.OK


async def test_a_body_without_end_is_slow_or_too_large(
    pages: EnginePages, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    async with server_that_says(endless, hangs=True) as source:
        slow = await pages.look("v-1", source, timedelta(milliseconds=300))
        assert engine_of(slow).page is Page.SLOW
        monkeypatch.setattr(engine_pages, "LARGEST_PAGE", 5000)
        large = await pages.look("v-1", source, LIMIT)
        assert engine_of(large).page is Page.UNREADABLE
        assert "page of over" in large.detail


async def test_the_api_key_is_sent_and_told_to_nobody(
    pages: EnginePages, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(said("403 Forbidden"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        source = EngineSource.model_validate(
            {
                "url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
                "api_key": {"env": "KEY_OF_A_TEST"},
            }
        )
        unset = await pages.look("v-1", source, LIMIT)
        assert "source.api_key: the environment variable KEY_OF_A_TEST" in unset.detail
        monkeypatch.setenv("KEY_OF_A_TEST", "sk-planted")
        reading = await pages.look("v-1", source, LIMIT)
    assert b"authorization: bearer sk-planted" in heads[-1].lower()
    assert "sk-planted" not in to_json(reading).decode()
