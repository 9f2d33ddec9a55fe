"""``fleet``: the applied fleet, versioned, with its pauses; it says what is in force."""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.guards import GuardActivities
    from activities.schedules import ScheduleActivities
    from fleet import lineage
    from fleet.actions import machine
    from fleet.apply import Change, check, compare
    from fleet.config import EngineSource, Fleet, ServerSpec
    from fleet.contracts.fleet import (
        AlertSettings,
        ApplyRequest,
        ApplyResult,
        FleetQuery,
        FleetState,
        FleetUpdate,
        FoundingRequest,
        Pause,
        PauseRequest,
        PresentPolicy,
        ReconcileRequest,
        ShardSlice,
        StormTerms,
    )
    from fleet.contracts.names import FLEET, ServerRequest
    from fleet.contracts.sweep import SweepRequest
    from fleet.details import many, page, plain, utc
    from fleet.durations import show
    from fleet.routed import gateways
    from fleet.sharding import members, shard_count

_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=5,
)
_STEP = timedelta(minutes=5)
_IN_ALL = timedelta(minutes=15)
_HEARTBEAT = timedelta(seconds=60)
_LONGEST_PAUSE = timedelta(days=30)


@workflow.defn(name=FLEET)
class FleetWorkflow:
    @workflow.init
    def __init__(self, carried: FleetState | None = None) -> None:
        self._state = carried or FleetState()
        self._lock = asyncio.Lock()
        self._show()

    @workflow.run
    async def run(self, _carried: FleetState | None = None) -> None:
        await workflow.wait_condition(
            lambda: (
                workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()
            )
        )
        workflow.continue_as_new(self._state)

    # --- what a person changes -------------------------------------------------------------------

    @workflow.update(name=FleetUpdate.APPLY)
    async def apply(self, request: ApplyRequest) -> ApplyResult:
        """Put a fleet in force.

        In this order: guards for the new servers, so that none is found without one; the fleet
        itself; the schedules, so that none runs for a fleet that is not stored. Where the last step
        fails the fleet is in force and the caller is told so: applying it again repairs that.
        """
        # Two applies side by side would leave the schedules of one with the fleet of the other.
        async with self._lock:
            change = compare(self._state.fleet, request.fleet)
            founding = lineage.founding(self._state, request.fleet, workflow.now())
            founded: list[str] = []
            if change.added or (request.founds_all and (founding.heirs or founding.machines)):
                founded = await self._found(founding, "nothing was changed")
            self._store(request, change, founded)
            if request.founds_all and founding.heirs:
                # Until now the old names could be restarted: what they took meanwhile counts too.
                again = FoundingRequest(servers=[], heirs=founding.heirs)
                await self._found(again, f"version {self._state.version} is in force")
            schedules = await self._reconcile(request.fleet)
        return ApplyResult(
            version=self._state.version,
            changed=change.anything,
            added=change.added,
            removed=change.removed,
            altered=change.altered,
            schedules=schedules,
        )

    @apply.validator
    def _may_apply(self, request: ApplyRequest) -> None:
        check(request.fleet)

    @workflow.update(name=FleetUpdate.PAUSE)
    def pause(self, request: PauseRequest) -> Pause | None:
        """Pause, or resume where there is no span: then the answer is none. Pausing replaces."""
        now = workflow.now()
        pause = None
        if request.span is not None:
            pause = Pause(until=now + request.span, who=request.who[:200], why=request.why[:500])
        changes: dict[str, object] = {"pauses": _running(self._state.pauses, now)}
        if request.server is None:
            changes["fleet_pause"] = pause
        else:
            kept = {
                n: p for n, p in _running(self._state.pauses, now).items() if n != request.server
            }
            changes["pauses"] = kept if pause is None else {**kept, request.server: pause}
        self._state = self._state.model_copy(update=changes)
        self._show()
        return pause

    @pause.validator
    def _may_pause(self, request: PauseRequest) -> None:
        fleet = self._fleet()
        if request.server is not None and request.server not in fleet.servers:
            raise ValueError(f"there is no server {request.server!r} in the fleet")
        if request.span is not None and not timedelta(0) < request.span <= _LONGEST_PAUSE:
            raise ValueError(
                f"a pause of {show(request.span)} is out of range: up to {show(_LONGEST_PAUSE)};"
                ' for longer, set mode = "alert_only" in the fleet file'
            )

    # --- what others ask -------------------------------------------------------------------------

    @workflow.query(name=FleetQuery.STATE)
    def state(self) -> FleetState:
        return self._state

    @workflow.query(name=FleetQuery.PRESENT)
    def present(self, request: ServerRequest) -> PresentPolicy:
        """A query sees the time of this workflow's last event: who asks judges ``pause.until``."""
        fleet = self._fleet()
        spec = fleet.spec(request.server) if request.server in fleet.servers else None
        return PresentPolicy(
            version=self._state.version,
            spec=spec,
            pause=self._pause_of(request.server),
            temporal_ui=fleet.fleet.temporal_ui,
            search_attributes=self._state.search_attributes,
            sweep_every=fleet.fleet.sweep_every,
            machine=self._guarded(spec),
            storm=self.storm(),
            gateways=gateways(fleet, request.server),
        )

    @workflow.query(name=FleetQuery.STORM)
    def storm(self) -> StormTerms:
        fleet = self._fleet()
        return StormTerms(
            version=self._state.version,
            servers=len(fleet.servers),
            shards=_shards(fleet),
            storm=fleet.storm,
        )

    @workflow.query(name=FleetQuery.SHARD)
    def shard(self, request: SweepRequest) -> ShardSlice:
        """The servers of a shard; none where the fleet has no such shard any more."""
        fleet = self._fleet()
        names = members(fleet.servers, request.shard, _shards(fleet))
        pauses = {name: self._pause_of(name) for name in names}
        specs = [fleet.spec(name) for name in names]
        guarded = {spec.name: self._guarded(spec) for spec in specs}
        return ShardSlice(
            version=self._state.version,
            interval=fleet.fleet.sweep_every,
            probe_every=fleet.fleet.probe_every,
            specs=specs,
            paused={name: pause for name, pause in pauses.items() if pause is not None},
            search_attributes=self._state.search_attributes,
            storm=self.storm(),
            keep_for=fleet.fleet.keep_readings,
            machines={name: each for name, each in guarded.items() if each is not None},
        )

    @workflow.query(name=FleetQuery.ALERTS)
    def alerts(self) -> AlertSettings:
        fleet = self._fleet()
        return AlertSettings(
            alerts=fleet.alerts,
            fleet_name=fleet.fleet.name,
            temporal_ui=fleet.fleet.temporal_ui,
        )

    # --- inside ----------------------------------------------------------------------------------

    async def _found(self, founding: FoundingRequest, so_far: str) -> list[str]:
        """Start guards, and return the machines that have one now."""
        try:
            result = await workflow.execute_activity_method(
                GuardActivities.found_guards,
                founding,
                start_to_close_timeout=_STEP,
                schedule_to_close_timeout=_IN_ALL,
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=_RETRY,
                summary=_founds(founding),
            )
        except ActivityError as problem:
            raise ApplicationError(
                f"{so_far}: the guards of new servers could not be started"
                f" ({_cause(problem)}); apply again",
                type="ApplyFailed",
            ) from problem
        return result.machines if result is not None else []

    async def _reconcile(self, fleet: Fleet) -> list[str]:
        shards = _shards(fleet)
        try:
            result = await workflow.execute_activity_method(
                ScheduleActivities.reconcile,
                ReconcileRequest(
                    shards=shards,
                    interval=fleet.fleet.sweep_every,
                    probes=_probed(fleet),
                    probe_every=fleet.fleet.probe_every,
                ),
                start_to_close_timeout=_STEP,
                schedule_to_close_timeout=_IN_ALL,
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=_RETRY,
                summary=(
                    f"bring the schedules of {many(shards, 'shard')} in line,"
                    f" every {show(fleet.fleet.sweep_every)}"
                ),
            )
        except ActivityError as problem:
            raise ApplicationError(
                f"version {self._state.version} is in force, but its schedules could not be"
                f" brought in line ({_cause(problem)}); apply again to repair that",
                type="ApplyIncomplete",
            ) from problem
        return result.schedules

    def _store(self, request: ApplyRequest, change: Change, founded: list[str]) -> None:
        now = workflow.now()
        pauses = _running(self._state.pauses, now)
        machines = list(dict.fromkeys([*self._state.machines, *founded]))
        changes: dict[str, object] = {
            "departed": lineage.departed(self._state, request.fleet, now),
            "machines": machines[-lineage.MOST_MACHINES :],
            "search_attributes": request.search_attributes,
            "pauses": {n: p for n, p in pauses.items() if n in request.fleet.servers},
        }
        if change.anything:
            version = self._state.version + 1
            changes |= {"fleet": request.fleet, "version": version, "applied_at": now}
        self._state = self._state.model_copy(update=changes)
        self._show()

    def _fleet(self) -> Fleet:
        if self._state.fleet is None:
            raise ApplicationError("no fleet has been applied yet", type="NoFleet")
        return self._state.fleet

    def _guarded(self, spec: ServerSpec | None) -> str | None:
        """The server's machine, where that has a guard."""
        name = machine(spec.host) if spec is not None and spec.host is not None else None
        return name if name in self._state.machines else None

    def _pause_of(self, server: str) -> Pause | None:
        """Of the server's own pause and the fleet's, the one that lasts longer."""
        own = self._state.pauses.get(server)
        both = [pause for pause in (own, self._state.fleet_pause) if pause is not None]
        now = workflow.now()
        return max((p for p in both if p.until > now), key=lambda p: p.until, default=None)

    def _show(self) -> None:
        workflow.set_current_details(_markdown(self._state, workflow.now()))


