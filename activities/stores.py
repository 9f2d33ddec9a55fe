"""Redis and Valkey, only ever read: one pool of connections a store, which reconnects by itself."""

from collections.abc import Awaitable
from typing import Any, TypeVar

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from activities.answers import LARGEST_RECORD, BadAnswer, NoAnswer
from activities.secrets import SecretError, resolve
from fleet.config import RedisSource, SecretRef, Store
from fleet.records import names_read

_CONNECTIONS = 32

T = TypeVar("T")


class _Unresolved(exceptions.AuthenticationError):
    """The password can't be had. A kind of redis error, after which the client hangs up."""


class _Credentials(CredentialProvider):
    """Resolves a store's password at each new connection, so that a rotated one is picked up."""

    def __init__(self, password: SecretRef, username: str | None) -> None:
        self._password = password
        self._username = username

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = resolve(self._password)
        except SecretError as problem:
            raise _Unresolved(str(problem)) from None
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


class Stores:
    """The stores with heartbeat records; ``embedded`` is the URL of steady's own, if it runs."""

    def __init__(self, embedded: str | None) -> None:
        self._embedded = Store(url=embedded) if embedded else None
        self._clients: dict[Store, Redis] = {}

    async def read_hash(self, source: RedisSource, store: Store | None) -> dict[str, object]:
        """Read the fields that the source names; the caller bounds the time.

        Raises:
            NoAnswer: no such key, or the store can't be reached.
            BadAnswer: no hash, over 64 KiB, or the store refuses.
        """
        client, names = self._client(store), names_read(source.fields)
        sizes = client.pipeline(transaction=False)
        sizes.hlen(source.key)
        for name in names:
            sizes.hstrlen(source.key, name)
        count, *lengths = await _asked(sizes.execute(raise_on_error=False), source)
        for answer in (count, *lengths):
            if isinstance(answer, Exception):
                raise _explained(answer, source)
        if not count:
            raise _no_record(source)
        if sum(lengths) > LARGEST_RECORD:
            raise _too_large(source)
        values = await _asked(client.hmget(source.key, names), source)
        found = zip(names, values, strict=True)
        return {name: _text(value) for name, value in found if value is not None}

    async def read_text(self, source: RedisSource, store: Store | None) -> bytes:
        """Read a string value; raises as ``read_hash`` does."""
        asked = self._client(store).getrange(source.key, 0, LARGEST_RECORD)
        value = await _asked(asked, source)
        if not value:
            raise _no_record(source)
        if len(value) > LARGEST_RECORD:
            raise _too_large(source)
        return value if isinstance(value, bytes) else value.encode()

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    def _client(self, store: Store | None) -> Redis:
        store = store or self._embedded
        if store is None:
            raise BadAnswer("no store is named and no embedded one runs: set source.store")
        if store not in self._clients:
            self._clients[store] = _connected(store)
        return self._clients[store]


def _connected(store: Store) -> Redis:
    """A client without time-outs of its own, and RESP2, which every version of both speaks."""
    settings: dict[str, Any] = dict(parse_url(store.url))
    username = store.username or settings.get("username")
    if store.password is not None:
        settings.pop("username", None)
        settings["credential_provider"] = _Credentials(store.password, username)
    pool = BlockingConnectionPool(
        **settings,
        max_connections=_CONNECTIONS,
        timeout=None,
        socket_timeout=None,
        socket_connect_timeout=None,
        protocol=2,
        driver_info=None,
        retry=Retry(NoBackoff(), 1),
    )
    return Redis.from_pool(pool)


async def _asked(command: Awaitable[T], source: RedisSource) -> T:
    try:
        return await command
    except (exceptions.RedisError, OSError) as problem:
        raise _explained(problem, source) from None


def _explained(problem: Exception, source: RedisSource) -> NoAnswer | BadAnswer:
    """Say what a failure means, in own words: those of the client may repeat what was sent."""
    if isinstance(problem, _Unresolved):
        return BadAnswer(f"the store's password: {problem}")
    for kinds, finding, said in _MEANINGS:
        if isinstance(problem, kinds):
            return finding(said)
    return BadAnswer(_said(str(problem).partition(" ")[0], source))


#: The first that fits: the client's errors are kinds of one another.
_MEANINGS: tuple[tuple[tuple[type[Exception], ...], type[NoAnswer | BadAnswer], str], ...] = (
    (
        (exceptions.AuthenticationError,),
        BadAnswer,
        "the store refuses the password, or wants one: set stores.NAME.password",
    ),
    (
        (exceptions.NoPermissionError, exceptions.AuthorizationError),
        BadAnswer,
        "the store's user may not read this key (hlen, hstrlen, hmget; getrange for JSON)",
    ),
    ((exceptions.BusyLoadingError,), NoAnswer, "the store is loading its data"),
    (
        (exceptions.MovedError, exceptions.AskError),
        BadAnswer,
        "the store is a cluster, and this node does not hold the key",
    ),
    (
        (exceptions.ConnectionError, exceptions.TimeoutError, OSError),
        NoAnswer,
        "the store can't be reached",
    ),
)


def _said(code: str, source: RedisSource) -> str:
    if code == "WRONGTYPE":
        other = "json" if source.format == "hash" else "hash"
        return f'the key {source.key!r} holds no {source.format}: set source.format = "{other}"'
    return f"the store answers with an error ({code if code.isalpha() else 'unknown'})"


def _no_record(source: RedisSource) -> NoAnswer:
    return NoAnswer(f"there is no record under the key {source.key!r}")


def _too_large(source: RedisSource) -> BadAnswer:
    return BadAnswer(
        f"the record under {source.key!r} is over {LARGEST_RECORD // 1024} KiB: no record is"
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
