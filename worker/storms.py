"""``storm-guard`` as a person meets it: what it holds, and a word that ends its suspicion."""

import asyncio
from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict
from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.storms import StormReader
from fleet.config import Fleet
from fleet.contracts.names import STORM_GUARD_ID
from fleet.contracts.storm import Lease, OpenByHand, Opened, StormState, StormUpdate
from fleet.storms import blocked_by
from fleet.suspicion import opens_at
from worker.client import NO_WORKER, PATIENCE
from worker.errors import SetupError

_WITHIN = timedelta(seconds=5)


class LeaseView(BaseModel):
    """Who holds a slot ``since``, or waits for one."""

    model_config = ConfigDict(frozen=True)

    server: str
    since: AwareDatetime
    by_hand: bool = False


class ShardShare(BaseModel):
    """How many servers of a shard count, and are bad, as was last heard ``at``."""

    model_config = ConfigDict(frozen=True)

    shard: int
    at: AwareDatetime
    managed: int
    bad: int
    suspect_since: AwareDatetime | None = None
    good_since: AwareDatetime | None = None


class StormView(BaseModel):
    """``blocked_by`` is empty where restarts are possible. ``until`` is when they are again, if it
    stays good; none where it does not look good yet.
    """

    model_config = ConfigDict(frozen=True)

    at_once: int
    blocked_by: str = ""
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    bad: list[str] = []
    holders: list[LeaseView] = []
    waiting: list[LeaseView] = []
    shards: list[ShardShare] = []


async def storm_view(client: Client, fleet: Fleet) -> StormView:
    """What holds restarts of this fleet back now.

    Raises:
        SetupError: no worker answers.
    """
    try:
        state = await StormReader(client).state(_WITHIN)
    except WorkflowQueryFailedError as problem:
        raise SetupError(NO_WORKER) from problem
    except RPCError as problem:
        if problem.status in (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED):
            raise SetupError(NO_WORKER) from problem
        raise
    return view(state, fleet.storm.at_once(len(fleet.servers)))


def view(state: StormState, at_once: int) -> StormView:
    suspicion = state.suspicion
    return StormView(
        at_once=at_once,
        blocked_by=blocked_by(state),
        since=suspicion.began if suspicion is not None else None,
        until=opens_at(state),
        bad=suspicion.servers if suspicion is not None else [],
        holders=[_lease(lease, lease.granted_at) for lease in state.holders],
        waiting=[_lease(lease, lease.asked_at) for lease in state.waiting],
        shards=[
            ShardShare(
                shard=number,
                at=shard.at,
                managed=shard.managed,
                bad=len(shard.ill),
                suspect_since=shard.suspect_since,
                good_since=shard.good_since,
            )
            for number, shard in sorted(state.shards.items())
        ],
    )


async def open_storm(client: Client, order: OpenByHand) -> Opened:
    """End the suspicion, if there is one.

    Raises:
        SetupError: no worker took the word in time.
    """
    handle = client.get_workflow_handle(STORM_GUARD_ID)
    try:
        async with asyncio.timeout(2 * PATIENCE.total_seconds()):
            answer: Opened = await handle.execute_update(
                StormUpdate.OPEN, order, result_type=Opened
            )
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as late:
        raise SetupError(NO_WORKER) from late
    except WorkflowUpdateFailedError as refused:
        raise SetupError(f"storm-guard did not take the word: {refused.cause}") from refused
    except RPCError as problem:
        if problem.status is RPCStatusCode.NOT_FOUND:
            return Opened()
        raise
    return answer


def _lease(lease: Lease, since: datetime | None) -> LeaseView:
    return LeaseView(server=lease.server, since=since or lease.asked_at, by_hand=lease.by_hand)
