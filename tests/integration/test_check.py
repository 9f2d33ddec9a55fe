"""``steady check`` as a process of its own, against a simulated vLLM over real HTTP."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.parts.plain import sim_plain
from tests.parts.ports import free_port
from tests.parts.steady_check import STEADY, Ended, check
from tests.parts.vllm import Vllm, sim_vllm
from tests.parts.vllm_pages import engine, page

pytestmark = pytest.mark.anyio

QUICK = ("--wait", "200ms", "--deadline", "1s")


async def checked(server: Vllm, *more: str) -> Ended:
    return await check(server.url, *QUICK, *more)


@asynccontextmanager
async def asked(asks: list[tuple[str, object]]) -> AsyncIterator[str]:
    """An idle vLLM that takes any request, and keeps its path and body in ``asks``."""
    idle = page(engine(steps=5))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        found, body = "200 OK", idle if path == "/metrics" else b'{"data": [{"id": "judge"}]}'
        if method == "POST":
            length = int(head.lower().partition("content-length: ")[2].split()[0])
            asks.append((path, json.loads(await reader.readexactly(length))))
        elif path not in ("/metrics", "/v1/models"):
            found = "404 Not Found"
        said = f"HTTP/1.1 {found}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(said.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def answering(status: str, kind: str, body: bytes, *, after: float = 0) -> AsyncIterator[str]:
    """A server that says the same to everybody."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(after)
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_busy_one_is_sent_no_request() -> None:
    async with sim_vllm(load=3, slots=2) as server:
        await asyncio.sleep(0.3)
        ended = await checked(server, "--json")
        assert ended.code == 0
        said = ended.document
        assert (said["verdict"], said["requests_sent"], said["engine"]) == ("busy", 0, "vllm")
        [engine] = said["engines"]
        assert (engine["label"], engine["running"], engine["waiting"]) == ("0", 2, 1)
        assert "step_tokens" in engine["moved"]
        assert set(engine["moved"]) <= set(engine["witnesses"])
        assert said["readings"] == 2
        assert await server.asked() == 0


async def test_an_idle_one_is_asked_once() -> None:
    async with sim_vllm() as server:
        ended = await checked(server)
        assert (ended.code, ended.verdict) == (0, "idle")
        assert ended.out.count("\n") == 1
        assert ended.out.endswith("1 request sent]\n")
        assert ended.err == ""
        assert await server.asked() == 1


@pytest.mark.parametrize(
    ("request_typed", "path", "body"),
    [
        ("completion", "/v1/completions", {"model": "judge", "prompt": "Hi", "max_tokens": 1}),
        (
            "chat",
            "/v1/chat/completions",
            {
                "model": "judge",
                "messages": [{"role": "user", "content": "Hi"}],
                "max_tokens": 1,
            },
        ),
        ("embedding", "/v1/embeddings", {"model": "judge", "input": "Hi"}),
        ("rerank", "/v1/rerank", {"model": "judge", "query": "Hi", "documents": ["Hi"]}),
        (
            '{ path = "/v1/score", body = { model = "judge", text_1 = "Hi", text_2 = "Ho" } }',
            "/v1/score",
            {"model": "judge", "text_1": "Hi", "text_2": "Ho"},
        ),
    ],
)
async def test_what_is_asked_can_be_said(request_typed: str, path: str, body: object) -> None:
    asks: list[tuple[str, object]] = []
    async with asked(asks) as url:
        ended = await check(url, *QUICK, "--request", request_typed)
    assert (ended.code, ended.verdict, asks) == (0, "idle", [(path, body)])


async def test_no_ask_sends_nothing() -> None:
    async with sim_vllm() as server:
        ended = await checked(server, "--no-ask", "--json")
        assert (ended.code, ended.document["verdict"]) == (0, "idle")
        assert ended.document["requests_sent"] == 0
        assert await server.asked() == 0


@pytest.mark.parametrize("more", [(), ("--liveness",)])
async def test_one_that_froze_under_load_is_stuck(more: tuple[str, ...]) -> None:
    async with sim_vllm(load=2) as server:
        await asyncio.sleep(0.3)
        await server.say("freeze")
        ended = await checked(server, "--json", *more)
        assert (ended.code, ended.document["verdict"]) == (1, "stuck")
        assert ended.document["requests_sent"] == 1
        assert ended.document["readings"] > 3
        assert [each["moved"] for each in ended.document["engines"]] == [[]]
        assert await server.asked() == 1


