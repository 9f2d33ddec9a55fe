"""The dead man's switch: a URL that hears of steady while the whole fleet is really watched.

Whoever listens there raises the alarm when nothing comes. So nothing is sent on a doubt: a shard
that was not swept lately or has no schedule, a fleet or a Temporal that can't be asked. Every
worker pings, at most once a minute. The URL is a secret: no log line and no error has it.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import httpx
import structlog
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.policies import PolicyReader
from activities.secrets import SecretError, resolve
from activities.web import new_client, why
from fleet.config import SecretRef
from fleet.contracts.fleet import FleetState
from fleet.sharding import shard_count
from worker.sweeps import Shard, SweepReader, stale

PING_EVERY = timedelta(seconds=60)
#: Where the last look sent nothing.
LOOK_EVERY = timedelta(seconds=10)
_PATIENCE = timedelta(seconds=15)

_log = structlog.get_logger(__name__)


class Fleets(Protocol):
    """The part of ``PolicyReader`` that the switch needs."""

    async def state(self) -> FleetState: ...


class Sweeps(Protocol):
    """The part of ``SweepReader`` that the switch needs."""

    async def fetch(self) -> list[Shard]: ...


class DeadMansSwitch:
    """Pings while all is well; ``told`` hears whether each ping arrived."""

    def __init__(
        self,
        fleets: Fleets,
        sweeps: Sweeps,
        told: Callable[[bool], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._fleets, self._sweeps, self._told, self._now = fleets, sweeps, told, now
        self._client = new_client(trust_env=True)
        self._silent = ""
        self._armed = False

    @classmethod
    def on(cls, client: Client, told: Callable[[bool], None]) -> "DeadMansSwitch":
        return cls(PolicyReader(client), SweepReader(client), told)

    async def run(self) -> None:
        """Ping until cancelled."""
        try:
            while True:
                pinged = await self._safely()
                await asyncio.sleep((PING_EVERY if pinged else LOOK_EVERY).total_seconds())
        finally:
            await self._client.aclose()

    async def _safely(self) -> bool:
        try:
            return await self.look()
        except Exception:  # noqa: BLE001 - its silence is what tells
            _log.exception("the dead man's switch failed, and is silent")
            return False

    async def look(self) -> bool:
        """Ping if every shard was swept lately; whether a ping arrived."""
        try:
            state = await self._fleets.state()
            fleet = state.fleet
            if fleet is None or fleet.alerts.dead_mans_switch is None:
                self._say("")
                return False
            expected = shard_count(len(fleet.servers), fleet.fleet.shard_size)
            reason = stale(await self._sweeps.fetch(), expected, self._now())
            self._armed = True
        except (RPCError, ApplicationError, TimeoutError) as problem:
            if not self._armed:
                return False
            reason = f"the sweeps can't be looked at ({type(problem).__name__})"
        else:
            reason = reason or await self._ping(fleet.alerts.dead_mans_switch)
        self._say(reason)
        return not reason

    async def _ping(self, ref: SecretRef) -> str:
        """Why the ping did not arrive; empty where it did."""
        reason = await self._get(ref)
        self._told(not reason)
        return reason

    async def _get(self, ref: SecretRef) -> str:
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                async with self._client.stream("GET", resolve(ref)) as response:
                    status = response.status_code
        except SecretError as problem:
            return f"alerts.dead_mans_switch: {problem}"
        except TimeoutError:
            return f"its URL did not answer in {_PATIENCE.total_seconds():.0f} s"
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            return f"its URL can't be reached: {why(problem)}"
        except Exception as problem:  # noqa: BLE001 - whatever it is, its words may hold the URL
            return f"its URL can't be used ({type(problem).__name__})"
        return "" if httpx.codes.is_success(status) else f"its URL answers {status}"

    def _say(self, reason: str) -> None:
        """Log when it falls silent and when it speaks again, and no more."""
        if bool(reason) != bool(self._silent):
            if reason:
                _log.warning("the dead man's switch is silent", why=reason)
            else:
                _log.info("the dead man's switch is no longer silent")
        self._silent = reason
