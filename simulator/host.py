"""A machine that is reached over real SSH, with a container engine for simulated workers.

Its own keys and the ``known_hosts`` of its visitors lie in its folder, and are made once.
"""

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from simulator import vllm
from simulator.docker import Answer, run_docker
from simulator.engine import Engine, Options
from simulator.wire import ASKED

_ADDRESS = "127.0.0.1"
_ALGORITHM = "ssh-ed25519"


@dataclass(frozen=True)
class SimHost:
    """How to reach the host, and the engine on which faults are made and restarts counted."""

    engine: Engine
    port: int
    key: Path
    known_hosts: Path
    address: str = _ADDRESS
    user: str = "operator"

    def restarts(self) -> dict[str, int]:
        """How many restarts each container has really had since the host came up."""
        return {one.options.name: one.restarts for one in self.engine.containers}

    def requests(self) -> dict[str, int]:
        """How many requests for tokens each model server has really received, over its restarts."""
        return {
            one.options.name: _asked(one.log)
            for one in self.engine.containers
            if isinstance(one.options, vllm.Options)
        }


@asynccontextmanager
async def sim_host(
    folder: Path, workers: Sequence[Options], *, port: int = 0
) -> AsyncIterator[SimHost]:
    """Run the host and its workers for the length of the block; no process outlives it."""
    host_key, visitor_key = _key(folder / "host_key"), _key(folder / "visitor_key")
    engine = Engine(folder / "containers", workers)
    server = await asyncssh.listen(
        _ADDRESS,
        port,
        server_host_keys=[host_key],
        authorized_client_keys=_authorised(visitor_key),
        process_factory=_commands(engine),
        encoding="utf-8",
    )
    try:
        await engine.open()
        known_hosts = folder / "known_hosts"
        public = host_key.export_public_key().decode().strip()
        known_hosts.write_text(f"[{_ADDRESS}]:{server.get_port()} {public}\n")
        yield SimHost(engine, server.get_port(), folder / "visitor_key", known_hosts)
    finally:
        server.close()
        await engine.close()


def _asked(log: Path) -> int:
    lines = log.read_text(errors="replace").splitlines()
    return sum(line.startswith(ASKED) for line in lines)


def _key(path: Path) -> asyncssh.SSHKey:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        asyncssh.generate_private_key(_ALGORITHM).write_private_key(path)
        path.chmod(0o600)
    return asyncssh.read_private_key(path)


def _authorised(key: asyncssh.SSHKey) -> asyncssh.SSHAuthorizedKeys:
    return asyncssh.import_authorized_keys(key.export_public_key().decode())


def _commands(
    engine: Engine,
) -> Callable[[asyncssh.SSHServerProcess[str]], Awaitable[None]]:
    async def serve(process: asyncssh.SSHServerProcess[str]) -> None:
        answer = await _carry_out(engine, process.command)
        process.stdout.write(answer.out)
        process.stderr.write(answer.err)
        process.exit(answer.status)

    return serve


def _unbounded(argv: list[str]) -> list[str]:
    """The command inside ``sh -c SCRIPT sh GRACE SECONDS``, a bound that none here comes to."""
    return argv[6:] if argv[:2] == ["sh", "-c"] else argv


async def _carry_out(engine: Engine, command: str | None) -> Answer:
    argv = _unbounded(shlex.split(command or ""))
    if argv and argv[0] == "docker":
        return await run_docker(engine, argv)
    program = argv[0] if argv else "a login without a command"
    return Answer(err=f"sh: 1: {program}: not found\n", status=127)
