"""What a fleet names on this machine: key files, known hosts, secrets. Looked at, never used."""

import getpass
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import asyncssh

from fleet.any_source import Source
from fleet.config import Endpoint, EngineSource, Fleet, Host, SecretRef, StatusSource
from fleet.refusal import Refusal

#: Longer than any key or list of hosts that is meant.
_LONGEST = 4_000_000

F = TypeVar("F", bound=Fleet)


def anchored(fleet: F, folder: Path) -> F:
    """The fleet with its relative paths made absolute; what begins with ``~`` stays as it is.

    A worker may run elsewhere, as another user: ``~`` is the home of that one.
    """

    def path(text: str) -> str:
        return text if text.startswith("~") else str(folder / text)

    def anchored_secret(ref: SecretRef) -> SecretRef:
        return ref if ref.file is None else SecretRef(file=path(ref.file))

    def secret(ref: SecretRef | None) -> SecretRef | None:
        return anchored_secret(ref) if ref is not None else None

    def host(host: Host) -> Host:
        update = {"key": path(host.key), "known_hosts": path(host.known_hosts)}
        return host.model_copy(update=update)

    servers = {
        name: server.model_copy(
            update={
                "source": server.source.model_copy(
                    update={key: secret(ref) for key, ref in _source_secret(server.source)}
                )
            }
        )
        for name, server in fleet.servers.items()
    }

    def endpoint(endpoint: Endpoint) -> Endpoint:
        candidates = {
            name: each.model_copy(update={"token": secret(each.token)})
            for name, each in endpoint.candidates.items()
        }
        return endpoint.model_copy(update={"candidates": candidates})

    return fleet.model_copy(
        update={
            "endpoints": {name: endpoint(each) for name, each in fleet.endpoints.items()},
            "hosts": {name: host(each) for name, each in fleet.hosts.items()},
            "stores": {
                name: store.model_copy(update={"password": secret(store.password)})
                for name, store in fleet.stores.items()
            },
            "servers": servers,
            "gateway": fleet.gateway.model_copy(
                update={"admin_token": secret(fleet.gateway.admin_token)}
            ),
            "alerts": fleet.alerts.model_copy(
                update={
                    "webhook": secret(fleet.alerts.webhook),
                    "notice": tuple(map(anchored_secret, fleet.alerts.notice)),
                    "page": tuple(map(anchored_secret, fleet.alerts.page)),
                    "dead_mans_switch": secret(fleet.alerts.dead_mans_switch),
                }
            ),
        }
    )


def missing_files(fleet: Fleet) -> Iterator[Refusal]:
    """Files that are not there or no good, for a fleet whose paths are anchored."""
    for name, host in fleet.hosts.items():
        yield from _key(("hosts", name, "key"), host.key)
        yield from _known_hosts(("hosts", name, "known_hosts"), host)
    for at, ref in _secrets(fleet):
        if ref.file is not None:
            text = yield from _content((*at, "file"), ref.file, "make it, or name another")
            if text is not None and not text.strip():
                yield Refusal((*at, "file"), f"{ref.file} is empty", "write the secret into it")


def unset_variables(fleet: Fleet, environment: Mapping[str, str]) -> Iterator[Refusal]:
    """Secrets that this environment lacks; the worker's, which counts, may well have them."""
    for at, ref in _secrets(fleet):
        if ref.env is not None and not environment.get(ref.env):
            yield Refusal(
                (*at, "env"),
                f"{ref.env} is not set in this environment",
                "set it where the worker runs",
            )


def _secrets(fleet: Fleet) -> Iterator[tuple[tuple[str | int, ...], SecretRef]]:
    if fleet.alerts.webhook is not None:
        yield ("alerts", "webhook"), fleet.alerts.webhook
    yield from services(fleet)
    if fleet.alerts.dead_mans_switch is not None:
        yield ("alerts", "dead_mans_switch"), fleet.alerts.dead_mans_switch
    for name, store in fleet.stores.items():
        if store.password is not None:
            yield ("stores", name, "password"), store.password
    for name, server in fleet.servers.items():
        for key, ref in _source_secret(server.source):
            yield ("servers", name, "source", key), ref
    yield from _gateway_secrets(fleet)


