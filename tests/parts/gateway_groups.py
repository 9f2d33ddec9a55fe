"""A gateway of two processes, as ``steady gateway`` starts it, and what is seen of them."""

import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.parts.gateways import PATIENCE, TOKEN
from tests.parts.ports import free_port
from tests.parts.processes import Command, command

STEADY = "from worker.cli import main; main()"
CHAT = "/v1/chat/completions"
#: A connection for each request.
EACH_ITS_OWN = httpx.Limits(max_keepalive_connections=0)
FLEET = """\
[servers.gpu-1]
source = {{ kind = "redis", key = "worker:1" }}

[gateway]
listen = "127.0.0.1:{listen}"
processes = 2
admin = "unix://{socket}"
admin_token = {{ env = "TOKEN" }}
{settings}

[endpoints.chat]
{endpoint}

[endpoints.chat.backends.gpu-1]
url = "http://127.0.0.1:{backend}"
price_per_hour = 3600
"""


@dataclass
class Group:
    """``pids`` are those of the processes that serve, by their number less one."""

    running: Command
    url: str
    port: int
    admin: httpx.Client
    socket: Path
    pids: list[int]

    def metrics(self) -> str:
        return self.admin.get("/metrics").text

    def figure(self, name: str) -> float:
        """One metric of the page, with its labels as they stand there; 0 where there is none."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.metrics(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def statuses(self, count: int = 40) -> list[int]:
        """What requests over so many connections are answered; the kernel deals them out."""
        with httpx.Client(limits=EACH_ITS_OWN, timeout=PATIENCE) as client:
            return [
                client.post(f"{self.url}{CHAT}", content=b"{}").status_code for _ in range(count)
            ]

    def drain(self, lease: str = "by-hand") -> httpx.Response:
        terms = {"holder": "ann", "for": "1h"}
        return self.admin.put(f"/backends/gpu-1/leases/{lease}", json=terms)

    def undrain(self) -> httpx.Response:
        return self.admin.delete("/backends/gpu-1/leases")

    def ended(self) -> int:
        self.running.process.send_signal(signal.SIGTERM)
        return self.running.process.wait(60)


@contextmanager
def group(
    folder: Path, backend: int, settings: str = "", endpoint: str = "", script: str = STEADY
) -> Iterator[Group]:
    """Run it for the length of the block; what of it is left then is killed."""
    listen, path = free_port(), folder / "admin.sock"
    text = FLEET.format(
        listen=listen, socket=path, backend=backend, settings=settings, endpoint=endpoint
    )
    (folder / "fleet.toml").write_text(text)
    with (
        command(script, folder, "gateway", variables={"TOKEN": TOKEN}) as running,
        httpx.Client(
            transport=httpx.HTTPTransport(uds=str(path)),
            base_url="http://gateway",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=PATIENCE,
        ) as admin,
    ):
        said = running.until("serving")
        pids = [int(pid) for pid in said.partition("processes=[")[2].rstrip("]").split(", ")]
        yield Group(running, f"http://127.0.0.1:{listen}", listen, admin, path, pids)


def connections(pid: int, port: int) -> int:
    """Connections of clients that a process has accepted at a port."""
    inodes = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{port:04X}") and fields[3] == "01":
            inodes.add(f"socket:[{fields[9]}]")
    held = (Path(f"/proc/{pid}/fd") / name for name in _descriptors(pid))
    return sum(str(link.readlink()) in inodes for link in held)


def _descriptors(pid: int) -> list[str]:
    return [entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()]


def clients(port: int, count: int, request: bytes = b"") -> list[socket.socket]:
    found = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        one.sendall(request)
        found.append(one)
    return found


def until(true: Callable[[], object], within: float = 60) -> None:
    """Wait until something has come true; fails where it does not."""
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process is there; one that ended and waits to be asked how is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
