"""A fleet file with the files that it names, for tests that break it in one place."""

from pathlib import Path

import asyncssh

#: One server on one host; further tables and the server's ``policy`` may follow.
GOOD = """\
[hosts.alpha]
address = "10.0.0.1"
user = "steady"
key = "key"
known_hosts = "known_hosts"

[servers.gpu-1]
source = { kind = "redis", key = "worker:1" }
restart = { kind = "docker", host = "alpha", name = "vllm" }
"""


def write_key(path: Path) -> asyncssh.SSHKey:
    """A new private key that only its owner can read."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.write_bytes(key.export_private_key())
    path.chmod(0o600)
    return key


def write_fleet(folder: Path, text: str = GOOD) -> Path:
    """``fleet.toml`` in the folder, beside a good ``key`` and ``known_hosts``."""
    host_key = write_key(folder / "key").export_public_key().decode()
    names = ("10.0.0.1", "10.0.0.2", "[10.0.0.3]:2222")
    (folder / "known_hosts").write_text("".join(f"{name} {host_key}" for name in names))
    file = folder / "fleet.toml"
    file.write_text(text, encoding="utf-8")
    return file
