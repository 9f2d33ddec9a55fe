"""A whole small steady on real parts, with containers that can be frozen and what became of them.

Temporal on a file, Valkey, sshd, dockerd, a webhook that receives, and ``steady worker`` as a
process of its own, so that each of them can die.
"""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client

from fleet.actions import Host
from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest
from tests.parts import receiver as receiver_part
from tests.parts.docker import Docker
from tests.parts.receiver import Receiver
from tests.parts.sshd import Sshd
from tests.parts.stores import StoreServer, valkey
from tests.parts.temporal import DevServer, dev_server
from tests.parts.watched import Plan, Server, until
from tests.parts.wire import wire_to
from worker.apply import apply_fleet

REPOSITORY = Path(__file__).parents[2]
STEADY = Path(sys.executable).with_name("steady")

#: Minutes as seconds. What is compared with a clock of another process has room for a busy machine.
SHORTENED: dict[str, Any] = {
    "stale_after": "2s",
    "persist_hung": "2s",
    "persist_error": "5s",
    "reading_max_age": "10s",
    "cooldown": "3s",
    "verify_after": "3s",
    "load_limit": "60s",
    "budget": {"limit": 3, "window": "24h"},
    "retry_delays": ["0s", "2s"],
    "escalated_reads": ["2s"],
}
#: Most tests freeze servers on purpose, and side by side.
CALM = {"restarts_at_once": 100, "at_least": 100}
_NOBODY = {
    "source": {"kind": "redis", "key": "worker:nobody"},
    "policy": {"expected_off": True},
}
_WORKING_WITHIN = 60.0


@dataclass
class Working:
    """A worker that runs as a process of its own."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """End it as a power cut does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, order: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(order)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def is_working(self) -> bool:
        said = self.log.read_text(errors="replace")
        assert self.process.poll() is None, f"the worker ended: {said[-3000:]}"
        return '"working"' in said


