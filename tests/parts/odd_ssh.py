"""SSH servers that misbehave, as no real one can be made to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from fleet.actions import Host


class OddServer(asyncssh.SSHServer):
    """Lets everybody in whose key is right; the seconds are how long it takes over each step."""

    login_seconds = 0.0
    session_seconds = 0.0

    async def begin_auth(self, username: str) -> bool:
        await asyncio.sleep(self.login_seconds)
        return True

    async def session_requested(self) -> asyncssh.SSHServerSession[str]:
        await asyncio.sleep(self.session_seconds)
        return self.session()

    def session(self) -> asyncssh.SSHServerSession[str]:
        return _Refusing()


class SlowLogin(OddServer):
    login_seconds = 3600


class SlowSession(OddServer):
    """Takes a second to open each session."""

    session_seconds = 1

    def session(self) -> asyncssh.SSHServerSession[str]:
        return _Answering()


class RefusesCommands(OddServer):
    pass


class HangsUpOnCommands(OddServer):
    def session(self) -> asyncssh.SSHServerSession[str]:
        return _HangingUp()


class _Session(asyncssh.SSHServerSession[str]):
    channel: asyncssh.SSHServerChannel[str]

    def connection_made(self, chan: asyncssh.SSHServerChannel[str]) -> None:
        self.channel = chan


class _Refusing(_Session):
    def exec_requested(self, command: str) -> bool:
        return False


class _HangingUp(_Session):
    """The command has arrived, and then the line is dead: whether it ran, nobody can tell."""

    def exec_requested(self, command: str) -> bool:
        self.channel.get_connection().abort()
        return True


class _Answering(_Session):
    def exec_requested(self, command: str) -> bool:
        return True

    def session_started(self) -> None:
        self.channel.write("process 1\n")
        self.channel.exit(0)


@asynccontextmanager
async def odd_ssh(folder: Path, behaviour: Callable[[], OddServer]) -> AsyncIterator[Host]:
    """Run the server until the body ends; gives the host as the fleet file would name it."""
    folder.mkdir(parents=True, exist_ok=True)
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    user_key = asyncssh.generate_private_key("ssh-ed25519")
    user_key.write_private_key(str(folder / "user_key"))
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=behaviour,
        server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(
            user_key.export_public_key().decode()
        ),
    )
    shown = host_key.export_public_key().decode().strip()
    known_hosts = folder / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{server.get_port()} {shown}\n")
    try:
        yield Host(
            address="127.0.0.1",
            port=server.get_port(),
            user="somebody",
            key=str(folder / "user_key"),
            known_hosts=str(known_hosts),
        )
    finally:
        server.close()
        await server.wait_closed()
