"""A ledger of restarts: the part that the guard of a server and the guard of a machine share.

A take is named by its key. A key that was granted stays granted and counts once, so a retried
request is safe. A key that was given back is spent for good: a late retry of the same take can't
book it again, and the next try asks with another key.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo

from fleet.contracts.guard import (
    Claim,
    GiveBackRequest,
    Ledger,
    Reset,
    ResetRequest,
    Take,
    TakeResult,
)
from fleet.durations import show
from fleet.policy import Budget, DailyBudget

#: Longer than any window and than any calendar day; older takes can't matter.
MEMORY = timedelta(days=8)
#: More takes than any budget allows (100) are kept, so that dropping the oldest frees none.
MOST_TAKES = 300
MOST_RETURNED = 300
MOST_RESETS = 20
#: No calendar day anywhere is longer, with an hour or less gained by a change of the clocks.
LONGEST_DAY = timedelta(hours=26)

Kept = TypeVar("Kept", bound=Ledger)


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


def take(state: Kept, request: Claim, now: datetime, server: str = "") -> tuple[Kept, TakeResult]:
    """Take one restart out of the budget, or say why not and when the next is free."""
    state = pruned(state, now)
    limit = request.budget.limit
    used = counted(state, request, now)
    left = max(0, limit - len(used))
    if request.key in state.returned:
        why = f"{request.key} was given back and is spent; a new try asks with a new key"
        return state, TakeResult(granted=False, left=left, why=why)
    if any(taken.key == request.key for taken in state.takes):
        return state, TakeResult(granted=True, left=left)
    if not left:
        refused = refusal(state, request, used, now)
        return state.model_copy(update={"refused": state.refused + 1}), refused
    if request.heeds_cooldown and state.cooldown_until is not None:
        return state, _cooling(state.cooldown_until, left)
    booked = Take(
        key=request.key,
        at=now,
        cooldown_until=now + request.cooldown,
        incident=request.incident,
        by=request.by[:200],
        why=request.why[:300],
        server=server,
    )
    return _with(state, [*state.takes, booked], now), TakeResult(granted=True, left=left - 1)


def give_back(state: Kept, request: GiveBackRequest, now: datetime) -> Kept:
    """Undo a take of which it is proved that no command was sent. Unknown keys change nothing."""
    state = pruned(state, now)
    if not request.proof or all(taken.key != request.key for taken in state.takes):
        return state
    state = _with(state, [taken for taken in state.takes if taken.key != request.key], now)
    returned = [*state.returned, request.key][-MOST_RETURNED:]
    return state.model_copy(update={"returned": returned})


def reset(state: Kept, request: ResetRequest, now: datetime) -> Kept:
    """What was used up or lost until now counts no longer; it stays in the ledger, and so does who
    said so. A cooldown goes on.
    """
    state = pruned(state, now)
    if any(each.key == request.key for each in state.resets):
        return state
    said = Reset(at=now, who=request.who[:200], why=request.why[:300], key=request.key)
    resets = [*state.resets, said][-MOST_RESETS:]
    return state.model_copy(update={"lost_at": None, "resets": resets})


def with_takes(state: Kept, takes: Iterable[Take], now: datetime, *, lost: bool = False) -> Kept:
    """The ledger with takes of others in it, each once. ``lost``: some can't be read.

    Two servers may have used the same key, each for a restart of its own.
    """
    both = {(taken.key, taken.at): taken for taken in [*takes, *state.takes]}
    lost_at = now if lost else state.lost_at
    together = sorted(both.values(), key=lambda taken: taken.at)
    return pruned(_with(state.model_copy(update={"lost_at": lost_at}), together, now), now)


def budget_left(
    state: Ledger, budget: Budget, now: datetime, day: tuple[datetime, datetime] | None = None
) -> int:
    """How many restarts would be granted at ``now``; ``day`` as ``local_day`` gives it."""
    start, end = day if day is not None else (None, None)
    request = Claim(
        server="",
        incident="",
        key="",
        budget=budget,
        cooldown=timedelta(0),
        day_start=start,
        day_end=end,
    )
    return max(0, budget.limit - len(counted(pruned(state, now), request, now)))


def pruned(state: Kept, now: datetime) -> Kept:
    """The state without what can no longer matter."""
    horizon = now - MEMORY
    kept = [t for t in state.takes if t.at > horizon or t.cooldown_until > now]
    lost_at = state.lost_at if state.lost_at is not None and state.lost_at > horizon else None
    return _with(state.model_copy(update={"lost_at": lost_at}), kept, now)


def _with(state: Kept, takes: Sequence[Take], now: datetime) -> Kept:
    kept = list(takes[-MOST_TAKES:])
    cooldown = max((t.cooldown_until for t in kept if t.cooldown_until > now), default=None)
    return state.model_copy(update={"takes": kept, "cooldown_until": cooldown})


def without_cooldown(state: Kept, incident: str, now: datetime) -> Kept:
    """No command of this incident had an effect, so nothing boots that could look hung."""
    own = [t for t in state.takes if t.incident == incident]
    takes = [
        t.model_copy(update={"cooldown_until": t.at, "explains": t.explains and t is not own[-1]})
        if t.incident == incident
        else t
        for t in state.takes
    ]
    return _with(state, takes, now)


def counted(state: Ledger, request: Claim, now: datetime) -> list[datetime]:
    """When the takes were that count now, oldest first; a lost history counts as the limit."""
    since = max((each.at for each in state.resets), default=None)
    moments = [taken.at for taken in state.takes if since is None or taken.at > since]
    if state.lost_at is not None:
        moments += [state.lost_at] * request.budget.limit
    if isinstance(request.budget, DailyBudget):
        start = _day_start(request, now)
        return sorted(at for at in moments if at >= start)
    return sorted(at for at in moments if at > now - request.budget.window)


def _day_start(request: Claim, now: datetime) -> datetime:
    """Where the calendar day of ``now`` began, or earlier: a doubt counts more, never less.

    The asking activity knows the time zone, but its clock is not the guard's, and its request may
    have waited over midnight.
    """
    if request.day_start is None or request.day_start > now:
        return now - LONGEST_DAY
    if request.day_end is not None and request.day_start < request.day_end <= now:
        return request.day_end
    return request.day_start


def refusal(state: Ledger, request: Claim, used: Sequence[datetime], now: datetime) -> TakeResult:
    """Why nothing is left where these takes count, and when the next one is free."""
    limit = request.budget.limit
    stretch = span(request.budget)
    why = f"{len(used)} of {limit} restarts {stretch} are used"
    if state.lost_at is not None and state.lost_at in used:
        why = (
            f"the ledger's history was lost at {state.lost_at:%Y-%m-%d %H:%M:%S} UTC, so all"
            f" {limit} restarts {stretch} count as used"
        )
    next_at = _next_at(request, used, now) if limit else None
    return TakeResult(granted=False, left=0, why=why, next_at=next_at)


def _cooling(until: datetime, left: int) -> TakeResult:
    why = f"an earlier restart cools down until {until:%Y-%m-%d %H:%M:%S} UTC"
    return TakeResult(granted=False, left=left, why=why, next_at=until, cooling_until=until)


def span(budget: Budget) -> str:
    """The stretch of time that a budget is for, in words."""
    if isinstance(budget, DailyBudget):
        return f"a day in {budget.per_day_in}"
    return f"in {show(budget.window)}"


def _next_at(request: Claim, counted: Sequence[datetime], now: datetime) -> datetime | None:
    budget = request.budget
    if isinstance(budget, DailyBudget):
        return request.day_end if request.day_end is not None and request.day_end > now else None
    return counted[len(counted) - budget.limit] + budget.window
