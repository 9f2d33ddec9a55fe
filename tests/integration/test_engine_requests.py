"""One short request to a simulated vLLM over real HTTP: when it is sent, and what it comes to."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from activities.engine_pages import EnginePages
from activities.engine_requests import EngineRequests
from fleet.contracts.engine import AskRequest
from fleet.engine_sources import EngineSource
from fleet.engines.reading import Answer, Came, EngineReading, Page
from fleet.readings import Reading
from tests.parts.ports import free_port
from tests.parts.vllm import Vllm, sim_vllm

pytestmark = pytest.mark.anyio

DEADLINE = {"deadline": "700ms"}


@pytest.fixture
def pages() -> EnginePages:
    return EnginePages()


class Asker:
    def __init__(self, pages: EnginePages, server: Vllm, **source: Any) -> None:
        self._pages, self._source = pages, server.source(**{**DEADLINE, **source})

    async def seen(self) -> EngineReading:
        reading = await self._pages.look("v-1", self._source, timedelta(seconds=3))
        assert reading.engine is not None
        return reading.engine

    async def ask(self, *, since: EngineReading | None = None, suspected: bool = False) -> Reading:
        request = AskRequest(server="v-1", since=since, suspected=suspected)
        return await EngineRequests(self._pages).ask("v-1", self._source, request)

    async def answer(self, **request: Any) -> Answer:
        reading = await self.ask(**request)
        assert reading.engine is not None
        assert reading.engine.answer is not None
        return reading.engine.answer


@pytest.mark.parametrize("kind", ["completion", "chat", "embedding"])
async def test_an_idle_engine_answers(pages: EnginePages, kind: str) -> None:
    async with sim_vllm() as server:
        asker = Asker(pages, server, request=kind)
        answer = await asker.answer(since=await asker.seen())
        assert (answer.came, answer.sent) == (Came.GIVEN, 1)
        assert (await server.say(""))["requests"] == {kind: 1}


async def test_one_with_work_in_flight_is_never_sent_a_request(pages: EnginePages) -> None:
    async with sim_vllm(load=2) as server:
        asker = Asker(pages, server)
        await asyncio.sleep(0.2)
        assert (await asker.answer()).came is Came.BUSY
        before = await asker.seen()
        await asyncio.sleep(0.2)
        assert (await asker.answer(since=before, suspected=True)).came in (Came.MOVED, Came.BUSY)
        assert await server.asked() == 0


async def test_one_that_froze_while_idle_does_not_answer(pages: EnginePages) -> None:
    async with sim_vllm() as server:
        await server.say("freeze")
        asker = Asker(pages, server)
        answer = await asker.answer(since=await asker.seen())
        assert (answer.came, answer.sent) == (Came.NONE, 1)
        assert answer.took is not None
        assert answer.took >= 0.7


async def test_one_that_froze_under_load_is_asked_once_and_does_not_answer(
    pages: EnginePages,
) -> None:
    async with sim_vllm(load=2, slots=2) as server:
        asker = Asker(pages, server)
        await asyncio.sleep(0.2)
        await server.say("freeze")
        before = await asker.seen()
        answer = await asker.answer(since=before, suspected=True)
        assert answer.came is Came.NONE
        assert await server.asked() == 1


async def test_a_thaw_meanwhile_is_a_movement_or_an_answer(pages: EnginePages) -> None:
    async with sim_vllm(load=2, slots=2) as server:
        asker = Asker(pages, server, deadline="10s")
        await asyncio.sleep(0.2)
        await server.say("freeze")
        asking = asyncio.create_task(asker.answer(since=await asker.seen(), suspected=True))
        await asyncio.sleep(0.5)
        await server.say("thaw")
        assert (await asyncio.wait_for(asking, 5)).came is Came.MOVED


async def test_stale_gauges_are_cleared_by_an_answer(pages: EnginePages) -> None:
    async with sim_vllm(load=2) as server:
        asker = Asker(pages, server)
        await asyncio.sleep(0.2)
        await server.say("stale")
        answer = await asker.answer(since=await asker.seen(), suspected=True)
        assert answer.came is Came.GIVEN


@pytest.mark.parametrize(
    ("word", "came", "said"),
    [
        ("fail", Came.FAILED, "500, "),
        ("full", Came.FULL, "429"),
        ("pause", Came.ASLEEP, "/is_paused"),
    ],
)
async def test_what_proves_no_hang_is_told_apart(
    pages: EnginePages, word: str, came: Came, said: str
) -> None:
    async with sim_vllm() as server:
        await server.say(word)
        answer = await Asker(pages, server).answer()
        assert answer.came is came
        assert said in answer.detail


async def test_a_sleeping_engine_is_never_asked(pages: EnginePages) -> None:
    async with sim_vllm() as server:
        await server.say("sleep")
        reading = await Asker(pages, server).ask()
        assert reading.engine is not None
        assert reading.engine.answer is None
        assert await server.asked() == 0


async def test_a_model_that_is_not_served_says_nothing_of_the_engine(pages: EnginePages) -> None:
    async with sim_vllm() as server:
        answer = await Asker(pages, server, model="other").answer()
        assert answer.came is Came.REFUSED
        assert "404" in answer.detail


async def test_where_it_is_switched_off_an_idle_engine_is_not_asked(pages: EnginePages) -> None:
    async with sim_vllm() as server:
        reading = await Asker(pages, server, probe=False).ask()
        assert reading.engine is not None
        assert reading.engine.answer is None
        assert await server.asked() == 0


class TestSeveralEngines:
    async def test_each_idle_one_is_asked_and_the_frozen_one_named(
        self, pages: EnginePages
    ) -> None:
        async with sim_vllm(ranks=2) as server:
            asker = Asker(pages, server)
            assert (await asker.answer()).sent == 2
            await server.say("freeze", rank=1)
            answer = await asker.answer(since=await asker.seen())
            assert (answer.came, answer.rank, answer.sent) == (Came.NONE, "1", 2)

    async def test_the_steps_of_the_others_prove_nothing_for_the_suspected_one(
        self, pages: EnginePages
    ) -> None:
        async with sim_vllm(ranks=2, load=1) as server:
            asker = Asker(pages, server)
            await asyncio.sleep(0.2)
            await server.say("freeze", rank=0)
            answer = await asker.answer(since=await asker.seen(), suspected=True)
            assert (answer.came, answer.rank) == (Came.NONE, "0")


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
class TestRanksByName:
    """One rank idle, the other at work."""

    async def test_the_idle_one_alone_is_asked_and_a_frozen_one_found(
        self, pages: EnginePages, kind: str
    ) -> None:
        async with sim_vllm(ranks=2, load=1, idle=0, dialect=kind) as server:
            asker = Asker(pages, server, kind=kind)
            await asyncio.sleep(0.2)
            answer = await asker.answer(since=await asker.seen())
            assert (answer.came, answer.rank, answer.sent) == (Came.GIVEN, "0", 1)
            await server.say("freeze", rank=0)
            answer = await asker.answer(since=await asker.seen())
            assert (answer.came, answer.rank, answer.sent) == (Came.NONE, "0", 1)
            assert (await server.say(""))["landed"] == [2, 0]

    @pytest.mark.parametrize(
        "source", [{}, {"request": "embedding"}, {"named_ranks": False}], ids=str
    )
    async def test_nobody_is_asked_where_it_might_land_on_the_one_that_works(
        self, pages: EnginePages, kind: str, source: dict[str, Any]
    ) -> None:
        old = not source
        async with sim_vllm(ranks=2, load=1, idle=0, dialect=kind, old=old) as server:
            asker = Asker(pages, server, kind=kind, **source)
            await asyncio.sleep(0.2)
            assert (await asker.answer(since=await asker.seen())).came is Came.BUSY
            assert await server.asked() == 0

    async def test_the_operator_may_know_it_better_than_the_page(
        self, pages: EnginePages, kind: str
    ) -> None:
        async with sim_vllm(ranks=2, load=1, idle=0, dialect=kind, old=True) as server:
            asker = Asker(pages, server, kind=kind, named_ranks=True)
            await asyncio.sleep(0.2)
            # Here it is not so: the request lands wherever the turn is, and that is told.
            answer = await asker.answer(since=await asker.seen())
            assert (await server.say(""))["landed"] == [0, 1]
            assert (answer.came, answer.rank) == (Came.ELSEWHERE, "0")


async def test_a_closed_port_is_no_answer_and_no_question(pages: EnginePages) -> None:
    source = EngineSource(url=f"http://127.0.0.1:{free_port()}")
    reading = await EngineRequests(pages).ask("v-1", source, AskRequest(server="v-1"))
    assert reading.engine is not None
    assert (reading.engine.page, reading.engine.answer) == (Page.REFUSED, None)
