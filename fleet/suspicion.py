"""The observer is the suspect: so much of a shard turned bad at once that nothing is restarted.

Pure functions over the state of ``storm-guard``. A suspicion is of the whole fleet: where what
looks at one shard fails, what it says of the others is worth no more.
"""

from datetime import datetime

from fleet.contracts.fleet import StormTerms
from fleet.contracts.storm import (
    OpenByHand,
    Over,
    ShardView,
    ShareReport,
    StormState,
    Suspicion,
)

#: A fleet has at most so many shards.
_MOST_SHARDS = 2000
_NAMED = 10


def adopt(state: StormState, terms: StormTerms) -> StormState:
    """The state under the terms of the newest fleet; a shard that it no longer has is forgotten."""
    if terms.version < state.terms.version or terms == state.terms:
        return state
    kept = {number: view for number, view in state.shards.items() if number < terms.shards}
    return state.model_copy(update={"terms": terms, "shards": kept})


def hear(state: StormState, report: ShareReport, now: datetime) -> StormState:
    """Take in what a sweep says of its shard; an older report than the last one changes nothing."""
    state = adopt(state, report.terms)
    before = state.shards.get(report.shard)
    if report.shard >= min(state.terms.shards, _MOST_SHARDS):
        return state
    if before is not None and before.at > report.at:
        return state
    view = ShardView(
        at=report.at,
        managed=report.managed,
        ill=report.ill,
        suspect_since=before.suspect_since if before is not None else None,
    )
    bad = turned_bad(view, state, now)
    if is_too_many(len(bad), view.managed, state.terms):
        view = view.model_copy(update={"suspect_since": view.suspect_since or now})
    elif view.suspect_since is not None:
        good_since = (before.good_since if before is not None else None) or now
        view = view.model_copy(update={"good_since": good_since})
    state = state.model_copy(update={"shards": {**state.shards, report.shard: view}})
    if view.suspect_since is None or state.suspicion is not None:
        return state
    return _begin(state, report.shard, bad, view.managed, now)


def turned_bad(view: ShardView, state: StormState, now: datetime) -> list[str]:
    """The servers that are bad, and turned so within one window: of a suspected shard the one
    before it was suspected, and ever since; no matter how long that lasts.
    """
    begin = (view.suspect_since or now) - state.terms.storm.window
    begin = max(begin, state.waived_at) if state.waived_at is not None else begin
    return sorted(server for server, since in view.ill.items() if since >= begin)


def is_too_many(bad: int, managed: int, terms: StormTerms) -> bool:
    return bad >= terms.storm.at_least and bad > terms.storm.share * managed


def opens_at(state: StormState) -> datetime | None:
    """When restarts are allowed again if nothing changes; none where it doesn't look good yet."""
    if state.suspicion is None:
        return None
    suspects = [view for view in state.shards.values() if view.suspect_since is not None]
    good = [view.good_since for view in suspects if view.good_since is not None]
    if len(good) < len(suspects):
        return None
    # The shard may be gone: the fleet was made smaller.
    return max(good, default=state.suspicion.began) + state.terms.storm.cooldown


def passed(state: StormState, now: datetime) -> StormState:
    """The state now: a suspicion ends where the shares have been good for the cooldown."""
    at = opens_at(state)
    return state if at is None or at > now else _end(state, now, OpenByHand())


def open_by_hand(state: StormState, order: OpenByHand, now: datetime) -> StormState:
    """End the suspicion. What is bad by now arouses none again, until it was well in between."""
    if state.suspicion is None:
        return state
    return _end(state, now, order).model_copy(update={"waived_at": now})


def _begin(
    state: StormState, shard: int, bad: list[str], managed: int, now: datetime
) -> StormState:
    suspicion = Suspicion(
        began=now,
        shard=shard,
        bad=len(bad),
        managed=managed,
        servers=bad[:_NAMED],
        page_at=now + state.terms.storm.page_after,
    )
    return unanswered(state).model_copy(update={"suspicion": suspicion, "over": None})


def _end(state: StormState, now: datetime, order: OpenByHand) -> StormState:
    cleared = {
        number: view.model_copy(update={"suspect_since": None, "good_since": None})
        for number, view in state.shards.items()
    }
    over = None
    if state.suspicion is not None and state.suspicion.told:
        over = Over(suspicion=state.suspicion, at=now, who=order.who, why=order.why)
    changes = {"suspicion": None, "shards": cleared, "over": over, "opened_at": now}
    return unanswered(state).model_copy(update=changes)


def unanswered(state: StormState) -> StormState:
    """Everybody is to hear how it stands now."""
    return state.model_copy(
        update={
            "holders": [each.model_copy(update={"answered": False}) for each in state.holders],
            "waiting": [each.model_copy(update={"answered": False}) for each in state.waiting],
        }
    )
