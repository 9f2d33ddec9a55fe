"""The fleet file as a model. Loading and printing its errors belong to ``worker/``.

No I/O happens here: whether a key file exists is the loader's question.
"""

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator, model_validator

from fleet.durations import Duration, parse, show
from fleet.policy import STRICT, Policy, TimeFormat

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class SecretRef(BaseModel):
    """Where a secret is found: an environment variable of the worker, or a file on its disk.

    The secret itself never stands in the fleet file, so it never enters a workflow.
    """

    model_config = STRICT

    env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    file: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError('a secret is named by env = "VARIABLE" or by file = "PATH", not both')
        return self


class RecordFields(BaseModel):
    """The names under which a worker publishes; a dot reaches into nested JSON."""

    model_config = STRICT

    state: str = "state"
    heartbeat: str = "heartbeat"
    progress: str | None = "progress"
    job: str | None = "job"
    process: str | None = "process"


class StateWords(BaseModel):
    """Which of the worker's own words mean what, compared without regard to case."""

    model_config = STRICT

    processing: tuple[str, ...] = ("processing", "busy", "running")
    idle: tuple[str, ...] = ("idle", "ready", "waiting")
    error: tuple[str, ...] = ("error", "failed")
    loading: tuple[str, ...] = ("loading", "starting", "booting")


class _Record(BaseModel):
    model_config = STRICT

    fields: RecordFields = RecordFields()
    words: StateWords = StateWords()
    time: TimeFormat = "auto"
    timeout: Duration = parse("5s")


class RedisSource(_Record):
    """A heartbeat record in Redis or Valkey. Without ``store``, the embedded one."""

    kind: Literal["redis"] = "redis"
    store: str | None = None
    key: str = Field(min_length=1, max_length=500)
    format: Literal["hash", "json"] = "hash"


class StatusSource(_Record):
    """A URL that answers with the same record as JSON."""

    kind: Literal["status"] = "status"
    url: str
    token: SecretRef | None = None

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        return _checked_url(url, ("http", "https"))


Source = Annotated[RedisSource | StatusSource, Field(discriminator="kind")]

_Argument = Annotated[str, Field(min_length=1, max_length=1000)]


class _Action(BaseModel):
    model_config = STRICT

    host: str


class DockerRestart(_Action):
    """``docker restart NAME`` (or Podman by the same verbs).

    ``stop_timeout`` is how long the container may take to stop before it is killed; the bound on
    the SSH command is derived from it. ``cli`` is the program with leading arguments, such as
    ``["sudo", "-n", "docker"]``.
    """

    kind: Literal["docker", "podman"]
    name: str = Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")
    stop_timeout: Duration = parse("10s")
    cli: tuple[_Argument, ...] = ()

    @property
    def program(self) -> tuple[str, ...]:
        return self.cli or (self.kind,)


class ComposeRestart(_Action):
    """``docker compose restart SERVICE`` in a project directory on the host."""

    kind: Literal["compose"]
    directory: str = Field(pattern=r"^/")
    service: str = Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")
    stop_timeout: Duration = parse("10s")
    cli: tuple[_Argument, ...] = ("docker",)


class SystemdRestart(_Action):
    """``systemctl restart UNIT``; ``stop_timeout`` should be the unit's ``TimeoutStopSec``."""

    kind: Literal["systemd"]
    unit: str = Field(pattern=r"^[A-Za-z0-9:_.\\@-]+$")
    user: bool = False
    stop_timeout: Duration = parse("90s")
    cli: tuple[_Argument, ...] = ("systemctl",)


