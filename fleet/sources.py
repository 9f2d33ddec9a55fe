"""Where a server is read: a heartbeat record in Redis or Valkey, or at a status URL."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from fleet.duration_fields import Duration, within
from fleet.durations import parse
from fleet.policy import STRICT, TimeFormat
from fleet.refusal import Refusal, raise_all, refusal
from fleet.secret_refs import SecretRef
from fleet.urls import checked_url

_NEEDED = ("state", "heartbeat")


def _reachable(name: str | None) -> str | None:
    if name is not None and not all(name.split(".")):
        raise refusal(f"{name!r} has an empty part", "write the names with one dot between them")
    return name


def _silent(value: object) -> object:
    return None if value == "" else value


#: TOML has no null, so ``""`` says that the worker publishes no such field.
_FieldName = Annotated[str | None, BeforeValidator(_silent), AfterValidator(_reachable)]
_NeededName = Annotated[str, Field(min_length=1), AfterValidator(_reachable)]
_Words = tuple[Annotated[str, Field(min_length=1)], ...]


class RecordFields(BaseModel):
    """The names under which a worker publishes; a dot reaches into nested JSON.

    ``progress``, ``job`` and ``process`` are optional: one that is named and not published is no
    error, and ``""`` looks for none.
    """

    model_config = STRICT

    state: _NeededName = "state"
    heartbeat: _NeededName = "heartbeat"
    progress: _FieldName = "progress"
    job: _FieldName = "job"
    process: _FieldName = "process"

    @model_validator(mode="after")
    def _each_its_own(self) -> Self:
        raise_all("RecordFields", self._twice())
        return self

    def _twice(self) -> Iterator[Refusal]:
        first: dict[str, str] = {}
        for key, name in self:
            other = first.setdefault(name, key) if name is not None else key
            if other != key:
                message = f"{name!r} is the field of {other} already"
                remedy = "name another" if key in _NEEDED else 'name another, or "" for none'
                yield Refusal((key,), message, remedy)


class StateWords(BaseModel):
    """Which of the worker's own words mean what, compared without regard to case.

    A worker may have no word for a state, save for ``processing``: without it nothing is hung.
    """

    model_config = STRICT

    processing: Annotated[_Words, Field(min_length=1)] = ("processing", "busy", "running")
    idle: _Words = ("idle", "ready", "waiting")
    error: _Words = ("error", "failed")
    loading: _Words = ("loading", "starting", "booting")

    @model_validator(mode="after")
    def _one_meaning(self) -> Self:
        raise_all("StateWords", self._twice())
        return self

    def _twice(self) -> Iterator[Refusal]:
        """Told at the group that the file has, since the other may be the default."""
        first: dict[str, str] = {}
        for group, words in self:
            for word in words:
                other = first.setdefault(word.strip().casefold(), group)
                if other != group:
                    at, than = (group, other) if group in self.model_fields_set else (other, group)
                    message = f"{word!r} is a word for {than} too"
                    yield Refusal(
                        (at,), message, f"remove it here, or give {than} words without it"
                    )


class _Record(BaseModel):
    model_config = STRICT

    fields: RecordFields = RecordFields()
    words: StateWords = StateWords()
    time: TimeFormat = "auto"
    timeout: Annotated[Duration, within("1ms", "5m")] = parse("5s")


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
        return checked_url(url, ("http", "https"), 'token = { env = "VARIABLE" }')


class Store(BaseModel):
    """A Redis or Valkey server with heartbeat records; it is only read."""

    model_config = STRICT

    url: str
    username: str | None = None
    password: SecretRef | None = None

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        remedy = 'username = "NAME" and password = { env = "VARIABLE" }'
        return _with_database(checked_url(url, ("redis", "rediss", "unix"), remedy))


def _with_database(url: str) -> str:
    """The URL, if its database is a number and its socket a path, which the client never asks."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        if parts.netloc or len(parts.path) < 2:
            raise refusal("the URL names no socket", "write unix:///PATH, with three slashes")
        path = ""
    else:
        path = parts.path.removeprefix("/")
    for database in (path, *parse_qs(parts.query).get("db", [])):
        if database and not (database.isascii() and database.isdecimal()):
            raise refusal("the database in the URL is no number", "write it as one, like /0")
    return url
