"""The simulated receiver of alerts keeps what a real client delivers."""

import httpx
import pytest

from simulator.inbox import inbox

pytestmark = pytest.mark.anyio


async def test_it_keeps_each_message_in_order() -> None:
    async with inbox() as box, httpx.AsyncClient() as client:
        for number in range(3):
            answer = await client.post(box.url, json={"severity": "page", "number": number})
            assert answer.status_code == 204
        assert [message["number"] for message in box.messages] == [0, 1, 2]
        assert box.received == 3


async def test_what_is_no_message_is_refused_and_not_kept() -> None:
    async with inbox() as box, httpx.AsyncClient() as client:
        assert (await client.post(box.url, content=b"not json")).status_code == 400
        assert (await client.post(box.url, json=["a list"])).status_code == 400
        assert box.messages == []


async def test_a_body_without_end_is_refused() -> None:
    async with inbox() as box, httpx.AsyncClient() as client:
        assert (await client.post(box.url, content=b" " * 2_000_000)).status_code == 413