def _shards(fleet: Fleet) -> int:
    return shard_count(len(fleet.servers), fleet.fleet.shard_size)


def _probed(fleet: Fleet) -> list[int]:
    """The shards with an engine that may be asked while it is idle."""
    probed = {
        name
        for name, server in fleet.servers.items()
        if isinstance(server.source, EngineSource) and server.source.probe
    }
    count = _shards(fleet)
    return [n for n in range(count) if probed.intersection(members(fleet.servers, n, count))]


def _running(pauses: dict[str, Pause], now: datetime) -> dict[str, Pause]:
    return {name: pause for name, pause in pauses.items() if pause.until > now}


def _founds(founding: FoundingRequest) -> str:
    """Who is given a guard, in one line of the history."""
    parts = {
        "new server": [*founding.servers, *founding.returning],
        "renamed server": [*founding.heirs],
        "machine": [*founding.machines],
    }
    of = [many(len(names), what) for what, names in parts.items() if names]
    return f"start the guards of {', '.join(of)}"


def _cause(problem: ActivityError) -> str:
    return str(problem.cause or problem)[:500]


def _markdown(state: FleetState, now: datetime) -> str:
    if state.fleet is None:
        return "No fleet has been applied yet: `steady apply FILE`."
    fleet, section = state.fleet, state.fleet.fleet
    applied = f", applied {utc(state.applied_at)}" if state.applied_at is not None else ""
    lines = [
        f"**{section.name}**, version {state.version}{applied}",
        "",
        f"- {many(len(fleet.servers), 'server')} in {many(_shards(fleet), 'shard')}",
        f"- a sweep every {show(section.sweep_every)}",
    ]
    if state.fleet_pause is not None and state.fleet_pause.until > now:
        lines.append(f"- **the whole fleet is paused** {_pause(state.fleet_pause)}")
    running = _running(state.pauses, now)
    rows = [_server(fleet, name, running.get(name)) for name in sorted(fleet.servers)]
    return page([*lines, "", "**Servers**", ""], rows)


def _server(fleet: Fleet, name: str, pause: Pause | None) -> str:
    spec = fleet.spec(name)
    kinds = ", then ".join(step.action.kind for step in spec.steps)
    restart = f"restart by {kinds}" if kinds else "no restart"
    paused = f", **paused** {_pause(pause)}" if pause is not None else ""
    return f"- `{name}`: mode {spec.policy.mode}, {restart}{paused}"


def _pause(pause: Pause) -> str:
    who = plain(pause.who or "somebody")
    return f"until {utc(pause.until)} by {who}: {plain(pause.why or 'no reason given')}"
