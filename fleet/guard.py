"""The ledger and the open incident of one server: every decision of ``guard/<server>``.

Each function takes the state, a request and the moment, and gives the new state with the answer.
They are pure and total: whatever comes in, they answer, and every list that they keep is bounded.

A take is named by its key. A key that was granted stays granted and counts once, so a retried
request is safe. A key that was given back is spent for good: a late retry of the same take can't
book it again, and the next try asks with another key.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from fleet.contracts.guard import (
    CloseRequest,
    CloseResult,
    GiveBackRequest,
    GuardState,
    Hold,
    Incident,
    OpenRequest,
    OpenResult,
    Take,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.names import incident_id
from fleet.durations import show
from fleet.policy import Budget, DailyBudget

#: Longer than any window and than any calendar day; older takes can't matter.
MEMORY = timedelta(days=8)
#: More takes than any budget allows (100) are kept, so that dropping the oldest frees none.
MOST_TAKES = 300
MOST_RETURNED = 300
MOST_TOLD = 50
#: No calendar day anywhere is longer, with an hour or less gained by a change of the clocks.
LONGEST_DAY = timedelta(hours=26)


def founded(server: str) -> GuardState:
    """The state of a guard whose server is new: nothing was taken yet."""
    return GuardState(server=server)


def lost(server: str, now: datetime) -> GuardState:
    """The state of a guard without its history: what can't be read is used up."""
    return GuardState(server=server, lost_at=now)


def local_day(zone: str, now: datetime) -> tuple[datetime, datetime]:
    """The first instants (UTC) of the calendar day at ``now`` in a time zone, and of the next.

    Raises:
        ZoneInfoNotFoundError: there is no such zone on this machine.
    """
    where = ZoneInfo(zone)
    today = now.astimezone(where).date()
    return _midnight(today, where), _midnight(today + timedelta(days=1), where)


def _midnight(day: date, where: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), tzinfo=where).astimezone(UTC)


# --- the ledger ----------------------------------------------------------------------------------


def take(state: GuardState, request: TakeRequest, now: datetime) -> tuple[GuardState, TakeResult]:
    """Take one restart out of the budget, or say why not and when the next is free."""
    state = pruned(state, now)
    limit = request.budget.limit
    counted = _counted(state, request, now)
    if request.key in state.returned:
        why = f"{request.key} was given back and is spent; a new try asks with a new key"
        return state, TakeResult(granted=False, left=max(0, limit - len(counted)), why=why)
    if any(taken.key == request.key for taken in state.takes):
        return state, TakeResult(granted=True, left=max(0, limit - len(counted)))
    if len(counted) >= limit:
        return state, _refusal(state, request, counted, now)
    booked = Take(
        key=request.key,
        at=now,
        cooldown_until=now + request.cooldown,
        incident=request.incident,
        by=request.by[:200],
    )
    state = _with_takes(state, [*state.takes, booked], now)
    state = _restarts(state, request.incident, +1)
    return state, TakeResult(granted=True, left=limit - len(counted) - 1)


def give_back(
    state: GuardState, request: GiveBackRequest, now: datetime
) -> tuple[GuardState, None]:
    """Undo a take of which it is proved that no command was sent. Unknown keys change nothing."""
    state = pruned(state, now)
    booked = next((taken for taken in state.takes if taken.key == request.key), None)
    if booked is None or not request.proof:
        return state, None
    state = _with_takes(state, [taken for taken in state.takes if taken.key != request.key], now)
    returned = [*state.returned, request.key][-MOST_RETURNED:]
    state = state.model_copy(update={"returned": returned})
    return _restarts(state, booked.incident, -1), None


def budget_left(
    state: GuardState, budget: Budget, now: datetime, day: tuple[datetime, datetime] | None = None
) -> int:
    """How many restarts would be granted at ``now``; ``day`` as ``local_day`` gives it."""
    start, end = day if day is not None else (None, None)
    request = TakeRequest(
        server=state.server,
        incident="",
        key="",
        budget=budget,
        cooldown=timedelta(0),
        day_start=start,
        day_end=end,
    )
    return max(0, budget.limit - len(_counted(pruned(state, now), request, now)))


def pruned(state: GuardState, now: datetime) -> GuardState:
    """The state without what can no longer matter."""
    horizon = now - MEMORY
    kept = [t for t in state.takes if t.at > horizon or t.cooldown_until > now]
    lost_at = state.lost_at if state.lost_at is not None and state.lost_at > horizon else None
    return _with_takes(state.model_copy(update={"lost_at": lost_at}), kept, now)


def _with_takes(state: GuardState, takes: Sequence[Take], now: datetime) -> GuardState:
    kept = list(takes[-MOST_TAKES:])
    cooldown = max((t.cooldown_until for t in kept if t.cooldown_until > now), default=None)
    return state.model_copy(update={"takes": kept, "cooldown_until": cooldown})


def _restarts(state: GuardState, incident: str, change: int) -> GuardState:
    kept = state.incident
    if kept is None or kept.id != incident:
        return state
    restarts = max(0, kept.restarts + change)
    return state.model_copy(update={"incident": kept.model_copy(update={"restarts": restarts})})


def _counted(state: GuardState, request: TakeRequest, now: datetime) -> list[datetime]:
    """When the takes were that count now, oldest first; a lost history counts as the limit."""
    moments = [taken.at for taken in state.takes]
    if state.lost_at is not None:
        moments += [state.lost_at] * request.budget.limit
    if isinstance(request.budget, DailyBudget):
        start = _day_start(request, now)
        return sorted(at for at in moments if at >= start)
    return sorted(at for at in moments if at > now - request.budget.window)