def _gateway_secrets(fleet: Fleet) -> Iterator[tuple[tuple[str | int, ...], SecretRef]]:
    if fleet.gateway.admin_token is not None:
        yield ("gateway", "admin_token"), fleet.gateway.admin_token
    for name, endpoint in fleet.endpoints.items():
        for candidate, kept in endpoint.candidates.items():
            if kept.token is not None:
                yield ("endpoints", name, "candidates", candidate, "token"), kept.token


def _source_secret(source: Source) -> Iterator[tuple[str, SecretRef]]:
    """The secret that reading the source takes, with its key; none where it takes none."""
    if isinstance(source, StatusSource) and source.token is not None:
        yield "token", source.token
    if isinstance(source, EngineSource) and source.api_key is not None:
        yield "api_key", source.api_key


def services(fleet: Fleet) -> Iterator[tuple[tuple[str | int, ...], SecretRef]]:
    """The alert services, each with its place in the file."""
    for key, refs in (("notice", fleet.alerts.notice), ("page", fleet.alerts.page)):
        for number, ref in enumerate(refs):
            yield ("alerts", key, number), ref


def _key(at: tuple[str, ...], path: str) -> Iterator[Refusal]:
    remedy = f"make one with `ssh-keygen -t ed25519 -f {path}`, or name another"
    text = yield from _content(at, path, remedy)
    if text is None:
        return
    about = _expanded(path).stat()
    if about.st_uid == os.getuid() and about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"{path} can be read by others (mode {about.st_mode & 0o777:04o})"
        yield Refusal(at, message, f"chmod 600 {path}")
    try:
        asyncssh.import_private_key(text)
    except (asyncssh.KeyEncryptionError, ValueError) as problem:
        if "passphrase" in str(problem).lower():
            message = f"{path} has a passphrase, and no person is there to type it"
            yield Refusal(at, message, "name a key without one, that only steady uses")
            return
        public = path.endswith(".pub")
        remedy = "name the file without .pub" if public else "name the private key"
        yield Refusal(at, f"{path} is no private key", remedy)


def _known_hosts(at: tuple[str, ...], host: Host) -> Iterator[Refusal]:
    remedy = _scan(host)
    text = yield from _content(at, host.known_hosts, remedy)
    if text is None:
        return
    try:
        port = host.port if host.port != 22 else None
        keys, authorities, *_ = asyncssh.import_known_hosts(text).match(host.address, "", port)
    except ValueError:
        # The complaint quotes the line, which in a file named by mistake may be a private key.
        yield Refusal(at, f"{host.known_hosts} is no known_hosts file", remedy)
        return
    if not keys and not authorities:
        name = host.address if port is None else f"[{host.address}]:{port}"
        yield Refusal(at, f"{host.known_hosts} has no key of {name}", remedy)


def _scan(host: Host) -> str:
    port = "" if host.port == 22 else f" --port {host.port}"
    return (
        f"`steady ssh-scan {host.address}{port}` prints the line to add, once you have compared"
        " its fingerprint"
    )


def _content(
    at: tuple[str | int, ...], path: str, remedy: str
) -> Generator[Refusal, None, str | None]:
    """The text of a file, or none once the refusal is told."""
    try:
        file = _expanded(path)
        if file.exists() and not (file.is_file() or file.is_dir()):
            yield Refusal(at, f"{path} is no regular file", "name another file")
            return None
        with file.open("rb") as opened:
            data = opened.read(_LONGEST)
    except FileNotFoundError:
        yield Refusal(at, f"there is no file {path}", remedy)
    except IsADirectoryError:
        yield Refusal(at, f"{path} is a folder", "name the file in it")
    except PermissionError:
        yield Refusal(at, f"{path} can't be read by this user", f"chown it to {_user()}")
    except (OSError, RuntimeError) as problem:
        yield Refusal(at, f"{path} can't be read: {_reason(problem)}", "name another file")
    else:
        return data.decode("utf-8", errors="replace")
    return None


def _expanded(path: str) -> Path:
    return Path(path).expanduser()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _reason(problem: OSError | RuntimeError) -> str:
    text = problem.strerror if isinstance(problem, OSError) else str(problem)
    return (text or type(problem).__name__).lower()
