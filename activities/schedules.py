"""Brings the schedules ``health/<shard>`` and ``probe/<shard>`` in line with the applied fleet."""

from datetime import timedelta

from temporalio import activity
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.pulse import pulse
from fleet.contracts.fleet import ReconcileRequest, ReconcileResult
from fleet.contracts.names import HEALTH_SWEEP, PROBE_SWEEP, health_id, probe_id
from fleet.contracts.sweep import SweepRequest

_RPC_TIMEOUT = timedelta(seconds=10)
_SHORTEST_RUN = timedelta(seconds=20)
#: Sweeps that were missed for longer are not made up: what they would have seen is history.
_CATCH_UP = timedelta(minutes=1)
_NOTE = "kept in line with the fleet by `steady apply`; paused here, nothing of this shard is read"
_PREFIX = health_id(0).removesuffix("0")
_PROBES = probe_id(0).removesuffix("0")
#: Longer than a question to an engine may last; the schedule starts no second run beside it.
_LONGEST_PROBE = timedelta(minutes=25)


class ScheduleActivities:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def reconcile(self, request: ReconcileRequest) -> ReconcileResult:
        """Create what is missing, mend what differs, delete what belongs to no shard.

        A schedule that a person paused stays paused. Doing it twice changes nothing.

        Raises:
            RPCError: Temporal refused or is out of reach; what was done so far stands.
        """
        async with pulse():
            queue = activity.info().task_queue
            for shard in range(request.shards):
                await self._ensure(_sweep(shard, request.interval, queue))
            for shard in request.probes:
                await self._ensure(_probe(shard, request.probe_every, queue))
            unprobed = set(range(request.shards)) - set(request.probes)
            # From the highest down: a run cut short leaves no gap for the next search to stop at.
            for shard in sorted(await self._orphans(request.shards), reverse=True):
                await self._delete(health_id(shard))
                unprobed.add(shard)
            for shard in sorted(unprobed | await self._listed(_PROBES, request.shards)):
                await self._delete(probe_id(shard))
        names = [health_id(n) for n in range(request.shards)]
        return ReconcileResult(schedules=[*names, *map(probe_id, request.probes)])

    async def _ensure(self, wanted: Schedule) -> None:
        assert isinstance(wanted.action, ScheduleActionStartWorkflow)
        name = wanted.action.id
        handle = self._client.get_schedule_handle(name)
        there = await _described(handle)
        if there is None:
            await self._client.create_schedule(name, wanted, rpc_timeout=_RPC_TIMEOUT)
        elif not await self._is_same(there, wanted):
            await handle.update(lambda now: _mended(now, wanted), rpc_timeout=_RPC_TIMEOUT)

    async def _is_same(self, there: Schedule, wanted: Schedule) -> bool:
        old, new = there.action, wanted.action
        if not isinstance(old, ScheduleActionStartWorkflow):
            return False
        assert isinstance(new, ScheduleActionStartWorkflow)
        return (
            _essence(there) == _essence(wanted)
            and (old.workflow, old.task_queue) == (new.workflow, new.task_queue)
            and (old.id, old.run_timeout) == (new.id, new.run_timeout)
            and list(old.args) == await self._client.data_converter.encode(new.args)
        )

    async def _orphans(self, shards: int) -> set[int]:
        """Listing lags behind; asking one by one does not, but stops at a gap. Both together."""
        found = await self._listed(_PREFIX, shards)
        shard = shards
        while await _described(self._client.get_schedule_handle(health_id(shard))) is not None:
            found.add(shard)
            shard += 1
        return found

    async def _listed(self, prefix: str, shards: int) -> set[int]:
        """The numbers of the schedules of a kind that belong to no shard any more."""
        found = set()
        async for entry in await self._client.list_schedules(rpc_timeout=_RPC_TIMEOUT):
            number = entry.id.removeprefix(prefix)
            if entry.id.startswith(prefix) and number.isdecimal() and int(number) >= shards:
                found.add(int(number))
        return found

    async def _delete(self, name: str) -> None:
        try:
            await self._client.get_schedule_handle(name).delete(rpc_timeout=_RPC_TIMEOUT)
        except RPCError as problem:
            if problem.status is not RPCStatusCode.NOT_FOUND:
                raise


async def _described(handle: ScheduleHandle) -> Schedule | None:
    try:
        return (await handle.describe(rpc_timeout=_RPC_TIMEOUT)).schedule
    except RPCError as problem:
        if problem.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


def _sweep(shard: int, interval: timedelta, task_queue: str) -> Schedule:
    action = ScheduleActionStartWorkflow(
        HEALTH_SWEEP,
        SweepRequest(shard=shard),
        id=health_id(shard),
        task_queue=task_queue,
        run_timeout=max(_SHORTEST_RUN, 2 * interval),
        static_summary=f"sweep of shard {shard}",
    )
    return _schedule(action, interval)


def _probe(shard: int, interval: timedelta, task_queue: str) -> Schedule:
    action = ScheduleActionStartWorkflow(
        PROBE_SWEEP,
        SweepRequest(shard=shard),
        id=probe_id(shard),
        task_queue=task_queue,
        run_timeout=max(_LONGEST_PROBE, interval),
        static_summary=f"idle engines of shard {shard} are asked",
    )
    return _schedule(action, interval)


def _schedule(action: ScheduleActionStartWorkflow, interval: timedelta) -> Schedule:
    return Schedule(
        action=action,
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=interval)]),
        state=ScheduleState(note=_NOTE),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CATCH_UP),
    )


def _mended(now: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate:
    wanted.state = now.description.schedule.state
    return ScheduleUpdate(schedule=wanted)


def _essence(schedule: Schedule) -> tuple[object, ...]:
    spec, policy = schedule.spec, schedule.policy
    return (
        [(interval.every, interval.offset or timedelta(0)) for interval in spec.intervals],
        len(spec.calendars),
        policy.overlap,
        policy.catchup_window,
    )