async def test_one_that_stands_still_and_takes_no_more_is_a_persons() -> None:
    """The queue of an engine that hangs fills up too, and then its front end answers 429."""
    async with sim_vllm(load=2, slots=2) as server:
        await server.say("freeze")
        await server.say("full")
        ended = await checked(server, "--deadline", "2s")
        assert (ended.code, ended.verdict) == (3, "unproven")
        assert "takes no more requests: 429" in ended.out


async def test_one_that_froze_while_idle_is_unresponsive() -> None:
    async with sim_vllm() as server:
        await server.say("freeze")
        ended = await checked(server, "--liveness")
        assert (ended.code, ended.verdict) == (1, "unresponsive")
        assert await server.asked() == 1


async def test_stale_gauges_are_told() -> None:
    async with sim_vllm(load=2) as server:
        await asyncio.sleep(0.3)
        await server.say("stale")
        ended = await checked(server)
        assert (ended.code, ended.verdict) == (0, "idle")
        assert "its gauges are stale" in ended.out


async def test_a_sleeping_one_is_never_asked() -> None:
    async with sim_vllm() as server:
        await server.say("sleep")
        ended = await checked(server)
        assert (ended.code, ended.verdict) == (0, "asleep")
        assert await server.asked() == 0


async def test_a_paused_one_is_never_asked() -> None:
    async with sim_vllm(load=1) as server:
        await asyncio.sleep(0.3)
        await server.say("pause")
        ended = await checked(server)
        assert (ended.code, ended.verdict) == (0, "asleep")
        assert await server.asked() == 0


@pytest.mark.parametrize(("word", "verdict"), [("fail", "degraded"), ("full", "busy")])
async def test_an_error_is_no_hang(word: str, verdict: str) -> None:
    async with sim_vllm() as server:
        await server.say(word)
        await asyncio.sleep(1.1)
        ended = await checked(server, "--load-limit", "1s")
        assert (ended.code, ended.verdict) == (3 if verdict == "degraded" else 0, verdict)
        assert (await checked(server, "--liveness")).code == 0


async def test_one_rank_of_two_is_enough() -> None:
    async with sim_vllm(ranks=2, load=1) as server:
        await asyncio.sleep(0.3)
        await server.say("freeze", rank=1)
        ended = await checked(server, "--json")
        assert (ended.code, ended.document["verdict"]) == (1, "stuck")
        moved = {each["label"]: bool(each["moved"]) for each in ended.document["engines"]}
        assert moved == {"0": True, "1": False}


@pytest.mark.parametrize("kind", ["openai", "ollama"])
async def test_without_counters_an_answer_is_all_that_tells(kind: str) -> None:
    async with sim_plain(kind) as server:
        if kind == "ollama":
            await server.say("load")
        ended = await check(server.url, *QUICK, "--engine", kind, "--json")
        assert (ended.code, ended.document["verdict"]) == (0, "healthy")
        assert ended.document["requests_sent"] == 1
        await server.say("freeze")
        for more, code in (((), 3), (("--liveness",), 0)):
            ended = await check(server.url, *QUICK, "--engine", kind, *more)
            assert (ended.code, ended.verdict) == (code, "unproven")


async def test_llamacpp_is_recognised_by_its_page() -> None:
    async with sim_plain("llamacpp") as server:
        ended = await check(server.url, *QUICK, "--json")
        assert (ended.code, ended.document["verdict"]) == (0, "idle")
        assert ended.document["engine"] == "llamacpp"


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_a_rank_that_froze_while_idle_is_found_beside_one_that_works(dialect: str) -> None:
    async with sim_vllm(ranks=2, load=1, idle=0, dialect=dialect) as server:
        await asyncio.sleep(0.2)
        ended = await checked(server, "--json")
        assert (ended.code, ended.document["verdict"]) == (0, "busy")
        await server.say("freeze", rank=0)
        ended = await checked(server, "--json")
        assert (ended.code, ended.document["verdict"]) == (1, "unresponsive")
        assert (await server.say(""))["landed"] == [2, 0]
        ended = await checked(server, "--json", "--no-named-ranks")
        assert (ended.code, ended.document["verdict"]) == (0, "busy")
        assert (await server.say(""))["landed"] == [2, 0]


