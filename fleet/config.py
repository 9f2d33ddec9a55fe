"""The fleet file as a model. Loading and printing its errors belong to ``worker/``.

No I/O happens here: whether a key file exists is the loader's question. A path that begins with
``~`` is the home of the user that runs the worker, and is expanded there; a path relative to the
fleet file is made absolute when that file is loaded, since nobody knows its folder afterwards.
"""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from fleet import ladder, served
from fleet.actions import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Drill,
    Host,
    RebootRestart,
    Restart,
    SystemdRestart,
)
from fleet.any_source import Source, record
from fleet.duration_fields import Duration, within
from fleet.durations import parse
from fleet.endpoints import Endpoint, Gateway
from fleet.engine_sources import EngineSource
from fleet.host_budgets import contradictions as host_budget_contradictions
from fleet.ladder import Step
from fleet.policy import STRICT, HostBudget, Policy, Storm, merged, normal, off
from fleet.refusal import Refusal, raise_all
from fleet.secret_refs import SecretRef
from fleet.sources import RecordFields, RedisSource, StateWords, StatusSource, Store
from fleet.urls import checked_url

__all__ = [
    "Alerts",
    "CommandRestart",
    "ComposeRestart",
    "DockerRestart",
    "Drill",
    "Endpoint",
    "EngineSource",
    "Fleet",
    "FleetSection",
    "Gateway",
    "Host",
    "Name",
    "RebootRestart",
    "RecordFields",
    "RedisSource",
    "Restart",
    "SecretRef",
    "Server",
    "ServerSpec",
    "Source",
    "StateWords",
    "StatusSource",
    "Store",
    "Storm",
    "SystemdRestart",
]

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

#: At most 20: each is an activity of its own in every alert.
Services = Annotated[
    tuple[SecretRef, ...], Field(max_length=20, examples=['[{ env = "STEADY_PAGER" }]'])
]


class Alerts(BaseModel):
    """Where alerts go: a webhook, and services by severity. All their URLs are secrets.

    The webhook is told everything. Where no service is named for pages, those of notices are paged.
    """

    model_config = STRICT

    webhook: SecretRef | None = None
    notice: Services = ()
    page: Services = ()
    mention: str = "@here"
    dead_mans_switch: SecretRef | None = None


Overrides = Annotated[dict[str, Any], AfterValidator(normal)]


class Server(BaseModel):
    """One server: where it is read, how it is restarted, and what differs from the defaults.

    ``ladder`` has the stronger steps, for a restart that did not help. Without ``drill`` it is
    never frozen on purpose.
    """

    model_config = STRICT

    source: Source
    restart: Restart | None = None
    ladder: tuple[Restart, ...] = Field(default=(), max_length=5)
    drill: Drill | None = None
    policy: Overrides = {}


KeptFor = Annotated[Annotated[Duration, within("1m", "30d")] | None, BeforeValidator(off)]


class FleetSection(BaseModel):
    """What is one for the whole fleet. ``shard_size`` is the number of servers in one sweep."""

    model_config = STRICT

    name: str = Field(
        default="fleet",
        pattern=NAME,
        description="a name of letters, digits, '.', '_' and '-'",
        examples=["gpu-farm"],
    )
    sweep_every: Annotated[Duration, within("1s", "1h")] = parse("30s")
    probe_every: Annotated[Duration, within("1s", "1d")] = parse("5m")
    keep_readings: KeptFor = parse("7d")
    shard_size: int = Field(default=100, ge=1, le=500, strict=True)
    temporal_ui: str | None = None

    @field_validator("temporal_ui")
    @classmethod
    def _http(cls, url: str | None) -> str | None:
        return checked_url(url, ("http", "https"), "the URL without them") if url else None


Name = Annotated[str, Field(pattern=NAME)]


