"""Production's answer and the candidates' beside it, in a file; production waits for none of it."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.pair_writer import append
from gateway.pairing import Kept, Pair
from tests.gateway.test_events import ENGINE, chat
from tests.gateway.test_measured import answers, streams
from tests.parts.gateways import Serving, serving, until
from tests.parts.raw_backend import Connection, Script, echo, raw_backend

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "user": "someone"}


def said(text: str, **fields: str) -> Script:
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    return answers(body, Content_Type="application/json", **fields)


@asynccontextmanager
async def pairing(
    folder: Path, production: Script, *candidates: Script, settings: Any = None, **spec: Any
) -> AsyncIterator[Serving]:
    """A gateway that keeps the next request, whatever the time of day."""
    async with raw_backend(production) as own:
        others = [raw_backend(each) for each in candidates]
        urls = [(await each.__aenter__()).url for each in others]
        try:
            async with serving(
                own.url,
                candidates={
                    f"next-{at}": {"url": url, "sample": 100} for at, url in enumerate(urls, 1)
                },
                endpoint={"paired_samples": {"file": str(folder / "pairs.jsonl"), **spec}},
                **(settings or {}),
            ) as gateway:
                due(gateway)
                yield gateway
        finally:
            for each in others:
                await each.__aexit__(None, None, None)


def due(gateway: Serving) -> None:
    gateway.gateway.mirrors.pairs["chat"].due = 0.0


async def results(gateway: Serving, count: int = 1) -> dict[Kept, int]:
    mirrors = gateway.gateway.mirrors
    found = mirrors.pairs["chat"].results
    await until(lambda: found.total() >= count)
    await until(lambda: mirrors.paired.retained == 0)
    return dict(found)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in (folder / "pairs.jsonl").read_text().splitlines()]


async def test_a_pair_has_the_request_and_all_answers_and_no_header(tmp_path: Path) -> None:
    async with pairing(tmp_path, said("mine"), said("other"), streams(*ENGINE)) as gateway:
        headers = {"Authorization": "Bearer very-secret-key", "Cookie": "id=very-secret"}
        await gateway.client.post(f"{CHAT}?key=very-secret", json=ASKED, headers=headers)
        assert await results(gateway) == {Kept.WRITTEN: 1}
        shown = gateway.metrics()
    (kept,) = lines(tmp_path)
    assert kept["request"] == ASKED
    assert (kept["endpoint"], kept["path"], kept["sample_by"]) == ("chat", CHAT, "request")
    production = kept["production"]
    one, two = kept["candidates"]["next-1"], kept["candidates"]["next-2"]
    assert (production["server"], production["status"]) == ("gpu-1", 200)
    assert production["answer"]["choices"][0]["message"]["content"] == "mine"
    assert one["answer"]["choices"][0]["message"]["content"] == "other"
    assert two["said"]["texts"] == {
        "choices.0.content": 'Hel"lo',
        "choices.0.finish_reason": "stop",
    }
    assert two["said"]["usage"] == {"prompt_tokens": 7, "completion_tokens": 9}
    assert 0 < one["seconds"] < 20
    assert "secret" not in (tmp_path / "pairs.jsonl").read_text()
    assert (tmp_path / "pairs.jsonl").stat().st_mode & 0o777 == 0o600
    assert 'paired_samples_total{endpoint="chat",result="written"} 1.0' in shown


async def test_fields_that_the_operator_names_and_secrets_of_usual_forms_are_hidden(
    tmp_path: Path,
) -> None:
    key = "sk-" + "a1b2c3d4" * 4
    asked = {
        **ASKED,
        "metadata": {"customer": {"user": "nested"}},
        "password": "hunter2hunter2",
        "note": f"my key is {key}",
    }
    parts = [chat({"content": part}) for part in (key[:9], key[9:20], key[20:])]
    async with pairing(
        tmp_path, said(f"use {key}"), streams(*parts), redact=["user", "customer"]
    ) as gateway:
        await gateway.client.post(CHAT, json=asked)
        assert await results(gateway) == {Kept.WRITTEN: 1}
    (kept,) = lines(tmp_path)
    assert kept["request"]["user"] == kept["request"]["metadata"]["customer"] == "[redacted]"
    assert kept["request"]["password"] == "[redacted]"
    assert kept["candidates"]["next-1"]["said"]["texts"]["choices.0.content"] == "[redacted]"
    text = (tmp_path / "pairs.jsonl").read_text()
    assert key not in text
    assert key[9:20] not in text


async def test_as_many_a_day_as_configured_and_no_more(tmp_path: Path) -> None:
    async with pairing(tmp_path, said("a"), said("b"), a_day=1) as gateway:
        for _ in range(5):
            await gateway.client.post(CHAT, json=ASKED)
        await until(lambda: gateway.core.tally.results["chat", "next-1", "completed"] == 5)
        assert await results(gateway) == {Kept.WRITTEN: 1}
        wait = gateway.gateway.mirrors.pairs["chat"].due - gateway.core.sweeper.now
        assert 86_000 < wait < 86_401
    assert len(lines(tmp_path)) == 1


async def test_without_paired_samples_nothing_is_kept() -> None:
    async with raw_backend(said("a")) as own, raw_backend(said("b")) as other:
        candidates = {"next": {"url": other.url, "sample": 100}}
        async with serving(own.url, candidates=candidates) as gateway:
            await gateway.client.post(CHAT, json=ASKED)
            assert gateway.gateway.mirrors.pairs == {}
            assert gateway.gateway.mirrors.paired.peak == 0


async def test_productions_own_server_as_a_candidate_gives_the_noise_floor(tmp_path: Path) -> None:
    async with raw_backend(said("a")) as own:
        async with serving(
            own.url,
            candidates={"noise": {"url": own.url, "sample": 100}},
            endpoint={"paired_samples": {"file": str(tmp_path / "pairs.jsonl")}},
        ) as gateway:
            due(gateway)
            await gateway.client.post(CHAT, json=ASKED)
            assert await results(gateway) == {Kept.WRITTEN: 1}
        assert len(own.requests) == 2
        assert own.requests[0].body == own.requests[1].body
    (kept,) = lines(tmp_path)
    assert kept["production"]["answer"] == kept["candidates"]["noise"]["answer"]


async def breaks(connection: Connection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


@pytest.mark.parametrize(
    ("production", "candidate", "spec", "expected"),
    [
        (said("a"), said("b" * 2000), {"longest": "1KiB"}, Kept.TOO_LONG),
        (said("a"), breaks, {}, Kept.NO_ANSWER),
        (breaks, said("b"), {}, Kept.INCOMPLETE),
        (said("a", Content_Encoding="zstd"), said("b"), {}, Kept.NOT_READABLE),
    ],
)
async def test_what_can_not_be_kept_is_counted_and_holds_nothing(
    tmp_path: Path, production: Script, candidate: Script, spec: Any, expected: Kept
) -> None:
    async with pairing(tmp_path, production, candidate, **spec) as gateway:
        with suppress(httpx.RemoteProtocolError):
            await gateway.client.post(CHAT, content=json.dumps(ASKED))
        assert await results(gateway) == {expected: 1}
    assert not (tmp_path / "pairs.jsonl").exists()


async def test_a_request_that_is_no_json_is_not_kept(tmp_path: Path) -> None:
    async with pairing(tmp_path, said("a"), said("b")) as gateway:
        await gateway.client.post(CHAT, content=b"no json")
        assert await results(gateway) == {Kept.NOT_READABLE: 1}


async def test_the_memory_that_samples_hold_is_bounded(tmp_path: Path) -> None:
    """Ten requests of 400 KiB whose candidate never answers: three find room in 1 MiB, at most."""

    async def never(connection: Connection) -> None:
        await connection.request()
        await connection.gone()

    body = json.dumps({"prompt": "x" * 400_000}).encode()
    async with pairing(
        tmp_path, said("a"), never, longest="1MiB", settings={"paired_budget": "1MiB"}
    ) as gateway:
        for _ in range(10):
            due(gateway)
            assert (await gateway.client.post(CHAT, content=body)).status_code == 200
        pairs, paired = gateway.gateway.mirrors.pairs["chat"], gateway.gateway.mirrors.paired
        assert pairs.results == {Kept.NO_MEMORY: 8}
        assert 800_000 < paired.peak <= 2**20
        gateway.gateway.mirrors.stop()
        assert paired.retained == 0
        assert pairs.results[Kept.NO_ANSWER] == 2


async def test_a_disk_that_takes_nothing_holds_nobody_up(tmp_path: Path) -> None:
    """The file is a pipe that nobody reads: to open it for writing waits for ever."""
    os.mkfifo(tmp_path / "pairs.jsonl")
    async with pairing(tmp_path, said("a"), said("b")) as gateway:
        async with asyncio.timeout(20):
            for _ in range(80):
                due(gateway)
                assert (await gateway.client.post(CHAT, json=ASKED)).status_code == 200
        found = gateway.gateway.mirrors.pairs["chat"].results
        await until(lambda: found[Kept.DISK] >= 10)
        assert found[Kept.WRITTEN] == 0
        files = gateway.gateway.mirrors.files
    assert files._writer is None
    assert files._thread is not None
    assert not files._thread.is_alive()


async def test_a_file_that_can_not_be_written_is_counted(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").symlink_to(tmp_path / "elsewhere")
    async with pairing(tmp_path, said("a"), said("b")) as gateway:
        await gateway.client.post(CHAT, json=ASKED)
        assert await results(gateway) == {Kept.DISK: 1}
    assert not (tmp_path / "elsewhere").exists()


async def test_a_writer_that_dies_is_started_anew(tmp_path: Path) -> None:
    async with pairing(tmp_path, said("a"), said("b")) as gateway:
        await gateway.client.post(CHAT, json=ASKED)
        assert await results(gateway) == {Kept.WRITTEN: 1}
        writer = gateway.gateway.mirrors.files._writer
        assert writer is not None
        writer.kill()
        for number in (2, 3):
            due(gateway)
            await gateway.client.post(CHAT, json=ASKED)
            await results(gateway, number)
        assert await results(gateway) == {Kept.WRITTEN: 2, Kept.FAULT: 1}
    assert len(lines(tmp_path)) == 2


async def test_a_writer_that_can_not_be_started_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pairing(tmp_path, said("a"), said("b")) as gateway:
        with monkeypatch.context() as without:
            without.setattr("gateway.pair_files.sys.executable", str(tmp_path / "none"))
            await gateway.client.post(CHAT, json=ASKED)
            assert await results(gateway) == {Kept.FAULT: 1}
        due(gateway)
        await gateway.client.post(CHAT, json=ASKED)
        assert (await results(gateway, 2))[Kept.WRITTEN] == 1


async def test_a_fault_of_ours_ends_the_sample_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def broken(_: Pair) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Pair, "_finish", broken)
    async with pairing(tmp_path, said("a"), said("b")) as gateway:
        assert (await gateway.client.post(CHAT, json=ASKED)).json()
        await until(lambda: gateway.core.tally.results["chat", "next-1", "completed"] == 1)
        assert await results(gateway) == {Kept.FAULT: 1}
    assert len(told) == 2
    asyncio.get_running_loop().set_exception_handler(None)


async def test_production_is_the_same_to_the_byte_while_a_sample_is_kept(tmp_path: Path) -> None:
    body = json.dumps({"prompt": "x" * 300_000}).encode()
    async with pairing(tmp_path, echo, streams(*ENGINE), longest="1MiB") as gateway:
        assert (await gateway.client.post(CHAT, content=body)).content == body


def test_a_file_and_the_one_before_it_stay_within_the_limit(tmp_path: Path) -> None:
    path, limit = tmp_path / "pairs.jsonl", 10_000
    for number in range(100):
        append(path, b"%0499d\n" % number, limit)
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= limit
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pairs.jsonl", "pairs.jsonl.1"]
    kept = (tmp_path / "pairs.jsonl.1").read_bytes() + path.read_bytes()
    assert int(kept.splitlines()[-1]) == 99
    assert len(kept.splitlines()) >= 10


def test_several_processes_write_to_one_file_and_lose_no_line_when_it_is_moved(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [[f"{writer}-{number:090}\n".encode() for number in range(60)] for writer in range(4)]
    limit = 2 * sum(len(row) for own in rows for row in own) * 2 // 3

    def write(own: list[bytes]) -> None:
        for row in own:
            append(path, row, limit)

    threads = [threading.Thread(target=write, args=(own,)) for own in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    moved = path.with_name("pairs.jsonl.1")
    written = path.read_bytes().splitlines(True) + moved.read_bytes().splitlines(True)
    assert sorted(written) == sorted(row for own in rows for row in own)