async def test_a_balancer_is_sent_no_request() -> None:
    async with sim_vllm() as server:
        ended = await checked(server, "--balancer", "--json")
        assert (ended.code, ended.document["verdict"]) == (0, "healthy")
        assert ended.document["requests_sent"] == 0
        assert await server.asked() == 0


async def test_a_unix_socket_is_a_way_to_it(tmp_path: Path) -> None:
    where = str(tmp_path / "engine.sock")
    body = page(engine(running=1, steps=5))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(serve, where):
        ended = await check("http://localhost", *QUICK, "--socket", where, "--no-ask")
    assert (ended.code, ended.verdict) == (3, "suspect")


async def test_an_error_soon_after_its_start_is_a_load() -> None:
    async with sim_vllm() as server:
        await server.say("fail")
        ended = await checked(server)
        assert (ended.code, ended.verdict) == (0, "loading")


@pytest.mark.parametrize(("more", "code"), [((), 3), (("--liveness",), 0)])
async def test_a_closed_port_proves_nothing(more: tuple[str, ...], code: int) -> None:
    ended = await check(f"http://127.0.0.1:{free_port()}", *more)
    assert (ended.code, ended.verdict) == (code, "missing")
    assert "no request sent" in ended.out


@pytest.mark.parametrize(
    ("status", "kind", "body", "verdict", "code"),
    [
        ("200 OK", "text/html", b"<html>hello</html>", "unreadable", 3),
        ("200 OK", "text/plain", b"process_cpu_seconds_total 4\n", "unproven", 3),
        ("503 Unavailable", "application/json", b'{"message": "Loading model"}', "loading", 0),
        ("500 Oops", "text/plain", b"it broke", "degraded", 3),
    ],
)
async def test_what_is_no_page_is_told_apart(
    status: str, kind: str, body: bytes, verdict: str, code: int
) -> None:
    async with answering(status, kind, body) as url:
        ended = await check(url, *QUICK, "--engine", "vllm")
        assert (ended.code, ended.verdict) == (code, verdict)
        assert (await check(url, *QUICK, "--engine", "vllm", "--liveness")).code == 0


async def test_a_page_that_asks_for_a_key_names_the_option() -> None:
    async with answering("401 Unauthorized", "text/plain", b"no") as url:
        ended = await check(url, *QUICK)
        assert ended.code == 3
        assert "--api-key-env" in ended.out


async def test_the_key_comes_from_the_environment_and_is_never_shown() -> None:
    async with sim_vllm() as server:
        env = {**os.environ, "ENGINE_KEY": "planted-key"}
        ended = await check(server.url, *QUICK, "--api-key-env", "ENGINE_KEY", env=env)
        assert ended.code == 0
        assert "planted-key" not in ended.out + ended.err


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ended = await check(url, *QUICK, "--timeout", "300ms")
        assert (ended.code, ended.verdict) == (3, "unproven")


@pytest.mark.parametrize(("more", "code"), [((), 3), (("--liveness",), 0)])
async def test_what_takes_too_long_is_unproven(more: tuple[str, ...], code: int) -> None:
    """Pages that are slow, and within their time-out: a probe would run out of its own time."""
    bounds = ("--wait", "500ms", "--deadline", "500ms", "--within", "1501ms")
    frozen = page(engine(running=2, steps=5))
    async with answering("200 OK", "text/plain", frozen, after=0.4) as url:
        ended = await check(url, *bounds, *more)
    assert (ended.code, ended.verdict) == (code, "unproven")
    assert "not done within 1s501ms" in ended.out


async def test_ctrl_c_ends_it_quietly() -> None:
    async with sim_vllm(load=1) as server:
        process = await asyncio.create_subprocess_exec(
            *(*STEADY, "check", server.url, "--watch", "--wait", "100ms"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert (process.returncode, err) == (130, b"")
        assert "busy: " in lines[-1]
        assert "[moved: " in lines[-1]
        assert await server.asked() == 0


async def test_a_watcher_that_has_seen_enough_is_no_fault() -> None:
    async with sim_vllm() as server:
        words = f"{sys.executable} -c '{STEADY[-1]}' check {server.url} --watch --wait 100ms"
        process = await asyncio.create_subprocess_shell(
            f"{words} | head -n 2",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert (out.count(b"\n"), err) == (2, b"")
