"""Whom steady trusts over SSH: host keys are always checked, first contact is a person's job."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import asyncssh

from fleet.actions import Host
from fleet.contracts.host import HostErrorType

#: One of each kind that OpenSSH servers have.
_KINDS = (
    ["ssh-ed25519"],
    ["ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"],
    ["rsa-sha2-512", "rsa-sha2-256"],
)


class NotSentError(Exception):
    """It is proved that no command left for the host; ``kind`` says what was in the way."""

    def __init__(self, kind: HostErrorType, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Trust:
    """The known host keys, and the options that name the user's key; both read from files."""

    known_hosts: asyncssh.SSHKnownHosts
    options: asyncssh.SSHClientConnectionOptions


def read_trust(host: Host) -> Trust:
    """Read the key file and the known hosts; blocking, so call it in a thread.

    No agent, no configuration file and no other kind of login is ever used: what the fleet file
    says is all that happens.

    Raises:
        NotSentError: a file is missing, unreadable, or not what it should be.
    """
    known_hosts = _known_hosts(host)
    try:
        options = asyncssh.SSHClientConnectionOptions(
            username=host.user,
            client_keys=[str(Path(host.key).expanduser())],
            known_hosts=known_hosts,
            server_host_key_algs=_key_kinds(host, known_hosts),
            config=None,
            agent_path=None,
            preferred_auth="publickey",
            gss_kex=False,
            gss_auth=False,
            x509_trusted_certs=[],
            x509_trusted_cert_paths=[],
            connect_timeout=host.connect_timeout.total_seconds(),
            login_timeout=host.connect_timeout.total_seconds(),
            keepalive_interval=5,
            keepalive_count_max=3,
        )
    except OSError as problem:
        raise NotSentError(
            HostErrorType.DENIED, f"the key file {host.key} can't be read: {problem.strerror}"
        ) from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        raise NotSentError(
            HostErrorType.DENIED,
            f"the key file {host.key} holds no private key that can be used: it must have no"
            " passphrase, since nobody is there to type it",
        ) from None
    return Trust(known_hosts, options)


def _known_hosts(host: Host) -> asyncssh.SSHKnownHosts:
    try:
        return asyncssh.read_known_hosts(str(Path(host.known_hosts).expanduser()))
    except OSError as problem:
        raise NotSentError(
            HostErrorType.KEY_CHANGED,
            f"{host.known_hosts} can't be read ({problem.strerror}), so {host.address} is not"
            f" known; {_remedy(host)}",
        ) from None
    except ValueError:
        raise NotSentError(
            HostErrorType.MISCONFIGURED,
            f"{host.known_hosts} has a line that is no known_hosts entry; `ssh-keygen -l -f"
            f" {host.known_hosts}` finds it",
        ) from None


def _key_kinds(host: Host, known_hosts: asyncssh.SSHKnownHosts) -> list[str] | tuple[()]:
    """The kinds of the known keys first, then all others.

    By default asyncssh asks for the known kinds only. A host that was set up anew with another kind
    then hangs up, which looks like a fault of the network.
    """
    keys, authorities = _entries(host, known_hosts)
    if authorities or not keys:
        return ()
    known = [kind.decode() for key in keys for kind in key.sig_algorithms]
    return list(dict.fromkeys([*known, *(name for names in _KINDS for name in names)]))


def _entries(
    host: Host, known_hosts: asyncssh.SSHKnownHosts
) -> tuple[Sequence[asyncssh.SSHKey], Sequence[asyncssh.SSHKey]]:
    keys, authorities, *_ = known_hosts.match(
        host.address, "", host.port if host.port != 22 else None
    )
    return keys, authorities


def is_known(host: Host, trust: Trust) -> bool:
    """Whether the host's key stands there under the very name that the fleet file has."""
    return any(_entries(host, trust.known_hosts))


def refuse_key(host: Host, trust: Trust) -> NoReturn:
    """Say whether the host showed another key than the known one, or is not known at all."""
    story = (
        f"the host key of {host.address}:{host.port} is not the one in {host.known_hosts}: the"
        " host was set up anew, or somebody is in between"
        if any(_entries(host, trust.known_hosts))
        else f"{host.address}:{host.port} is not in {host.known_hosts}"
    )
    raise NotSentError(HostErrorType.KEY_CHANGED, f"{story}; {_remedy(host)}")


def _remedy(host: Host) -> str:
    return (
        f"`steady ssh-scan` prints what to add to {host.known_hosts}, once you have compared the"
        " fingerprint on the host itself"
    )


async def scan_host_key(
    address: str,
    port: int = 22,
    timeout: float = 10.0,  # noqa: ASYNC109 - it bounds each of several attempts
) -> list[str]:
    """Ask a host for its keys, without trusting it.

    Args:
        address: host name or IP address, as the fleet file will name it.
        port: of the SSH server.
        timeout: seconds for each kind of key.

    Returns:
        Lines for ``known_hosts``, each with its SHA256 fingerprint as the comment at the end.

    Raises:
        NotSentError: the host can't be reached, or speaks no SSH.
    """
    name = address if port == 22 else f"[{address}]:{port}"
    found = [await _scan_kind(address, port, kind, timeout) for kind in _KINDS]
    keys = [key for key in found if isinstance(key, asyncssh.SSHKey)]
    if not keys:
        first = next(problem for problem in found if isinstance(problem, Exception))
        reason = why_unreachable(first, timeout)
        raise NotSentError(HostErrorType.UNREACHABLE, f"{address}:{port}: {reason}")
    return [
        " ".join((name, *key.export_public_key().decode().split()[:2], key.get_fingerprint()))
        for key in keys
    ]


async def _scan_kind(
    address: str, port: int, kind: list[str], seconds: float
) -> asyncssh.SSHKey | Exception:
    """One kind of key. A server without that kind just hangs up, like one that is broken."""
    try:
        async with asyncio.timeout(seconds):
            key = await asyncssh.get_server_host_key(
                address, port, server_host_key_algs=kind, config=None
            )
    except (OSError, asyncssh.Error) as problem:
        return problem
    return key or ConnectionError("no host key was shown")


def why_unreachable(problem: Exception, seconds: float) -> str:
    """Why a connection could not be made, in words that hold nothing of the fleet's secrets."""
    match problem:
        case TimeoutError():
            return f"no answer within {seconds:g} s"
        case ConnectionRefusedError():
            return "the connection was refused: no SSH server listens there"
        case OSError():
            return problem.strerror or type(problem).__name__
        case _:
            return f"the SSH connection ended: {type(problem).__name__}"
