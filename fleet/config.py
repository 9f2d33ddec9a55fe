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

from fleet import endpoints as served
from fleet.actions import (
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Drill,
    Host,
    Restart,
    SystemdRestart,
    target,
)
from fleet.durations import Duration, parse, within
from fleet.endpoints import Endpoint, Gateway
from fleet.engine_sources import Source, VllmSource, record
from fleet.host_budgets import contradictions as host_budget_contradictions
from fleet.policy import STRICT, HostBudget, Policy, Storm, merged, normal, off
from fleet.refusal import Refusal, raise_all
from fleet.sources import (
    RecordFields,
    RedisSource,
    SecretRef,
    StateWords,
    StatusSource,
    Store,
    checked_url,
)

__all__ = [
    "Alerts",
    "CommandRestart",
    "ComposeRestart",
    "DockerRestart",
    "Drill",
    "Endpoint",
    "Fleet",
    "FleetSection",
    "Gateway",
    "Host",
    "Name",
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
    "VllmSource",
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

    Without ``drill`` it is never frozen on purpose.
    """

    model_config = STRICT

    source: Source
    restart: Restart | None = None
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
            *self._shared_targets(),
            *self._shared_sources(),
            *self._impossible_drills(),
            *self._contradictory_policies(),
            *host_budget_contradictions(self.hosts, self._policies_by_host()),
            *served.contradictions(self.endpoints, set(self.servers)),
        ]

    def _dangling(self) -> Iterator[Refusal]:
        for name, server in self.servers.items():
            store = server.source.store if isinstance(server.source, RedisSource) else None
            if store is not None and store not in self.stores:
                yield _no_such("stores", store, self.stores, ("servers", name, "source", "store"))
            if server.restart is not None and server.restart.host not in self.hosts:
                at = ("servers", name, "restart", "host")
                yield _no_such("hosts", server.restart.host, self.hosts, at)

    def _shared_targets(self) -> Iterator[Refusal]:
        seen: dict[object, str] = {}
        for name, server in self.servers.items():
            host = self.hosts.get(server.restart.host) if server.restart else None
            if server.restart is None or host is None:
                continue
            first = seen.setdefault(target(server.restart, host), name)
            if first != name:
                yield Refusal(
                    ("servers", name, "restart"),
                    f"restarts the same as servers.{first}.restart, so one thing would have two"
                    " locks and two budgets",
                    "name another container, unit or host, or remove one of the two servers",
                )

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
            elif isinstance(server.restart, CommandRestart) and not drill.freeze:
                message = "steady does not know the process behind a restart by command"
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
            for each in _contradictions(merged(self.defaults, server.policy)):
                if each not in common:
                    yield each._replace(at=("servers", name, "policy", *each.at))

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
    policy: Policy
    drill: Drill | None = None


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


def _no_such(table: str, name: str, names: Collection[str], at: tuple[str, ...]) -> Refusal:
    close = get_close_matches(name, names, n=1)
    known = ", ".join(sorted(names)[:8])
    if close:
        remedy = f'did you mean "{close[0]}"?'
    else:
        remedy = f"add that table, or name one of: {known}" if known else "add that table"
    return Refusal(at, f"there is no [{table}.{name}]", remedy)
