"""What people are told of storms: one page a suspicion, and again where restarts stay blocked."""

from datetime import datetime, timedelta
from enum import StrEnum

from fleet.contracts.alerts import AlertAction, AlertMessage, Severity
from fleet.contracts.names import STORM_GUARD_ID, incident_id
from fleet.contracts.storm import Crowd, Over, StormState, Suspicion
from fleet.durations import brief
from fleet.storms import page_at, waits_since

_LONGEST_SPACE = timedelta(hours=24)
_NAMED = 10


class Alarm(StrEnum):
    SUSPICION = "fleet_suspicion"
    STILL_BLOCKED = "still_blocked"
    SLOTS_AWAITED = "slots_awaited"
    OVER = "suspicion_over"


def due(state: StormState, now: datetime) -> dict[Alarm, AlertMessage]:
    """What is to be said now."""
    found: dict[Alarm, AlertMessage] = {}
    at, suspicion, over = page_at(state), state.suspicion, state.over
    if over is not None:
        found[Alarm.OVER] = _over(state, over)
    if suspicion is not None and not suspicion.told:
        found[Alarm.SUSPICION] = _suspicion(state, suspicion)
    elif suspicion is not None and at is not None and at <= now:
        found[Alarm.STILL_BLOCKED] = _still_blocked(state, suspicion, now)
    elif at is not None and at <= now:
        found[Alarm.SLOTS_AWAITED] = _slots_awaited(state, now)
    return found


def told(state: StormState, alarm: Alarm, now: datetime) -> StormState:
    """The state after that was said; what lasts is said again after twice the time."""
    suspicion = state.suspicion
    if alarm is Alarm.OVER:
        return state.model_copy(update={"over": None})
    if alarm is Alarm.SLOTS_AWAITED:
        began = state.crowd.began if state.crowd is not None else waits_since(state) or now
        pages = state.crowd.pages + 1 if state.crowd is not None else 1
        crowd = Crowd(began=began, page_at=_again(began, now), pages=pages)
        return state.model_copy(update={"crowd": crowd})
    if suspicion is None:
        return state
    changes: dict[str, object] = {"told": True}
    if alarm is Alarm.STILL_BLOCKED:
        changes |= {"page_at": _again(suspicion.began, now), "pages": suspicion.pages + 1}
    return state.model_copy(update={"suspicion": suspicion.model_copy(update=changes)})


def calmed(state: StormState, now: datetime) -> StormState:
    """The state without a crowd where nobody has waited for long any more."""
    since = waits_since(state)
    if state.crowd is None or (since is not None and now - since >= state.terms.storm.page_after):
        return state
    return state.model_copy(update={"crowd": None})


def _again(began: datetime, now: datetime) -> datetime:
    return now + min(max(now - began, timedelta(seconds=1)), _LONGEST_SPACE)


def _suspicion(state: StormState, suspicion: Suspicion) -> AlertMessage:
    storm = state.terms.storm
    return _message(
        suspicion.began,
        Alarm.SUSPICION,
        title=(
            f"fleet-wide suspicion: {suspicion.bad} of {suspicion.managed} servers of shard"
            f" {suspicion.shard} turned bad within {brief(storm.window)}"
        ),
        detail=(
            "What they share is more likely broken than all of them: the network, the store of"
            " their heartbeats, steady's own view. Nothing is restarted meanwhile."
            f" Bad are {_names(suspicion.servers, suspicion.bad)}."
        ),
        next_step=(
            f"restarts are possible again when it has looked good for {brief(storm.cooldown)},"
            " or by `steady storm --open`"
        ),
    )


def _still_blocked(state: StormState, suspicion: Suspicion, now: datetime) -> AlertMessage:
    return _message(
        suspicion.began,
        f"{Alarm.STILL_BLOCKED}-{suspicion.pages + 1}",
        title=f"restarts have been blocked for {brief(now - suspicion.began)}",
        action=AlertAction.UPDATE,
        detail=(
            f"Fleet-wide suspicion of shard {suspicion.shard}; {_waiting(state)} for it to end."
        ),
        next_step="`steady storm` shows why; `steady storm --open` ends it",
    )


def _slots_awaited(state: StormState, now: datetime) -> AlertMessage:
    since, crowd = waits_since(state) or now, state.crowd
    holders = [lease.server for lease in state.holders]
    return _message(
        crowd.began if crowd is not None else since,
        f"{Alarm.SLOTS_AWAITED}-{crowd.pages + 1 if crowd is not None else 1}",
        title=f"a restart has waited for its turn for {brief(now - since)}",
        action=AlertAction.UPDATE if crowd is not None else AlertAction.TRIGGER,
        detail=(
            f"{_waiting(state)}; at once may be restarted {state.terms.at_once}:"
            f" now {_names(holders, len(holders))}."
        ),
        next_step="they are restarted one after the other; `steady restart NAME` does not wait",
    )


def _over(state: StormState, over: Over) -> AlertMessage:
    by = f"opened by {over.who}" if over.who else "it has looked good for long enough"
    why = f" ({over.why})" if over.why else ""
    return _message(
        over.suspicion.began,
        Alarm.OVER,
        severity=Severity.NOTICE,
        action=AlertAction.RESOLVE,
        paged=True,
        title="the fleet-wide suspicion is over",
        detail=f"{by}{why}; {_waiting(state)}, to be judged anew.",
    )


def _message(began: datetime, cause: str, **said: object) -> AlertMessage:
    """Of no server: what is said is of the whole fleet."""
    return AlertMessage.model_validate(
        {
            "server": "",
            "incident": incident_id("storm", began),
            "cause": cause,
            "severity": Severity.PAGE,
            "since": began,
            "workflow_id": STORM_GUARD_ID,
            **said,
        }
    )


def _waiting(state: StormState) -> str:
    names = [lease.server for lease in state.waiting]
    if not names:
        return "none waits"
    return f"{_names(names, len(names))} wait{'s' if len(names) == 1 else ''}"


def _names(names: list[str], count: int) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {count - _NAMED} more" if count > _NAMED else shown
