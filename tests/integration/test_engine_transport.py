"""How an engine is reached, on real sockets: TLS, Unix sockets, IPv6, keys, endless bodies."""

import asyncio
import gzip
import json
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from activities.engine_pages import LARGEST_PAGE, EnginePages
from activities.engine_requests import EngineRequests
from fleet.contracts.engine import AskRequest
from fleet.engine_sources import EngineSource
from fleet.engines.judge import find
from fleet.engines.reading import Page
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict

pytestmark = pytest.mark.anyio

LIMIT = timedelta(seconds=10)
ROOT = Path(__file__).parents[2]
GOOD = b'vllm:num_requests_running{engine="0"} 0\nvllm:generation_tokens_total{engine="0"} 1\n'

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


def said(status: str, body: bytes = GOOD, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def saying(*answers: bytes, heads: list[bytes] | None = None) -> Handler:
    """A server that gives each request the next of ``answers``, and the last one for ever."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if heads is not None:
                heads.append(head)
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return serve


@asynccontextmanager
async def listening(handler: Handler, **more: Any) -> AsyncIterator[str]:
    """Host and port of a server with this handler."""
    server = await asyncio.start_server(handler, more.pop("host", "127.0.0.1"), 0, **more)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def look(source: dict[str, Any], limit: timedelta = LIMIT) -> Reading:
    return await EnginePages().look("v-1", EngineSource.model_validate(source), limit)


def page(reading: Reading) -> Page:
    assert reading.engine is not None
    return reading.engine.page


def verdict(reading: Reading) -> Verdict:
    return find(reading, None, Policy()).verdict


class TestTls:
    @pytest.fixture
    def context(self, tmp_path: Path) -> ssl.SSLContext:
        """A server's certificate that it signed itself, beside its key in ``tmp_path``."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(key, hashes.SHA256())
        )
        (tmp_path / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (tmp_path / "key.pem").write_bytes(private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
        return context

    async def test_a_ca_of_ones_own_is_trusted_and_a_stranger_is_not(
        self, tmp_path: Path, context: ssl.SSLContext
    ) -> None:
        async with listening(saying(said("200 OK")), ssl=context) as at:
            mine = {"url": f"https://{at}", "ca": str(tmp_path / "ca.pem")}
            assert page(await look(mine)) is Page.OK
            strange = await look({"url": f"https://{at}"})
            assert (page(strange), verdict(strange)) == (Page.UNREADABLE, Verdict.UNREADABLE)
            assert "certificate is not trusted" in strange.detail
            wrong_host = await look({**mine, "url": f"https://localhost:{at.partition(':')[2]}"})
            assert "certificate is not trusted" in wrong_host.detail

    async def test_a_ca_that_is_none_is_named(self, tmp_path: Path) -> None:
        async with listening(saying(said("200 OK"))) as at:
            gone = await look({"url": f"https://{at}", "ca": str(tmp_path / "gone.pem")})
            assert "gone.pem can't be read: no such file" in gone.detail
            (tmp_path / "no.pem").write_text("hello")
            none = await look({"url": f"https://{at}", "ca": str(tmp_path / "no.pem")})
            assert "no.pem holds no certificate" in none.detail

    async def test_a_server_without_tls_is_told_so(self) -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(said("400 Bad Request", b"what is this?"))
            writer.close()

        async with listening(serve) as at:
            assert "TLS failed" in (await look({"url": f"https://{at}"})).detail


class TestWhere:
    async def test_a_unix_socket(self, tmp_path: Path) -> None:
        path = tmp_path / "s"
        heads: list[bytes] = []
        source = {"url": "http://engine/base", "socket": str(path)}
        gone = await look(source)
        assert (page(gone), verdict(gone)) == (Page.REFUSED, Verdict.MISSING)
        handler = saying(said("200 OK"), heads=heads)
        async with await asyncio.start_unix_server(handler, path):
            assert page(await look(source)) is Page.OK
        assert heads[0].startswith(b"GET /base/metrics HTTP/1.1\r\nHost: engine\r\n")

    async def test_ipv6(self) -> None:
        try:
            server = await asyncio.start_server(saying(said("200 OK")), "::1", 0)
        except OSError:
            pytest.skip("this machine has no IPv6")
        async with server:
            port = server.sockets[0].getsockname()[1]
            assert page(await look({"url": f"http://[::1]:{port}"})) is Page.OK

    async def test_a_redirect_to_another_host_is_never_followed(self) -> None:
        visited: list[bytes] = []
        async with listening(saying(said("200 OK"), heads=visited)) as other:
            to = f"Location: http://{other}/metrics/"
            async with listening(saying(said("307 Go", b"", to))) as at:
                reading = await look({"url": f"http://{at}"})
        assert (page(reading), visited) == (Page.UNREADABLE, [])
        assert "name the final base URL" in reading.detail

    async def test_the_key_is_sent_with_looks_and_with_requests(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """llama.cpp guards its metrics too."""
        monkeypatch.setenv("KEY_OF_A_TEST", "sk-planted")
        heads: list[bytes] = []
        models = said("200 OK", json.dumps({"data": [{"id": "m"}]}).encode())
        async with listening(saying(models, heads=heads)) as at:
            source = EngineSource.model_validate(
                {"kind": "openai", "url": f"http://{at}", "api_key": {"env": "KEY_OF_A_TEST"}}
            )
            await EngineRequests(EnginePages()).ask("v-1", source, AskRequest(server="v-1"))
        assert any(head.startswith(b"POST /v1/completions") for head in heads)
        assert all(b"\r\nAuthorization: Bearer sk-planted\r\n" in head for head in heads)


class TestBodies:
    async def test_a_page_of_50_mb_is_not_read_to_its_end(self) -> None:
        sent = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n")
            try:
                while sent < 52_428_800:
                    writer.write(b"a 1\n" * 16_384)
                    await writer.drain()
                    sent += 65_536
            except OSError:
                pass
            finally:
                writer.close()

        async with listening(serve) as at:
            reading = await look({"url": f"http://{at}"})
        assert (page(reading), verdict(reading)) == (Page.UNREADABLE, Verdict.UNREADABLE)
        assert "page of over 16 MiB" in reading.detail
        assert sent < 3 * LARGEST_PAGE

    @pytest.mark.parametrize("chunked", [False, True])
    async def test_a_body_that_drips_ends_with_the_limit(self, chunked: bool) -> None:
        head = b"Transfer-Encoding: chunked\r\n" if chunked else b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
            try:
                while True:
                    writer.write(b"1\r\nx\r\n" if chunked else b"x")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            except OSError:
                pass
            finally:
                writer.close()

        async with listening(serve) as at:
            reading = await look({"url": f"http://{at}"}, timedelta(milliseconds=500))
        assert (page(reading), verdict(reading)) == (Page.SLOW, Verdict.UNPROVEN)

    async def test_a_small_answer_that_unpacks_to_much_is_refused(self) -> None:
        bomb = gzip.compress(b"a 1\n" * (LARGEST_PAGE // 2))
        assert len(bomb) < LARGEST_PAGE // 100
        async with listening(saying(said("200 OK", bomb, "Content-Encoding: gzip"))) as at:
            reading = await look({"url": f"http://{at}"})
        assert page(reading) is Page.UNREADABLE
        assert "unpacks to over 16 MiB" in reading.detail

    async def test_a_packed_page_is_read(self) -> None:
        packed = said("200 OK", gzip.compress(GOOD), "Content-Encoding: gzip")
        async with listening(saying(packed)) as at:
            assert page(await look({"url": f"http://{at}"})) is Page.OK

    async def test_a_head_without_end_is_given_up(self) -> None:
        head = b"HTTP/1.1 200 OK\r\n" + b"X-Y: " + b"z" * 200_000
        async with listening(saying(head)) as at:
            reading = await look({"url": f"http://{at}"})
        assert page(reading) is Page.SLOW
        assert "head of its answer" in reading.detail or "HTTP" in reading.detail

    async def test_a_body_that_breaks_off_is_no_page(self) -> None:
        cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + GOOD
        async with listening(saying(cut)) as at:
            reading = await look({"url": f"http://{at}"})
        assert page(reading) is Page.SLOW
        assert "in the middle of its answer" in reading.detail

    @pytest.mark.parametrize("left_out", [8, 30])
    async def test_a_packed_body_that_breaks_off_is_none_either(self, left_out: int) -> None:
        # Its end is the connection's, so that only the packing tells that more was to come.
        packed = gzip.compress(GOOD)[:-left_out]
        cut = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n" + packed
        async with listening(saying(cut)) as at:
            reading = await look({"url": f"http://{at}"})
        assert page(reading) is Page.SLOW
        assert "packed answer breaks off" in reading.detail


class TestBalancer:
    @pytest.mark.parametrize(
        ("status", "meant"),
        [
            ("200 OK", Verdict.HEALTHY),
            ("401 No", Verdict.HEALTHY),
            ("403 No", Verdict.HEALTHY),
            ("500 Oops", Verdict.DEGRADED),
            ("503 Oops", Verdict.DEGRADED),
            ("404 None", Verdict.UNREADABLE),
        ],
    )
    async def test_it_is_asked_for_its_models_and_nothing_else(
        self, status: str, meant: Verdict
    ) -> None:
        heads: list[bytes] = []
        async with listening(saying(said(status, b"{}"), heads=heads)) as at:
            source = {"kind": "openai", "url": f"http://{at}", "balancer": True}
            assert verdict(await look(source)) is meant
            known = EngineSource.model_validate(source)
            request = AskRequest(server="v-1", suspected=True)
            await EngineRequests(EnginePages()).ask("v-1", known, request)
        assert {head.split(b"\r\n")[0] for head in heads} == {b"GET /v1/models HTTP/1.1"}


class TestDeath:
    """vLLM's ``/health`` that says 200 proves nothing; that its engine died is believed."""

    @pytest.mark.parametrize(
        ("status", "meant"),
        [("200 OK", Verdict.IDLE), ("500 Oops", Verdict.ERROR), ("503 Oops", Verdict.ERROR)],
    )
    async def test_where_statistics_are_off(self, status: str, meant: Verdict) -> None:
        bare = said("200 OK", b"process_start_time_seconds 1\n")
        async with listening(saying(bare, said(status, b""))) as at:
            assert verdict(await look({"url": f"http://{at}"})) is meant

    async def test_where_it_is_to_be_asked_it_is_not(self) -> None:
        heads: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            heads.append(head)
            answer = said("200 OK") if b" /metrics " in head else said("404 No", b"")
            writer.write(said("503 No", b"") if b" /health " in head else answer)
            writer.close()

        async with listening(serve) as at:
            source = EngineSource(url=f"http://{at}")
            reading = await EngineRequests(EnginePages()).ask(
                "v-1", source, AskRequest(server="v-1")
            )
        assert verdict(reading) is Verdict.ERROR
        assert not any(head.startswith(b"POST") for head in heads)


def test_a_look_and_a_request_need_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys, activities.engine_pages, activities.engine_requests;"
        "print([m for m in ('temporalio','asyncssh','redis','rich','httpx') if m in sys.modules])"
    )
    began = time.monotonic()
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
    assert time.monotonic() - began < 30