class CommandRestart(_Action):
    """An argument list of the operator's own; it is never split or expanded by a shell.

    ``identity`` prints one line that is another after every start of the process (a PID with its
    start time, say). Without it a lost connection can't be settled, and goes to a person.
    """

    kind: Literal["command"]
    argv: tuple[_Argument, ...] = Field(min_length=1)
    identity: tuple[_Argument, ...] = ()
    stop_timeout: Duration = parse("30s")

    @field_validator("argv", "identity", mode="before")
    @classmethod
    def _list_not_text(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(
                'write the command as a list, ["program", "argument"]: a text would be split by a'
                " shell"
            )
        return value


Restart = Annotated[
    DockerRestart | ComposeRestart | SystemdRestart | CommandRestart, Field(discriminator="kind")
]


class Host(BaseModel):
    """A machine that is reached over SSH. Its key must be in ``known_hosts``: no first trust."""

    model_config = STRICT

    address: str = Field(min_length=1)
    port: int = Field(default=22, ge=1, le=65535)
    user: str = Field(min_length=1)
    key: str = Field(min_length=1, description="private key file")
    known_hosts: str = "~/.ssh/known_hosts"
    connect_timeout: Duration = parse("10s")


class Store(BaseModel):
    """A Redis or Valkey server with heartbeat records; it is only read."""

    model_config = STRICT

    url: str
    username: str | None = None
    password: SecretRef | None = None

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        return _checked_url(url, ("redis", "rediss", "unix"))


class Alerts(BaseModel):
    """Where alerts go: a webhook, whose URL is a secret."""

    model_config = STRICT

    webhook: SecretRef | None = None
    mention: str = "@here"


class Server(BaseModel):
    model_config = STRICT

    source: Source
    restart: Restart | None = None
    policy: dict[str, object] = {}


class FleetSection(BaseModel):
    model_config = STRICT

    name: str = Field(default="fleet", pattern=_NAME.pattern)
    sweep_every: Duration = parse("30s")
    shard_size: int = Field(default=100, ge=1, le=500)
    temporal_ui: str | None = None

    @field_validator("sweep_every")
    @classmethod
    def _bounded(cls, every: Duration) -> Duration:
        if not parse("1s") <= every <= parse("1h"):
            raise ValueError(f"{show(every)} is out of range: choose from 1s to 1h")
        return every


class Fleet(BaseModel):
    """The whole file. ``spec(name)`` is one server with everything resolved."""

    model_config = STRICT

    fleet: FleetSection = FleetSection()
    alerts: Alerts = Alerts()
    defaults: dict[str, object] = {}
    stores: dict[str, Store] = {}
    hosts: dict[str, Host] = {}
    servers: dict[str, Server] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, server in self.servers.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"servers.{name}: a name has letters, digits, '.', '_', '-' only")
            self._check_references(name, server)
        self._check_targets()
        return self

    def _check_references(self, name: str, server: Server) -> None:
        store = server.source.store if isinstance(server.source, RedisSource) else None
        if store is not None and store not in self.stores:
            raise ValueError(
                f"servers.{name}.source.store: there is no [stores.{store}]; {_known(self.stores)}"
            )
        if server.restart is not None and server.restart.host not in self.hosts:
            raise ValueError(
                f"servers.{name}.restart.host: there is no [hosts.{server.restart.host}];"
                f" {_known(self.hosts)}"
            )

    def _check_targets(self) -> None:
        seen: dict[object, str] = {}
        for name, server in self.servers.items():
            if server.restart is None:
                continue
            target = (type(server.restart), server.restart)
            if target in seen:
                raise ValueError(
                    f"servers.{name}.restart: the same as servers.{seen[target]}.restart; two"
                    " servers that restart one thing would have two locks and two budgets"
                )
            seen[target] = name

    def policy(self, name: str) -> Policy:
        """Defaults and the server's overrides, merged key by key."""
        return Policy.model_validate({**self.defaults, **self.servers[name].policy})

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


def _known(names: dict[str, object] | dict[str, Store] | dict[str, Host]) -> str:
    return f"there are {', '.join(names)}" if names else "the file has none yet"


def _checked_url(url: str, schemes: tuple[str, ...]) -> str:
    parts = urlsplit(url)
    if parts.scheme not in schemes:
        raise ValueError(f"{url!r} is no URL with {' or '.join(f'{s}://' for s in schemes)}")
    if parts.password:
        raise ValueError('the URL holds a password: name it with password = { env = "VARIABLE" }')
    if parts.scheme != "unix" and not parts.hostname:
        raise ValueError(f"{url!r} names no host")
    return url
