"""Looking at servers: a record, a status URL or an engine's page each, side by side."""

import asyncio
import traceback
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.answers import BadAnswer, NoAnswer
from activities.engine_pages import EnginePages
from activities.pulse import pulse
from activities.status import StatusPages
from activities.stores import Stores
from fleet.config import EngineSource, RedisSource, ServerSpec, StatusSource
from fleet.contracts.fleet import PresentPolicy, ShardSlice
from fleet.contracts.guard import GuardState
from fleet.contracts.host import HostErrorType
from fleet.contracts.names import ServerRequest
from fleet.contracts.sweep import SweepReadings, SweepRequest
from fleet.durations import show
from fleet.engines.reading import Page
from fleet.policy import Policy
from fleet.readings import Reading, missing, unreadable
from fleet.records import from_json, from_record

_AT_ONCE = 200

#: Time for a whole shard, well within the time-out that `HealthSweep` sets on the activity.
_SHARD_WITHIN = timedelta(seconds=20)

_GUARD_WITHIN = timedelta(seconds=3)

_log = structlog.get_logger()


class Policies(Protocol):
    """The part of ``PolicyReader`` that reading needs."""

    async def present(self, server: str, /) -> PresentPolicy: ...

    async def shard(self, number: int, /) -> ShardSlice: ...


class Guards(Protocol):
    """The part of ``GuardReader`` that reading needs."""

    async def state(self, server: str, /) -> GuardState | None: ...


class ReadingActivities:
    """Activities that read. ``embedded_store`` is the URL of steady's own Valkey, where it runs.

    ``guards`` are asked when steady last restarted an engine whose port is closed.
    """

    def __init__(
        self, policies: Policies, embedded_store: str | None, guards: Guards | None = None
    ) -> None:
        self._policies = policies
        self._guards = guards
        self._stores = Stores(embedded_store)
        self._pages = StatusPages()
        self._engines = EnginePages()

    @activity.defn
    async def read_shard(self, request: SweepRequest) -> SweepReadings:
        """Read every server of a shard; what is wrong with one server is that one's reading."""
        async with pulse():
            slice_ = await self._policies.shard(request.shard)
            slots = asyncio.Semaphore(_AT_ONCE)
            longest = longest_look(len(slice_.specs), slice_.interval)

            async def look(spec: ServerSpec) -> Reading:
                async with slots:
                    return await self._look(spec, longest)

            readings = await asyncio.gather(*(look(spec) for spec in slice_.specs))
        return _gathered(slice_, list(readings))

    @activity.defn
    async def read_server(self, request: ServerRequest) -> Reading:
        """Read one server, as the present policy says.

        Raises:
            ApplicationError: type ``ServerRemoved``; it is not in the fleet. Not retried.
        """
        async with pulse():
            spec = (await self._policies.present(request.server)).spec
            if spec is None:
                raise ApplicationError(
                    f"{request.server} is not in the fleet",
                    type=HostErrorType.REMOVED,
                    non_retryable=True,
                )
            return await self._look(spec)

    async def close(self) -> None:
        """Close the connections to the stores."""
        await self._stores.close()
        await self._pages.close()

    async def _look(self, spec: ServerSpec, longest: timedelta | None = None) -> Reading:
        """Read one server within its source's time-out, and within ``longest``."""
        limit = min(spec.source.timeout, longest or spec.source.timeout)
        if isinstance(spec.source, EngineSource):
            reading = await self._engines.look(spec.name, spec.source, limit)
            return await self._with_restart(reading, spec.policy.load_limit)
        try:
            async with asyncio.timeout(limit.total_seconds()):
                return await self._read(spec)
        except NoAnswer as finding:
            return missing(spec.name, _now(), str(finding))
        except BadAnswer as finding:
            return unreadable(spec.name, _now(), str(finding))
        except TimeoutError:
            return missing(spec.name, _now(), f"no answer within {show(limit)}")
        except Exception as problem:  # noqa: BLE001 - one server's trouble is never the shard's
            kind = type(problem).__name__
            _log.error("a reading failed", server=spec.name, error=kind, place=_place(problem))
            return unreadable(spec.name, _now(), f"steady failed to read it ({kind})")

    async def _with_restart(self, reading: Reading, load_limit: timedelta) -> Reading:
        """Say when steady restarted it, where its port is closed: it may be loading since."""
        engine = reading.engine
        if self._guards is None or engine is None or engine.page is not Page.REFUSED:
            return reading
        try:
            async with asyncio.timeout(_GUARD_WITHIN.total_seconds()):
                guard = await self._guards.state(reading.server)
        except Exception as problem:  # noqa: BLE001 - then it is what it looks like: missing
            _log.warning("a guard was not asked", server=reading.server, error=repr(problem)[:200])
            return reading
        last = _last_restart(guard, reading.at - load_limit) if guard is not None else None
        known = replace(engine, restarted_at=last)
        return replace(reading, engine=known)

    async def _read(self, spec: ServerSpec) -> Reading:
        source = spec.source
        if isinstance(source, StatusSource):
            return from_json(spec.name, await self._pages.read(source), source, _now())
        assert isinstance(source, RedisSource)
        if source.format == "json":
            raw = await self._stores.read_text(source, spec.store)
            return from_json(spec.name, raw, source, _now())
        record = await self._stores.read_hash(source, spec.store)
        return from_record(spec.name, record, source, _now())


def longest_look(servers: int, interval: timedelta) -> timedelta:
    """How long one server may take, so that a shard that hangs as a whole is still read in time."""
    rounds = max(1, -(-servers // _AT_ONCE))
    return min(interval, _SHARD_WITHIN / rounds)


def _last_restart(guard: GuardState, loading_since: datetime) -> datetime | None:
    """When the server was last restarted, if that may be why its port is closed.

    An older restart was followed by a proof that the server works, unless its incident is open.
    """
    last = max(guard.takes, key=lambda take: take.at, default=None)
    if last is None:
        return None
    is_open = guard.incident is not None and guard.incident.id == last.incident
    return last.at if is_open or last.at >= loading_since else None


def _gathered(slice_: ShardSlice, readings: list[Reading]) -> SweepReadings:
    places: dict[Policy, int] = {}
    return SweepReadings(
        interval=slice_.interval,
        version=slice_.version,
        readings=readings,
        policy_of={spec.name: places.setdefault(spec.policy, len(places)) for spec in slice_.specs},
        policies=list(places),
        paused=slice_.paused,
        search_attributes=slice_.search_attributes,
        follows_up=True,
        unmanaged=[spec.name for spec in slice_.specs if spec.restart is None],
        storm=slice_.storm,
        keep_for=slice_.keep_for,
        guarded={
            spec.name: slice_.machines.get(spec.name, "")
            for spec in slice_.specs
            if spec.restart is not None
        },
    )


def _place(problem: Exception) -> str:
    """Where it was raised. What it says may hold a secret, and so may a traceback's variables."""
    frame = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _now() -> datetime:
    return datetime.now(UTC)
