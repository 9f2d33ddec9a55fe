"""Process starts that steady did not order: found, told apart from its own, counted, told once.

A process is named by who sees it: the record (or the engine's page) by a sweep, the host by a
remediation. The two names can't be compared, and neither can their clocks and the guard's, so only
the order of what reaches the guard is used. Each restart in the ledger explains one new process in
each sight. A process that no restart explains was started by somebody else.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from fleet import ledger
from fleet.contracts.alerts import AlertMessage, Severity
from fleet.contracts.guard import GuardState, Sight, StartRequest, StartResult, Take
from fleet.contracts.host import HostState
from fleet.contracts.names import incident_id
from fleet.contracts.sweep import SweepReadings, SweepResult
from fleet.engines.sighting import Sighting
from fleet.judge import Memory

#: Who is said to have taken it.
FOREIGN = "foreign"
CAUSE = "foreign_restart"

#: How long a restart explains a new process that nobody has seen yet. Far longer than any load: in
#: doubt a start is steady's own.
EXPLAINS = timedelta(hours=24)
#: How far apart two sights may see one and the same start.
SAME_START = timedelta(hours=1)
#: People hear of it once in this time: a server in a crash loop has no incident that ends.
TOLD_FOR = timedelta(hours=24)


def started(
    state: GuardState, request: StartRequest, now: datetime
) -> tuple[GuardState, StartResult]:
    """Book a process that is another than the one before it, unless a restart explains it."""
    state = ledger.pruned(state, now)
    if request.ours:
        state = _own(state, request.sight, request.ours, now)
    cause = _known(state, request) or _explanation(state, request, now)
    if cause is None:
        cause = Take(
            key=f"{FOREIGN}/{request.sight}/{request.process}",
            at=now,
            cooldown_until=now + request.cooldown,
            by=FOREIGN,
            why=request.why[:300],
            seen={request.sight: request.process},
        )
        state = _told(ledger.with_takes(state, [cause], now), request, cause, now)
    else:
        state = _seen(state, cause, request.sight, request.process)
    if cause.by != FOREIGN:
        return state, StartResult()
    return state, _answer(state, cause, now)


def _known(state: GuardState, request: StartRequest) -> Take | None:
    return next((t for t in state.takes if t.seen.get(request.sight) == request.process), None)


def _explanation(state: GuardState, request: StartRequest, now: datetime) -> Take | None:
    """The oldest restart whose process this sight has not seen."""
    for taken in state.takes:
        within = SAME_START if taken.by == FOREIGN else EXPLAINS
        if taken.explains and request.sight not in taken.seen and now - taken.at <= within:
            return taken
    return None


def _own(state: GuardState, sight: Sight, process: str, now: datetime) -> GuardState:
    """That process was started by steady's newest restart.

    The ones before it of the same incident have had theirs then, seen or not, and explain no more.
    """
    if any(taken.seen.get(sight) == process for taken in state.takes):
        return state
    own = [t for t in state.takes if t.by != FOREIGN and sight not in t.seen]
    recent = [t for t in own if now - t.at <= EXPLAINS]
    if not recent:
        return state
    newest = max(recent, key=lambda taken: (bool(taken.incident), taken.at))
    for taken in own:
        if taken.incident and taken.incident == newest.incident and taken.at < newest.at:
            state = _seen(state, taken, sight, "")
    return _seen(state, newest, sight, process)


def _seen(state: GuardState, taken: Take, sight: Sight, process: str) -> GuardState:
    seen = taken.model_copy(update={"seen": {**taken.seen, sight: process}})
    takes = [seen if each is taken else each for each in state.takes]
    return state.model_copy(update={"takes": takes})


def _told(state: GuardState, request: StartRequest, booked: Take, now: datetime) -> GuardState:
    """People hear of this start, if it is the first for long and nobody wants it kept from them."""
    last = state.foreign_told
    if request.quiet or (last is not None and now - last.at < TOLD_FOR):
        return state
    return state.model_copy(update={"foreign_told": booked.model_copy(update={"seen": {}})})


def _answer(state: GuardState, cause: Take, now: datetime) -> StartResult:
    told = state.foreign_told
    count = sum(1 for t in state.takes if t.by == FOREIGN and t.at > now - TOLD_FOR)
    return StartResult(
        take=cause,
        tell=told is not None and told.key == cause.key,
        count=count,
        cooldown_until=state.cooldown_until,
    )


def process_of(host: HostState) -> str:
    """The name of the server's own process as its host sees it; "" where the host has none for it.

    Whatever step of the ladder was asked for, it is the same: a stronger step shows what it would
    restart, which is another thing with another name, and no new process.
    """
    if not host.identity or not host.own_start:
        return ""
    return hashlib.sha256(host.own_start.encode(errors="surrogatepass")).hexdigest()[:16]


def ours(state: GuardState, process: str, now: datetime) -> GuardState:
    """The host shows ``process`` for steady's newest restart."""
    return _own(state, Sight.HOST, process, now)


def alert(server: str, result: StartResult) -> AlertMessage | None:
    """What people are told; none where they were, or should not be."""
    if result.take is None or not result.tell:
        return None
    return AlertMessage(
        server=server,
        incident=incident_id(server, result.take.at),
        cause=CAUSE,
        severity=Severity.NOTICE,
        title=f"{server}: another restarter is at work",
        since=result.take.at,
        detail=(
            f"{result.take.why}: steady did not order that start. It counts against the restart"
            f" budget and starts the cooldown; {result.count} such in the last 24 h"
        ),
        next_step=(
            f"let whoever restarts it take its budget first: steady budget take {server};"
            " further ones are counted, and told once a day"
        ),
    )


# --- in a sweep ----------------------------------------------------------------------------------


def starts(
    seen: SweepReadings, before: SweepResult | None, after: Mapping[str, Memory]
) -> Iterator[StartRequest]:
    """The servers whose process is another than the last one that was seen.

    What is seen for the first time is no start; nor is what steady may not restart anyway its
    business.
    """
    for reading in seen.readings:
        server = reading.server
        then = before.servers.get(server) if before is not None else None
        was, now = _process(then), _process(after.get(server))
        if server not in seen.guarded or not was or not now or was == now:
            continue
        policy = seen.policies[seen.policy_of[server]]
        pause = seen.paused.get(server)
        yield StartRequest(
            server=server,
            machine=seen.guarded[server],
            sight=Sight.RECORD,
            process=now,
            cooldown=policy.cooldown,
            quiet=policy.expected_off or (pause is not None and pause.until > reading.at),
            why="a sweep found another process than before",
        )


def with_unreported(
    result: SweepResult, before: SweepResult | None, servers: Iterable[str]
) -> SweepResult:
    """The sweep's result where some starts reached no guard: the next sweep sees them anew."""
    known = before.servers if before is not None else {}
    kept = {
        name: result.servers[name].model_copy(
            update={"process": known[name].process, "engine": known[name].engine}
        )
        for name in servers
        if name in known
    }
    return result.model_copy(update={"servers": {**result.servers, **kept}})


def _process(memory: Memory | None) -> str:
    if memory is None:
        return ""
    sighting = Sighting.decode(memory.engine)
    return memory.process or (sighting.started if sighting is not None else "")