def _day_start(request: TakeRequest, now: datetime) -> datetime:
    """Where the calendar day of ``now`` began, or earlier: a doubt counts more, never less.

    The asking activity knows the time zone, but its clock is not the guard's, and its request may
    have waited over midnight.
    """
    if request.day_start is None or request.day_start > now:
        return now - LONGEST_DAY
    if request.day_end is not None and request.day_start < request.day_end <= now:
        return request.day_end
    return request.day_start


def _refusal(
    state: GuardState, request: TakeRequest, counted: Sequence[datetime], now: datetime
) -> TakeResult:
    limit = request.budget.limit
    span = _span(request.budget)
    why = f"{len(counted)} of {limit} restarts {span} are used"
    if state.lost_at is not None and state.lost_at in counted:
        why = (
            f"the ledger's history was lost at {state.lost_at:%Y-%m-%d %H:%M:%S} UTC, so all"
            f" {limit} restarts {span} count as used"
        )
    next_at = _next_at(request, counted, now) if limit else None
    return TakeResult(granted=False, left=0, why=why, next_at=next_at)


def _span(budget: Budget) -> str:
    if isinstance(budget, DailyBudget):
        return f"a day in {budget.per_day_in}"
    return f"in {show(budget.window)}"


def _next_at(request: TakeRequest, counted: Sequence[datetime], now: datetime) -> datetime | None:
    budget = request.budget
    if isinstance(budget, DailyBudget):
        return request.day_end if request.day_end is not None and request.day_end > now else None
    return counted[len(counted) - budget.limit] + budget.window


# --- the incident --------------------------------------------------------------------------------


def open_incident(
    state: GuardState, request: OpenRequest, now: datetime
) -> tuple[GuardState, OpenResult]:
    """Keep the open incident, or found one.

    Where it began, its heartbeat and its job are never reset by what is observed later: duration
    and the dedupe key hang on them. A person's word lifts a hold and the wait for the next try, but
    not the count of failed ones.
    """
    state = pruned(state, now)
    incident = state.incident or _found(state, request, now)
    changes: dict[str, object] = {}
    if request.observation is not None:
        changes["verdict"] = request.observation.verdict
    if request.by_hand:
        changes |= {"hold": None, "hold_mode": None, "next_try_at": None}
    incident = incident.model_copy(update=changes)
    result = OpenResult(
        incident=incident, is_new=state.incident is None, cooldown_until=state.cooldown_until
    )
    return state.model_copy(update={"incident": incident}), result


def _found(state: GuardState, request: OpenRequest, now: datetime) -> Incident:
    seen = request.observation
    since = _first_observed(state, request, now)
    return Incident(
        id=incident_id(state.server, since),
        server=state.server,
        first_observed=since,
        verdict=seen.verdict if seen else None,
        beat=seen.reading.heartbeat if seen else None,
        job=seen.reading.job if seen else None,
    )


def _first_observed(state: GuardState, request: OpenRequest, now: datetime) -> datetime:
    """A late report of an incident that has ended must not share its clock, nor its takes' keys."""
    since = request.observation.since.astimezone(UTC) if request.observation else now
    if state.recovered_at is not None and since <= state.recovered_at:
        return now
    return since


def close(
    state: GuardState, request: CloseRequest, now: datetime
) -> tuple[GuardState, CloseResult]:
    """Book how a run of the open incident ended; of another incident it changes nothing."""
    state = pruned(state, now)
    incident = state.incident
    if incident is None or incident.id != request.incident:
        return state, CloseResult()
    if request.no_effect:
        state = _without_cooldown(state, incident.id, now)
    if request.recovered:
        return state.model_copy(update={"incident": None, "recovered_at": now}), CloseResult()
    if not request.key or request.key != incident.last_close:
        incident = _ended(incident, request, now)
    result = CloseResult(
        next_try_at=incident.next_try_at,
        out_of_tries=incident.hold is Hold.OUT_OF_TRIES,
        failed_tries=incident.failed_tries,
    )
    return state.model_copy(update={"incident": incident}), result


def _without_cooldown(state: GuardState, incident: str, now: datetime) -> GuardState:
    """No command of this incident had an effect, so nothing boots that could look hung."""
    takes = [
        t.model_copy(update={"cooldown_until": t.at}) if t.incident == incident else t
        for t in state.takes
    ]
    return _with_takes(state, takes, now)


def _ended(incident: Incident, request: CloseRequest, now: datetime) -> Incident:
    told = list(dict.fromkeys([*incident.told, *request.told]))[-MOST_TOLD:]
    changes: dict[str, object] = {"told": told, "last_close": request.key}
    if request.hold is not None:
        changes |= {"hold": request.hold, "hold_mode": request.hold_mode, "next_try_at": None}
    if request.failed_try:
        tries = incident.failed_tries + 1
        changes["failed_tries"] = tries
        if tries <= len(request.retry_delays):
            changes["next_try_at"] = now + request.retry_delays[tries - 1]
        else:
            changes |= {"next_try_at": None, "hold": request.hold or Hold.OUT_OF_TRIES}
    return incident.model_copy(update=changes)


def recovered(state: GuardState, at: datetime) -> GuardState:
    """The server was seen healthy: ends the open incident, unless it began later than that."""
    if state.incident is None or at <= state.incident.first_observed:
        return state
    return state.model_copy(update={"incident": None, "recovered_at": at})


def forget_hold(state: GuardState) -> GuardState:
    """Open the incident to automation again."""
    if state.incident is None:
        return state
    free = state.incident.model_copy(update={"hold": None, "hold_mode": None})
    return state.model_copy(update={"incident": free})