class Fleet(BaseModel):
    """The whole file. ``spec(name)`` is one server with everything resolved."""

    model_config = STRICT

    fleet: FleetSection = FleetSection()
    alerts: Alerts = Alerts()
    storm: Storm = Storm()
    defaults: Overrides = {}
    stores: dict[Name, Store] = {}
    hosts: dict[Name, Host] = {}
    servers: dict[Name, Server] = Field(min_length=1)
    gateway: Gateway = Gateway()
    endpoints: dict[Name, Endpoint] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        raise_all("Fleet", self.contradictions())
        return self

    def contradictions(self) -> list[Refusal]:
        """What is wrong between the parts, each of which is good by itself; none for a fleet."""
        return [
            *_twins("stores", self.stores),
            *_twins("hosts", self.hosts),
            *_twins("servers", self.servers),
            *_twins("endpoints", self.endpoints),
            *self._dangling(),
            *self._ladders(),
            *self._shared_sources(),
            *self._impossible_drills(),
            *self._contradictory_policies(),
            *host_budget_contradictions(self.hosts, self._policies_by_host()),
            *served.contradictions(self.gateway, self.endpoints, set(self.servers)),
        ]

    def _dangling(self) -> Iterator[Refusal]:
        for name, server in self.servers.items():
            store = server.source.store if isinstance(server.source, RedisSource) else None
            if store is not None and store not in self.stores:
                yield _no_such("stores", store, self.stores, ("servers", name, "source", "store"))
            for at, step in _steps(server):
                if step.host not in self.hosts:
                    yield _no_such("hosts", step.host, self.hosts, ("servers", name, *at, "host"))

    def ladders(self) -> dict[str, list[ladder.Act]]:
        """The steps of each server, as far as their hosts are known."""
        return {
            name: ladder.acts(name, server.restart, server.ladder, self.hosts)
            for name, server in self.servers.items()
        }

    def _ladders(self) -> Iterator[Refusal]:
        for name, server in self.servers.items():
            if server.ladder and server.restart is None:
                message = "has no first step: it is what follows after `restart`"
                yield Refusal(("servers", name, "ladder"), message, f"add [servers.{name}.restart]")
        ladders = self.ladders()
        for steps in ladders.values():
            yield from ladder.contradictions(steps)
        yield from ladder.collisions(ladders)

    def _shared_sources(self) -> Iterator[Refusal]:
        seen: dict[object, str] = {}
        for name, server in self.servers.items():
            first = seen.setdefault(record(server.source), name)
            if first != name:
                key = "key" if isinstance(server.source, RedisSource) else "url"
                yield Refusal(
                    ("servers", name, "source", key),
                    f"is the same record as servers.{first}.source.{key}, which can't tell two"
                    " servers apart",
                    "name the record of this server",
                )

    def _impossible_drills(self) -> Iterator[Refusal]:
        for name, server in self.servers.items():
            if server.drill is None:
                continue
            at, drill = ("servers", name, "drill"), server.drill
            if server.restart is None:
                message = "a drill ends with a restart, and this server has none"
                yield Refusal(at, message, f"add [servers.{name}.restart], or remove the drill")
            elif isinstance(server.restart, CommandRestart | RebootRestart) and not drill.freeze:
                kind = server.restart.kind
                message = f"steady does not know the process behind a restart by {kind}"
                yield Refusal(at, message, "add freeze and thaw, the commands that do it")
            if bool(drill.freeze) != bool(drill.thaw):
                missing = "thaw" if drill.freeze else "freeze"
                message = "is missing: what one command does the other must undo"
                yield Refusal((*at, missing), message, "add it, a list of arguments")

    def _contradictory_policies(self) -> Iterator[Refusal]:
        """What does not fit together belongs to where it was written: defaults, else the server."""
        common = list(_contradictions(self.defaults))
        yield from (each._replace(at=("defaults", *each.at)) for each in common)
        for name, server in self.servers.items():
            own = list(_contradictions(merged(self.defaults, server.policy)))
            for each in own:
                if each not in common:
                    yield each._replace(at=("servers", name, "policy", *each.at))
            for at, step in _steps(server):
                together = merged(merged(self.defaults, server.policy), step.times())
                if step.times() and not own:
                    for each in _contradictions(together):
                        yield each._replace(at=("servers", name, *at))

    def _policies_by_host(self) -> dict[str, dict[str, Policy]]:
        """The policies of the servers of each host that has a budget of its own, as far as they
        stand.
        """
        capped = {name for name, host in self.hosts.items() if host.budget != HostBudget()}
        found: dict[str, dict[str, Policy]] = {}
        for name, server in self.servers.items():
            host = server.restart.host if server.restart is not None else None
            if host in capped and not any(_contradictions(merged(self.defaults, server.policy))):
                found.setdefault(host, {})[name] = self.policy(name)
        return found

    def policy(self, name: str) -> Policy:
        """Defaults and the server's overrides, merged key by key."""
        return Policy.model_validate(merged(self.defaults, self.servers[name].policy))

    def spec(self, name: str) -> "ServerSpec":
        """One server with its references resolved, which is all that an activity needs.

        Raises:
            KeyError: there is no server of that name.
        """
        server = self.servers[name]
        source, restart = server.source, server.restart
        store = source.store if isinstance(source, RedisSource) else None
        return ServerSpec(
            name=name,
            source=source,
            store=self.stores[store] if store else None,
            restart=restart,
            host=self.hosts[restart.host] if restart else None,
            ladder=tuple(
                Step(action=action, host=self.hosts[action.host]) for action in server.ladder
            ),
            policy=self.policy(name),
            drill=server.drill,
        )


class ServerSpec(BaseModel):
    """One server as the activities and workflows see it at the moment that they ask."""

    model_config = STRICT

    name: str
    source: Source
    store: Store | None
    restart: Restart | None
    host: Host | None
    ladder: tuple[Step, ...] = ()
    policy: Policy
    drill: Drill | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, the first among them; empty where nothing may be done to the server."""
        if self.restart is None or self.host is None:
            return ()
        return (Step(action=self.restart, host=self.host), *self.ladder)

    def step(self, rung: int) -> Step | None:
        """The step for a server that so many restarts did not help; the last one repeats."""
        return self.steps[min(max(rung, 0), len(self.steps) - 1)] if self.steps else None


def _steps(server: Server) -> Iterator[tuple[tuple[str | int, ...], Restart]]:
    """Each step with the keys that lead to it."""
    if server.restart is not None:
        yield ("restart",), server.restart
    for number, step in enumerate(server.ladder):
        yield ("ladder", number), step


def _contradictions(overrides: dict[str, Any]) -> Iterator[Refusal]:
    try:
        Policy.model_validate(overrides)
    except ValidationError as problem:
        for error in problem.errors(include_url=False):
            ctx = error.get("ctx", {})
            yield Refusal(error["loc"], ctx.get("message", error["msg"]), ctx.get("remedy", ""))


def _twins(table: str, names: Collection[str]) -> Iterator[Refusal]:
    """Names that differ by case only are one name to a tired person, and on some file systems."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(name.lower(), name)
        if first != name:
            message = f"differs only by case from {table}.{first}"
            yield Refusal((table, name), message, "choose another name")


def _no_such(table: str, name: str, names: Collection[str], at: tuple[str | int, ...]) -> Refusal:
    close = get_close_matches(name, names, n=1)
    known = ", ".join(sorted(names)[:8])
    if close:
        remedy = f'did you mean "{close[0]}"?'
    else:
        remedy = f"add that table, or name one of: {known}" if known else "add that table"
    return Refusal(at, f"there is no [{table}.{name}]", remedy)
