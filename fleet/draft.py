"""A first fleet file, written from what was found on the hosts: commented, careful, valid.

What nobody can find out from outside, above all where a worker's heartbeat record lies, stands
there as a placeholder that is marked TODO, as does the URL of an engine, which is a guess. Until it
is filled in the server shows as ``missing``, for which steady restarts nothing.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from fleet.actions import Host
from fleet.config import NAME
from fleet.discovery import Found
from fleet.draft_sources import engine_source

#: Nothing answers there, ever (RFC 2606).
STORE_URL = "redis://redis.example.invalid:6379/0"

_LONGEST = 63
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 98


@dataclass(frozen=True)
class Looked:
    """A host that was looked at. ``problem`` says why it could not be; ``remarks``, what was in
    the way of seeing all.
    """

    host: Host
    found: tuple[Found, ...] = ()
    remarks: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Entry:
    """A server of the draft: its name there, its host's name, and what was found."""

    server: str
    host: str
    found: Found


def distinct(looked: Sequence[Looked]) -> list[Looked]:
    """Each machine once: one that was named twice shows the same containers, by their IDs."""
    seen: dict[str, str] = {}
    kept = []
    for each in looked:
        ids = {found.id for found in each.found if found.id}
        twin = next((seen[id_] for id_ in sorted(ids) if id_ in seen), None)
        if twin is not None:
            said = f"is the same machine as {twin}, by its containers: it is written down once"
            kept.append(replace(each, found=(), remarks=(*each.remarks, said)))
            continue
        seen |= dict.fromkeys(ids, each.host.address)
        kept.append(each)
    return kept


def entries(looked: Sequence[Looked]) -> list[Entry]:
    """The servers with names of their own, in the order of the hosts."""
    hosts = _host_names(looked)
    listed = [(hosts[each.host.address], found) for each in looked for found in each.found]
    plain = [_slug(_plain_name(found)) for _, found in listed]
    taken: set[str] = set()
    named = []
    for (host, found), name in zip(listed, plain, strict=True):
        alone = [other.lower() for other in plain].count(name.lower()) == 1
        wanted = name if alone else _slug(f"{host}-{name}")
        named.append(Entry(_free(wanted, taken), host, found))
    return named


def draft(looked: Sequence[Looked], *, sudo: bool, file: str) -> str:
    """The text of the fleet file. At least one thing must have been found."""
    hosts = _host_names(looked)
    parts = [_head(looked, file), _TABLES]
    if any(found.listens is None for each in looked for found in each.found):
        parts.append(_STORE)
    taken: set[str] = set()
    for each in looked:
        host = hosts[each.host.address]
        servers = [entry for entry in entries(looked) if entry.host == host]
        parts.append("\n".join(_host(each, host, any_server=bool(servers))))
        address = each.host.address
        parts += ["\n".join(_server(entry, address, taken, sudo=sudo)) for entry in servers]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _head(looked: Sequence[Looked], file: str) -> str:
    seen = ", ".join(each.host.address for each in looked if not each.problem)
    return "\n".join(
        [
            *_comment(f"Written by `steady init` from what runs on {seen}."),
            "#",
            *_comment(
                "It is a start, and partly a guess: what looks like inference was told by names,"
                " images and command lines. What is to do:"
            ),
            "#",
            *_comment(
                "1. Each TODO below: above all where a server is read. Until then it shows as"
                " missing, and nothing is restarted for that.",
                "  ",
            ),
            *_comment(
                "2. Remove what is no inference, add what is not here. fleet.example.toml explains"
                " every key.",
                "  ",
            ),
            *_comment(f"3. steady validate {file}, then steady up {file}", "  "),
            *_comment('4. After a good week of "dry_run": mode "approve", then "act".', "  "),
        ]
    )


_TABLES = """\
[alerts]
# TODO: the variable, in the worker's environment, that holds the URL to which alerts are sent.
# Without it nobody is told of anything.
#webhook = { env = "STEADY_WEBHOOK" }

[defaults]
# Everything is done but the restart command.
mode = "dry_run"
"""

_STORE = f"""\
[stores.main]
# TODO: the Redis or Valkey that the workers publish their heartbeat records to.
url = "{STORE_URL}"
"""