@dataclass
class Rig:
    """The parts, running. Tests share them; each brings servers of its own with ``fleet``."""

    folder: Path
    temporal: DevServer
    store: StoreServer
    client: Client
    docker: Docker
    sshd: Sshd
    inbox: Receiver
    workers: list[Working] = field(default_factory=list)
    storm: Mapping[str, Any] = field(default_factory=lambda: CALM)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def start_worker(self, *argv: str, variables: Mapping[str, str] | None = None) -> Working:
        """Run ``steady worker``, or another program in its place, until it works."""
        log = self.folder / f"worker-{next(self._numbers)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                argv or (str(STEADY), "worker"),
                env=self.variables | dict(variables or {}),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        working = Working(process, log)
        self.workers.append(working)

        async def works() -> bool:
            return working.is_working()

        await until(works, "a worker that works", _WORKING_WITHIN)
        return working

    async def only_worker(self) -> Working:
        """Exactly one ``steady worker``, whatever a test before left."""
        alive = [each for each in self.workers if each.process.poll() is None]
        for each in alive[1:]:
            await asyncio.to_thread(each.stop)
        self.workers = alive[:1]
        return alive[0] if alive else await self.start_worker()

    @property
    def variables(self) -> dict[str, str]:
        """The environment of every process of this steady."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TEMPORAL_", "STEADY_"))
        }
        return inherited | {
            "PYTHONPATH": str(REPOSITORY),
            "TEMPORAL_ADDRESS": self.temporal.address,
            "STEADY_STATE_DIR": str(self.folder / "state"),
            "STEADY_EMBEDDED_STORE": self.store.url,
            "STEADY_GRACEFUL_SHUTDOWN": "5s",
            "STEADY_LOG_FORMAT": "json",
        }

    async def steady(self, *arguments: str) -> tuple[int, str]:
        """Run a command of steady; its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            STEADY,
            *arguments,
            env=self.variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    @asynccontextmanager
    async def fleet(
        self, plans: Mapping[str, Plan], sweep: str = "1s"
    ) -> AsyncIterator[dict[str, Server]]:
        """Run a container for each plan and watch them, and nothing else, until the body ends.

        Each is reached at a port of its own, since the servers of one machine share a budget.
        """
        number = next(self._numbers)
        servers = {label: Server(self, f"{label}-{number}", plan) for label, plan in plans.items()}
        async with AsyncExitStack() as stack:
            hosts: dict[str, Host] = {}
            for server in servers.values():
                host = server.plan.host
                if host is None:
                    wire = await stack.enter_async_context(wire_to(self.sshd.port))
                    host = self.sshd.host_at(wire.port)
                hosts[server.name] = host
            try:
                await asyncio.gather(*(server.run() for server in servers.values()))
                await self._apply(servers.values(), hosts, sweep)
                yield servers
            finally:
                await self._apply([], {}, sweep)
                for server in servers.values():
                    await self.docker_do("rm", "--force", server.name)

    async def _apply(
        self, servers: "Sequence[Server] | Any", hosts: Mapping[str, Host], sweep: str
    ) -> None:
        fleet = Fleet.model_validate(
            {
                "fleet": {"name": "rig", "sweep_every": sweep},
                "alerts": {"webhook": {"file": str(self.folder / "webhook")}},
                "storm": self.storm,
                "defaults": SHORTENED,
                "hosts": {name: host.model_dump() for name, host in hosts.items()},
                "servers": {server.name: self._entry(server) for server in servers}
                or {"nobody": _NOBODY},
            }
        )
        await apply_fleet(self.client, ApplyRequest(fleet=fleet, search_attributes=True))

    def _entry(self, server: Server) -> dict[str, Any]:
        drill = server.plan.drill
        return {
            **({"drill": dict(drill)} if drill is not None else {}),
            "source": {"kind": "redis", "key": f"worker:{server.name}"},
            "restart": {
                "kind": "docker",
                "host": server.name,
                "name": server.name,
                "stop_timeout": server.plan.stop,
                "cli": [*(server.plan.cli or self.docker.cli)],
                **server.plan.restart,
            },
            "policy": dict(server.plan.policy),
        }

    def start_container(self, name: str, boot: float = 0.3) -> None:
        """A simulated worker in a job without end, so that it freezes in ``processing``."""
        words = {"url": self.store.url, "key": f"worker:{name}", "name": name, "boot": boot}
        words |= {"job": 36000, "interval": 0.3}
        self.docker.run_container(
            name,
            [sys.executable, "-m", "simulator.heartbeat"]
            + [f"--{word}={value}" for word, value in words.items()],
            env={"PYTHONPATH": str(REPOSITORY)},
            options=[f"--volume={REPOSITORY}:{REPOSITORY}:ro"],
        )

    def container_log(self, name: str) -> str:
        done = subprocess.run(
            [*self.docker.cli, "logs", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
            check=True,
        )
        return done.stdout.decode(errors="replace")

    async def docker_do(self, *arguments: str) -> str:
        """Run docker beside the loop, which carries the wires."""
        return await asyncio.to_thread(self.docker, *arguments)

    def script(self, name: str, content: str) -> str:
        """A program for the host, in whose text ``DOCKER`` is the way to the daemon."""
        program = self.folder / f"{name}-{next(self._numbers)}"
        program.write_text(content.replace("DOCKER", " ".join(self.docker.cli)))
        program.chmod(0o755)
        return str(program)


@asynccontextmanager
async def whole(folder: Path, docker: Docker, sshd: Sshd) -> AsyncIterator[Rig]:
    """Start everything and one worker; end everything with the body."""
    folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        temporal = await stack.enter_async_context(dev_server(folder / "temporal", in_file=True))
        # Its records outlive its end, as those of a Redis that was restarted do.
        store = stack.enter_context(valkey(folder / "valkey", "--appendonly", "yes"))
        inbox = stack.enter_context(receiver_part.receiver())
        (folder / "webhook").write_text(inbox.url())
        rig = Rig(folder, temporal, store, await temporal.client(), docker, sshd, inbox)
        try:
            await rig.start_worker()
            yield rig
        finally:
            for working in rig.workers:
                await asyncio.to_thread(working.stop)


def holds(*places: tuple[str, str, str]) -> dict[str, str]:
    """For ``tests.parts.held_worker``: each a server, an activity, and ``before`` or ``after``."""
    return {"HOLDS": json.dumps(places)}
