"""Starts a real OpenSSH server on a free loopback port, with keys of its own."""

import getpass
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from fleet.actions import Host
from tests.parts import needs

_START_WITHIN = 20.0


@dataclass(frozen=True)
class Sshd:
    """A running server. ``folder`` holds its keys and, for the client, key and known hosts."""

    folder: Path
    port: int
    pid: int

    @property
    def key(self) -> Path:
        return self.folder / "user_key"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def host(self, **changes: object) -> Host:
        """The server as the fleet file would name it."""
        facts: dict[str, object] = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "key": str(self.key),
            "known_hosts": str(self.known_hosts),
            "connect_timeout": "10s",
        }
        return Host.model_validate({**facts, **changes})

    def host_at(self, port: int, **changes: object) -> Host:
        """The same server, reached over a wire that listens on another port."""
        known_hosts = self.folder / f"known_hosts_{port}"
        key = self.known_hosts.read_text().split(maxsplit=1)[1]
        known_hosts.write_text(f"[127.0.0.1]:{port} {key}")
        return self.host(port=port, known_hosts=str(known_hosts), **changes)


@contextmanager
def sshd(folder: Path, *, path: str | None = None) -> Iterator[Sshd]:
    """Run sshd until the body ends; ``path`` becomes the PATH of what is run over it.

    Raises:
        FileNotFoundError: the machine has no sshd.
        RuntimeError: it did not start; the message ends with its log.
    """
    program = needs.program("sshd")
    if program is None:
        raise FileNotFoundError("sshd (package openssh-server)")
    port = free_port()
    config = _write_files(folder, port, path)
    log = folder / "sshd.log"
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [program, "-D", "-e", "-f", str(config)],
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
        )
    try:
        _wait_until_it_answers(child, port, log)
        yield Sshd(folder, port, child.pid)
    finally:
        child.terminate()
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _write_files(folder: Path, port: int, path: str | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    user_key = asyncssh.generate_private_key("ssh-ed25519")
    for name, key in (("host_key", host_key), ("user_key", user_key)):
        _write_private(folder / name, key.export_private_key())
    (folder / "authorized_keys").write_bytes(user_key.export_public_key())
    shown = host_key.export_public_key().decode().strip()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {shown}\n")
    if os.geteuid() == 0:
        # sshd insists on it when it runs as root; packages leave its making to init.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    config = folder / "sshd_config"
    config.write_text(_config(folder, port, path))
    return config


def _write_private(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)


def _config(folder: Path, port: int, path: str | None) -> str:
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder}/host_key",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        f"PidFile {folder}/sshd.pid",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "MaxStartups 200",
        "MaxSessions 50",
        "LogLevel VERBOSE",
    ]
    if path is not None:
        lines.append(f'SetEnv "PATH={path}"')
    return "\n".join(lines) + "\n"


def _wait_until_it_answers(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_WITHIN
    while time.monotonic() < deadline and child.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
                if probe.recv(4) == b"SSH-":
                    return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"sshd did not start: {log.read_text(errors='replace')[-2000:]}")