def _host(each: Looked, name: str, *, any_server: bool) -> Iterator[str]:
    host = each.host
    if each.problem:
        yield from _comment(f"{host.address} could not be looked at: {each.problem}")
        return
    for remark in each.remarks:
        yield from _comment(f"{host.address}: {remark}")
    if not any_server:
        yield from _comment(f"{host.address} is left out: nothing there looks like inference.")
        return
    yield f"[hosts.{_key(name)}]"
    yield f"address = {_quoted(host.address)}"
    if host.port != 22:
        yield f"port = {host.port}"
    yield f"user = {_quoted(host.user)}"
    yield f"key = {_quoted(host.key)}"
    if host.known_hosts != Host.model_fields["known_hosts"].default:
        yield f"known_hosts = {_quoted(host.known_hosts)}"


def _server(entry: Entry, address: str, taken: set[str], *, sudo: bool) -> Iterator[str]:
    found = entry.found
    image = f" ({found.image})" if found.image else ""
    yield from _comment(f"It looks like {found.looks_like}, by {found.because}{image}.")
    yield f"[servers.{_key(entry.server)}]"
    if found.listens is not None:
        for line, is_comment in engine_source(address, entry.server, found.listens, taken):
            yield from _comment(line) if is_comment else (line,)
    else:
        yield '# TODO: the key of its heartbeat record, or a source of kind "status".'
        key = _quoted(f"worker:{entry.server}")
        yield f'source = {{ kind = "redis", store = "main", key = {key} }}'
    if found.hindrance:
        yield from _comment(f"TODO: a restart would do harm, so steady pages. {found.hindrance}.")
    yield from _RESTARTS[found.kind](entry, sudo)


def _container(entry: Entry, sudo: bool) -> Iterator[str]:
    found = entry.found
    cli = f', cli = ["sudo", "-n", "{found.kind}"]' if sudo else ""
    if found.service and posixpath.isabs(found.directory):
        yield "# It belongs to a Compose project. This would restart it as well:"
        place = f"directory = {_quoted(found.directory)}, service = {_quoted(found.service)}"
        yield f'#restart = {{ kind = "compose", host = {_quoted(entry.host)}, {place} }}'
    name = f"host = {_quoted(entry.host)}, name = {_quoted(found.name)}"
    yield f'restart = {{ kind = "{found.kind}", {name}{cli} }}'


def _unit(entry: Entry, sudo: bool) -> Iterator[str]:
    found = entry.found
    if not found.user and not sudo:
        yield '# A restart of a unit mostly needs a sudo rule: cli = ["sudo", "-n", "systemctl"]'
    if not found.stop_timeout:
        yield '# The unit says no TimeoutStopSec that could stand here; stop_timeout is "90s".'
    stop = f', stop_timeout = "{found.stop_timeout}"' if found.stop_timeout else ""
    scope = ", user = true" if found.user else ""
    cli = ', cli = ["sudo", "-n", "systemctl"]' if sudo and not found.user else ""
    name = f"host = {_quoted(entry.host)}, unit = {_quoted(found.name)}"
    yield f'restart = {{ kind = "systemd", {name}{scope}{stop}{cli} }}'


_RESTARTS: dict[str, Callable[[Entry, bool], Iterator[str]]] = {
    "docker": _container,
    "podman": _container,
    "systemd": _unit,
}


def _host_names(looked: Sequence[Looked]) -> dict[str, str]:
    """A short name for each address: the first label of a host name, else the address itself."""
    taken: set[str] = set()
    return {each.host.address: _free(_short(each.host.address), taken) for each in looked}


def _short(address: str) -> str:
    is_number = ":" in address or re.fullmatch(r"[\d.]+", address)
    return _slug(re.sub(r"[.:]+", "-", address) if is_number else address.split(".", 1)[0])


def _plain_name(found: Found) -> str:
    if found.kind == "systemd":
        return found.name.removesuffix(".service")
    return found.service or found.name


def _slug(text: str) -> str:
    """A name that a fleet file takes, as near to the text as can be."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:_LONGEST]
    return name if re.fullmatch(NAME, name) else "server"


def _free(name: str, taken: set[str]) -> str:
    """The name, or with the next number behind it where it is taken, whatever its case."""
    wanted, number = name, 2
    while wanted.lower() in taken:
        ending = f"-{number}"
        wanted, number = f"{name[: _LONGEST - len(ending)]}{ending}", number + 1
    taken.add(wanted.lower())
    return wanted


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A basic string of TOML; JSON escapes the same, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """A comment, folded; whatever a host said in it stays within it."""
    line = f"#{indent}"
    shown = "".join(char for char in text if char.isprintable() or char.isspace())
    for word in " ".join(shown.split()).split(" "):
        if len(line) + 1 + len(word) > _WIDTH and line.strip("# "):
            yield line
            line = f"#{indent}{'   ' if indent else ''}"
        line = f"{line} {word}"
    yield line
