"""Slots to restart in: who holds one, who waits, and what each of them is told.

Pure functions over the state of ``storm-guard``. Slots are leases: they are given back, or freed
when the run that holds them is found closed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heapify, heapreplace

from fleet.contracts.storm import Lease, SlotAsk, SlotFree, SlotWord, StormState
from fleet.durations import brief
from fleet.suspicion import adopt, opens_at, passed

#: A fleet has at most so many servers.
MOST_WAITING = 2000
#: How soon the holders are looked at again while somebody waits for one of their slots; the longer
#: nothing changes, the later.
_LOOKS = (timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=2))
#: How often the terms are asked for while a suspicion lasts.
_ASK_TERMS_EVERY = timedelta(minutes=5)
_NAMED = 3


@dataclass(frozen=True)
class Saying:
    """A word that is to go to the run of a lease."""

    workflow_id: str
    word: SlotWord


def ask(state: StormState, request: SlotAsk, now: datetime) -> StormState:
    """Queue a request, or that of a run that is known already: it keeps its place."""
    state = adopt(state, request.terms)
    asked = Lease(
        server=request.server,
        workflow_id=request.workflow_id,
        run=request.run,
        number=request.number,
        incident=request.incident,
        takes=request.takes,
        by_hand=request.by_hand,
        asked_at=now,
    )
    held = _of(asked, state.holders)
    known = held or _of(asked, state.waiting)
    if known is not None:
        asked = asked.model_copy(update={"asked_at": known.asked_at})
    holders = _without(state.holders, asked.workflow_id)
    waiting = _without(state.waiting, asked.workflow_id)
    if asked.by_hand or (held is not None and state.suspicion is None):
        began = held.granted_at if held is not None else now
        holders.append(asked.model_copy(update={"granted_at": began, "answered": asked.by_hand}))
    elif len(waiting) < MOST_WAITING:
        waiting.insert(_place(asked, state, is_holder=held is not None), asked)
    return state.model_copy(update={"holders": holders, "waiting": waiting})


def free(state: StormState, request: SlotFree) -> StormState:
    """The run no longer holds or waits for a slot."""

    def stays(lease: Lease) -> bool:
        same = lease.holder == (request.workflow_id, request.run)
        return not same or lease.number > request.number

    return state.model_copy(
        update={
            "holders": [lease for lease in state.holders if stays(lease)],
            "waiting": [lease for lease in state.waiting if stays(lease)],
        }
    )


def settle(state: StormState, now: datetime) -> tuple[StormState, list[Saying]]:
    """Grant what is free, and say to everybody who has yet to hear how it stands."""
    state = _granted(passed(state, now), now)
    sayings = [*_to_holders(state), *_to_waiting(state, now)]
    return _answered(state), sayings


def blocked_by(state: StormState) -> str:
    """What blocks every restart; empty where nothing does."""
    suspicion = state.suspicion
    if suspicion is None:
        return ""
    window, shard = brief(state.terms.storm.window), suspicion.shard
    return (
        f"fleet-wide suspicion ({suspicion.bad} of {suspicion.managed} servers of shard {shard}"
        f" turned bad within {window})"
    )


def until(state: StormState, now: datetime) -> datetime:
    """Until when a suspicion blocks, at the earliest."""
    return max(now, opens_at(state) or now + state.terms.storm.cooldown)


def is_look_due(state: StormState, now: datetime) -> bool:
    at = _look_at(state, now)
    return at is not None and at <= now


def next_due(state: StormState, now: datetime) -> datetime | None:
    """When something is to be done though nobody says a word; none where nothing will be."""
    due = [_look_at(state, now), opens_at(state), page_at(state)]
    return min((at for at in due if at is not None), default=None)


def page_at(state: StormState) -> datetime | None:
    """When people are to hear that restarts are (still) blocked, or wait for each other."""
    if state.suspicion is not None:
        return state.suspicion.page_at
    longest = waits_since(state)
    if longest is None:
        return None
    if state.crowd is not None:
        return state.crowd.page_at
    return longest + state.terms.storm.page_after


def waits_since(state: StormState) -> datetime | None:
    """Since when somebody has waited for a slot and nothing else."""
    first = min((lease.asked_at for lease in state.waiting), default=None)
    if first is None or state.suspicion is not None:
        return None
    return max(first, state.opened_at) if state.opened_at is not None else first


def _look_at(state: StormState, now: datetime) -> datetime | None:
    if state.suspicion is not None:
        return (state.looked_at or state.suspicion.began) + _ASK_TERMS_EVERY
    if state.waiting and state.holders:
        wait = _LOOKS[min(state.looks, len(_LOOKS) - 1)]
        return state.looked_at + wait if state.looked_at is not None else now
    return None


def _granted(state: StormState, now: datetime) -> StormState:
    room = max(0, state.terms.at_once - len(state.holders))
    if state.suspicion is not None or not room:
        return state
    granted = [
        lease.model_copy(update={"granted_at": now, "answered": False})
        for lease in state.waiting[:room]
    ]
    if not granted:
        return state
    changes = {"holders": [*state.holders, *granted], "waiting": state.waiting[room:], "looks": 0}
    return state.model_copy(update=changes)


def looked(state: StormState, now: datetime) -> StormState:
    return state.model_copy(update={"looked_at": now, "looks": state.looks + 1})


def _to_holders(state: StormState) -> Iterator[Saying]:
    """A suspicion takes back what is not used yet: whoever has sent the command goes on."""
    by = blocked_by(state)
    for lease in state.holders:
        if not lease.answered and not lease.by_hand:
            yield _say(lease, SlotWord(run="", number=0, granted=not by, by=by))


def _to_waiting(state: StormState, now: datetime) -> Iterator[Saying]:
    turns = _turns(state, now)
    for place, lease in enumerate(state.waiting):
        if lease.answered:
            continue
        if state.suspicion is not None:
            by, at = blocked_by(state), until(state, now)
        else:
            by, at = _limit(state, place), turns[place]
        yield _say(lease, SlotWord(run="", number=0, granted=False, by=by, until=at))


def _say(lease: Lease, word: SlotWord) -> Saying:
    named = word.model_copy(update={"run": lease.run, "number": lease.number})
    return Saying(lease.workflow_id, named)


def _limit(state: StormState, place: int) -> str:
    names = [lease.server for lease in state.holders]
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" * (len(names) > _NAMED))
    before = f"; {place} before it" if place else ""
    return f"the limit of {state.terms.at_once} at once ({shown} now{before})"


def _turns(state: StormState, now: datetime) -> list[datetime]:
    """About when each that waits has its turn, if everybody takes as long as they said."""
    ends = [max(now, (lease.granted_at or now) + lease.takes) for lease in state.holders]
    if not ends:
        return [now] * len(state.waiting)
    heapify(ends)
    turns = []
    for lease in state.waiting:
        turns.append(ends[0])
        heapreplace(ends, ends[0] + lease.takes)
    return turns


def _answered(state: StormState) -> StormState:
    def told(leases: Iterable[Lease]) -> list[Lease]:
        return [
            lease if lease.answered else lease.model_copy(update={"answered": True})
            for lease in leases
        ]

    return state.model_copy(update={"holders": told(state.holders), "waiting": told(state.waiting)})


def _place(asked: Lease, state: StormState, *, is_holder: bool) -> int:
    """Where it stands in the queue. Whoever had a slot is before all that came later."""
    if is_holder:
        return sum(lease.asked_at < asked.asked_at for lease in state.waiting)
    holders = [lease.holder for lease in state.waiting]
    return holders.index(asked.holder) if asked.holder in holders else len(state.waiting)


def _of(wanted: Lease, leases: list[Lease]) -> Lease | None:
    return next((lease for lease in leases if lease.holder == wanted.holder), None)


def _without(leases: list[Lease], workflow_id: str) -> list[Lease]:
    """One server has one run: what an earlier one of it left is gone."""
    return [lease for lease in leases if lease.workflow_id != workflow_id]
