"""What a worker serves over HTTP, asked over a real socket."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from tests.parts.ports import free_port
from worker import listener
from worker.errors import SetupError
from worker.listener import Pages, listening
from worker.settings import Settings
from worker.vitals import Health

WELL = Health([], {"temporal": 1.5})
ILL = Health(["Temporal has not answered for 35 s"], {"temporal": 35.0})


@contextmanager
def serving(health: Health = WELL) -> Iterator[str]:
    def metrics(accept: str) -> tuple[bytes, str]:
        if accept == "broken":
            raise ZeroDivisionError
        return b"steady_x 1\n", f"text/plain; of={accept}"

    with listening("127.0.0.1:0", Pages(lambda: health, metrics)) as port:
        yield f"http://127.0.0.1:{port}"


def test_health_is_200_and_says_so_while_the_worker_is_well() -> None:
    with serving() as url:
        answer = httpx.get(f"{url}/health")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"status": "ok", "why": [], "ages": {"temporal": 1.5}}


def test_health_is_503_and_says_why_while_it_is_not() -> None:
    with serving(ILL) as url:
        answer = httpx.get(f"{url}/health?verbose=1")
    assert answer.status_code == 503
    assert answer.json()["why"] == ["Temporal has not answered for 35 s"]


def test_metrics_come_in_the_form_that_is_asked_for() -> None:
    with serving() as url:
        answer = httpx.get(f"{url}/metrics", headers={"Accept": "a/b"})
    assert (answer.status_code, answer.text) == (200, "steady_x 1\n")
    assert answer.headers["content-type"] == "text/plain; of=a/b"


def test_a_head_request_has_the_status_and_no_body() -> None:
    with serving(ILL) as url:
        answer = httpx.head(f"{url}/health")
    assert (answer.status_code, answer.content) == (503, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("POST", "/health", 501)]
)
def test_nothing_else_is_served(method: str, path: str, status: int) -> None:
    with serving() as url:
        assert httpx.request(method, f"{url}{path}").status_code == status


def test_a_page_that_fails_is_500_and_the_next_is_served() -> None:
    with serving() as url:
        failed = httpx.get(f"{url}/metrics", headers={"Accept": "broken"})
        assert (failed.status_code, failed.text) == (500, "ZeroDivisionError\n")
        assert httpx.get(f"{url}/health").status_code == 200


def test_headers_without_end_are_refused() -> None:
    with serving() as url:
        answer = httpx.get(f"{url}/health", headers=[(f"X-{number}", "1") for number in range(200)])
        assert answer.status_code == 431
        assert httpx.get(f"{url}/health").status_code == 200


def test_a_client_that_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener._Handler, "timeout", 0.2)
    with serving() as url, _connected(url) as silent:
        assert silent.recv(10) == b""


def test_a_client_that_speaks_too_slowly_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_EXCHANGE", 0.3)
    with serving() as url, _connected(url) as slow:
        gone = threading.Event()

        def drip() -> None:
            while not gone.is_set():
                try:
                    slow.send(b"G")
                except OSError:
                    return
                time.sleep(0.05)

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert slow.recv(10) == b""
        except ConnectionError:
            pass
        finally:
            gone.set()
            dripping.join()


def test_more_connections_than_a_probe_needs_are_dropped_and_it_recovers() -> None:
    with serving() as url:
        with ExitStack() as stack:
            for _ in range(listener._MOST_AT_ONCE):
                stack.enter_context(_connected(url))
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{url}/health")
        deadline = time.monotonic() + 10
        while True:
            try:
                assert httpx.get(f"{url}/health").status_code == 200
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_an_address_that_is_taken_is_one_clear_error() -> None:
    with serving() as url:
        address = url.removeprefix("http://")
        with (
            pytest.raises(SetupError, match=rf"can't listen on {address} \(address already in use"),
            listening(address, Pages(lambda: WELL, lambda _: (b"", ""))),
        ):
            pytest.fail("two listen on one address")


def test_it_is_gone_with_its_block() -> None:
    with serving() as url:
        pass
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


@pytest.mark.parametrize("address", ["9464", ":9464", "localhost", "a:b", "h:99999", "::1:9464"])
def test_an_address_that_is_none_is_refused_by_the_settings(address: str) -> None:
    with pytest.raises(ValueError, match=r"is no HOST:PORT, like 127\.0\.0\.1:9464"):
        Settings(listen=address)


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "[::1]:9464", "worker.internal:1"])
def test_an_address_that_is_one_is_taken(address: str) -> None:
    assert Settings(listen=address).listen == address


def test_nothing_listens_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEADY_LISTEN", raising=False)
    assert Settings().listen is None
    monkeypatch.setenv("STEADY_LISTEN", "")
    assert Settings().listen is None


def test_an_ipv6_address_is_listened_on() -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback address")
    address = f"[::1]:{free_port()}"
    with listening(address, Pages(lambda: WELL, lambda _: (b"", ""))):
        assert json.loads(httpx.get(f"http://{address}/health").content)["status"] == "ok"


@contextmanager
def _connected(url: str) -> Iterator[socket.socket]:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        yield connection


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
