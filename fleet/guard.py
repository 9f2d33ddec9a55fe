"""The state of ``guard/<server>``: its ledger beside its open incident.

Each function takes the state, a request and the moment, and gives the new state with the answer.
They are pure and total: whatever comes in, they answer, and every list that they keep is bounded.
"""

from datetime import UTC, datetime

from fleet import foreign, ledger
from fleet.contracts.guard import (
    CloseRequest,
    CloseResult,
    GiveBackRequest,
    GuardState,
    Hold,
    Incident,
    InheritRequest,
    OpenRequest,
    OpenResult,
    ResetRequest,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.names import incident_id

MOST_TOLD = 50


def founded(server: str) -> GuardState:
    """The state of a guard whose server is new: nothing was taken yet."""
    return GuardState(server=server)


def lost(server: str, now: datetime) -> GuardState:
    """The state of a guard without its history: what can't be read is used up."""
    return GuardState(server=server, lost_at=now)


def take(state: GuardState, request: TakeRequest, now: datetime) -> tuple[GuardState, TakeResult]:
    """Take one restart out of the budget, or say why not and when the next is free."""
    known = any(taken.key == request.key for taken in state.takes)
    state, result = ledger.take(state, request, now)
    if result.granted and not known:
        state = _restarts(state, request.incident, +1)
    return state, result


def give_back(
    state: GuardState, request: GiveBackRequest, now: datetime
) -> tuple[GuardState, None]:
    """Undo a take of which it is proved that no command was sent. Unknown keys change nothing.

    A new process that it was thought to explain was started by somebody else, then.
    """
    state = ledger.pruned(state, now)
    booked = next((taken for taken in state.takes if taken.key == request.key), None)
    state = ledger.give_back(state, request, now)
    if booked is None or not request.proof:
        return state, None
    if any(booked.seen.values()):
        key = f"{foreign.FOREIGN}/instead of/{booked.key}"
        changes = {
            "key": key,
            "by": foreign.FOREIGN,
            "incident": "",
            "why": "a start beside steady's own",
        }
        state = ledger.with_takes(state, [booked.model_copy(update=changes)], now)
    return _restarts(state, booked.incident, -1), None


def reset(state: GuardState, request: ResetRequest, now: datetime) -> tuple[GuardState, None]:
    """A person clears the ledger."""
    return ledger.reset(state, request, now), None


def inherit(state: GuardState, request: InheritRequest, now: datetime) -> tuple[GuardState, None]:
    """Count what was taken of the same restart while it had another name; however often asked."""
    return ledger.with_takes(state, request.takes, now, lost=request.lost), None


def _restarts(state: GuardState, incident: str, change: int) -> GuardState:
    kept = state.incident
    if kept is None or kept.id != incident:
        return state
    restarts = max(0, kept.restarts + change)
    return state.model_copy(update={"incident": kept.model_copy(update={"restarts": restarts})})


# --- the incident --------------------------------------------------------------------------------


def open_incident(
    state: GuardState, request: OpenRequest, now: datetime
) -> tuple[GuardState, OpenResult]:
    """Keep the open incident, or found one.

    Where it began, its heartbeat and its job are never reset by what is observed later: duration
    and the dedupe key hang on them. A person's word lifts a hold and the wait for the next try, but
    not the count of failed ones.
    """
    state = ledger.pruned(state, now)
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
    state = ledger.pruned(state, now)
    incident = state.incident
    if incident is None or incident.id != request.incident:
        return state, CloseResult()
    if request.process and request.is_ours:
        state = foreign.ours(state, request.process, now)
    if request.no_effect:
        state = ledger.without_cooldown(state, incident.id, now)
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


def _ended(incident: Incident, request: CloseRequest, now: datetime) -> Incident:
    told = list(dict.fromkeys([*incident.told, *request.told]))[-MOST_TOLD:]
    changes: dict[str, object] = {"told": told, "last_close": request.key}
    changes["rung"] = max(incident.rung, request.rung)
    changes["process"] = request.process or incident.process
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
