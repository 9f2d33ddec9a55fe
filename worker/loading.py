"""From ``fleet.toml`` to a ``Fleet``, or to everything that is wrong with it, in one go.

What stands in one table is judged first; a table with a problem is then left out, and the rest is
judged together, so that one typing error hides no other mistake and makes up none.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from fleet.alerts import targets
from fleet.apply import MOST_BYTES, MOST_SERVERS
from fleet.config import Fleet, Name, RedisSource, Server
from fleet.contracts.alerts import Severity
from fleet.refusal import Refusal
from worker import toml
from worker.alert_urls import doubtful_services
from worker.disk import anchored, missing_files, unset_variables
from worker.problems import FleetFileError, Problem
from worker.wording import dotted, worded

__all__ = ["Examined", "FleetFileError", "Problem", "examine", "load"]

_COLLECTIONS = ("stores", "hosts", "servers", "endpoints")


class _Parts(Fleet):
    """A fleet whose parts are each good; whether they go together is not yet asked."""

    servers: dict[Name, Server] = Field(default={})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        return self


@dataclass(frozen=True)
class Examined:
    """``fleet`` is none exactly where there are problems; warnings forbid nothing."""

    fleet: Fleet | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def load(path: Path, *, files_are_here: bool = True) -> Fleet:
    """The fleet in the file, with relative paths made absolute and ``~`` left for the worker.

    ``files_are_here`` says that the worker will run on this machine, so that key files, known
    hosts and secret files are looked at too.

    Raises:
        FleetFileError: with every problem of the file.
    """
    examined = examine(path, files_are_here=files_are_here)
    if examined.fleet is None:
        raise FleetFileError(examined.problems)
    return examined.fleet


def examine(
    path: Path,
    *,
    files_are_here: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> Examined:
    """Everything that can be said of the file; never raises for what stands in it."""
    try:
        tables = toml.read(path)
    except FleetFileError as unread:
        return Examined(None, unread.problems, ())
    parts, errors = _parts(tables)
    parts = anchored(parts, path.absolute().parent)
    found = [*_together(parts, tables, errors), *(missing_files(parts) if files_are_here else ())]
    problems = [*(Problem(str(path), None, *worded(error)) for error in errors)]
    problems += _told(path, found)
    doubts: list[Refusal] = []
    if not problems:
        doubts += [*_unused(parts), *unset_variables(parts, environment)]
        doubts += doubtful_services(parts, environment, files_are_here=files_are_here)
    return Examined(
        fleet=None if problems else Fleet.model_validate(dict(parts)),
        problems=tuple(problems),
        warnings=tuple(_told(path, doubts)),
    )


def _parts(tables: Mapping[str, Any]) -> tuple[_Parts, list[ErrorDetails]]:
    """The parts that are good by themselves, and what is wrong with the others."""
    try:
        return _Parts.model_validate(tables), []
    except ValidationError as problem:
        errors = _without_echoes(problem.errors(include_url=False))
    return _Parts.model_validate(_without(tables, {error["loc"][:2] for error in errors})), errors


def _without_echoes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Less the lists that are only too short since an entry of theirs is no good."""
    places = [error["loc"] for error in errors]
    return [
        error
        for error in errors
        if error["type"] != "too_short" or not any(place[:-1] == error["loc"] for place in places)
    ]


def _without(tables: Mapping[str, Any], broken: set[tuple[str | int, ...]]) -> dict[str, Any]:
    kept = {}
    for name, table in tables.items():
        if (name,) in broken:
            continue
        if name in _COLLECTIONS:
            kept[name] = {key: each for key, each in table.items() if (name, key) not in broken}
        elif not any(loc[0] == name for loc in broken):
            kept[name] = table
    return kept


def _together(
    parts: _Parts, tables: Mapping[str, Any], errors: Iterable[ErrorDetails]
) -> Iterator[Refusal]:
    """What does not go together, less what only looks so since a broken table was left out."""
    places = [error["loc"] for error in errors]
    if not parts.servers and not any(loc[0] == "servers" or len(loc) == 1 for loc in places):
        yield Refusal(("servers",), "the fleet has none", "add one, beginning with [servers.NAME]")
    for each in parts.contradictions():
        without_defaults = "policy" in each.at and any(loc[0] == "defaults" for loc in places)
        if not without_defaults and not _names_a_broken_table(each, parts, tables):
            yield each
    remedy = "make two fleets of it, each in a Temporal namespace of its own"
    if (count := len(parts.servers)) > MOST_SERVERS:
        yield Refusal(("servers",), f"{count} are more than the {MOST_SERVERS} of a fleet", remedy)
    elif (size := len(parts.model_dump_json())) > MOST_BYTES:
        message = f"the fleet has {size:,} bytes, more than the {MOST_BYTES:,} that Temporal takes"
        yield Refusal((), message, remedy)


def _names_a_broken_table(each: Refusal, parts: _Parts, tables: Mapping[str, Any]) -> bool:
    match each.at:
        case ("servers", str(name), "restart", "host"):
            restart = parts.servers[name].restart
            return restart is not None and restart.host in tables.get("hosts", {})
        case ("servers", str(name), "ladder", int(rung), "host"):
            return parts.servers[name].ladder[rung].host in tables.get("hosts", {})
        case ("servers", str(name), "source", "store"):
            source = parts.servers[name].source
            return isinstance(source, RedisSource) and source.store in tables.get("stores", {})
        case ("hosts", _, "budget", "limit"):
            # It was measured by its servers, and one of them was left out.
            return len(parts.servers) < len(tables.get("servers", {}))
        case ("endpoints", _, "backends", str(server), *_):
            return server in tables.get("servers", {}) and server not in parts.servers
    return False


def _unused(fleet: Fleet) -> Iterator[Refusal]:
    """What is most likely a mistake, and harms nothing."""
    if not any(targets(fleet.alerts, severity) for severity in Severity):
        message = "is not set, so nobody is told of anything: alerts stand in Temporal only"
        yield Refusal(("alerts", "webhook"), message, 'name it, like { env = "STEADY_WEBHOOK" }')
    servers = fleet.servers.values()
    hosts = {step.host for each in servers for step in (each.restart, *each.ladder) if step}
    stores = {each.source.store for each in servers if isinstance(each.source, RedisSource)}
    for table, names, used in (("hosts", fleet.hosts, hosts), ("stores", fleet.stores, stores)):
        for name in names:
            if name not in used:
                yield Refusal((table, name), "is used by no server", "name it in one, or remove it")


def _told(path: Path, found: Iterable[Refusal]) -> list[Problem]:
    return [
        Problem(str(path), None, dotted(each.at), each.message, each.remedy)
        for each in dict.fromkeys(found)
    ]
