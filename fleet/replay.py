"""Kept readings, judged again on virtual time: what a policy would have restarted, and when.

The judge is the one that sweeps use. What a restart would have changed is in no record, so each
stretch in which a server was bad has one restart at most, and what the server really did goes on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from fleet.contracts.record import Look
from fleet.durations import brief, show
from fleet.findings import Finding
from fleet.judge import Memory
from fleet.ledger import local_day
from fleet.observing import observe
from fleet.policy import DailyBudget, Policy
from fleet.readings import Reading, ReadStatus, WorkState
from fleet.recording import ENGINE, moment
from fleet.verdicts import ACTIONABLE, GOOD, Verdict

#: So many looks before a bad one are known from it: its heartbeat had stood still since then.
_MOST_EARLIER = 2000
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Episode:
    """One stretch in which a server was bad for longer than a blink, under one policy.

    ``first`` is the first bad look, ``confirmed`` the one that counted, ``due`` when the restart
    was to come. ``restarted`` is when it would have come, ``refused`` when the budget would have
    had none left. ``ended`` is the first good look, none where it goes on.
    """

    server: str
    verdict: Verdict
    first: datetime
    confirmed: datetime
    due: datetime
    restarted: datetime | None = None
    refused: datetime | None = None
    ended: datetime | None = None

    def fate(self) -> str:
        """What would have become of it, in words."""
        if self.restarted is not None:
            return f"restart after {brief(self.restarted - self.first)}"
        if self.refused is not None:
            return f"refused after {brief(self.refused - self.first)}: no budget left"
        if self.ended is not None and self.ended <= self.due:
            return f"none: well {brief(self.due - self.ended)} before it was due"
        return "none: not due yet" if self.ended is None else "none: something else was seen"


def by_server(looks: Iterable[Look]) -> dict[str, list[Look]]:
    """Each server's readings, oldest first."""
    ordered = sorted(looks, key=lambda each: (each.server, each.at))
    return {name: list(group) for name, group in groupby(ordered, key=lambda each: each.server)}


def is_of_an_engine(looks: Sequence[Look]) -> bool:
    """Whether a request decided what was wrong, of which no record tells."""
    return any(look.state == ENGINE for look in looks)


def episodes(looks: Sequence[Look], policy: Policy, until: datetime) -> list[Episode]:
    """What would have been done with one server under a policy, from its readings up to then."""
    if not looks:
        return []
    case = _Case(looks[0].server, policy)
    ends: list[Look | None] = [*looks[1:], None]
    for look, following in zip(looks, ends, strict=True):
        end = until if following is None else moment(following.at)
        if following is not None and following.before > 0:
            # Nothing was seen in the gap before the next one.
            end = min(end, moment(following.before) + _MS)
        _Run(case, look, end).show()
    return case.closed()


class _Case:
    """A server on virtual time: what is remembered of it, and what was done to it."""

    def __init__(self, server: str, policy: Policy) -> None:
        self._server, self.policy = server, policy
        self.memory: Memory | None = None
        self.shown: Look | None = None
        self._open: Episode | None = None
        self._takes: list[datetime] = []
        self._cooldown: datetime | None = None
        self._done: list[Episode] = []

    def closed(self) -> list[Episode]:
        return [*self._done, *([self._open] if self._open is not None else [])]

    def see(self, reading: Reading, every: timedelta) -> Finding:
        """Judge one look as a sweep does; ``care`` follows."""
        self.memory, finding = observe(reading, self.memory, self.policy, every)
        return finding

    def care(self, finding: Finding, at: datetime, until: datetime) -> None:
        """Do what is due from this look up to the next one, while nothing else is seen."""
        memory = self.memory
        if memory is None or memory.verdict is None:
            return
        if memory.verdict in GOOD:
            if self._open is not None:
                self._done.append(replace(self._open, ended=at))
                self._open = None
            return
        if memory.verdict not in ACTIONABLE or finding.verdict is not memory.verdict:
            return
        due = memory.since + self.policy.persistence(memory.verdict)
        if self._open is None:
            self._open = Episode(self._server, memory.verdict, memory.since, at, due)
        episode = self._open
        if episode.restarted is not None or episode.refused is not None:
            return
        due = max(due, episode.confirmed, self._cooldown or due)
        self._open = replace(episode, due=due)
        if due < until:
            self._act(max(due, at))

    def _act(self, at: datetime) -> None:
        assert self._open is not None
        if self._left(at) <= 0:
            self._open = replace(self._open, refused=at)
            return
        self._takes.append(at)
        self._cooldown = at + self.policy.cooldown
        self._open = replace(self._open, restarted=at)

    def _left(self, at: datetime) -> int:
        budget = self.policy.budget
        if isinstance(budget, DailyBudget):
            begin, _ = local_day(budget.per_day_in, at)
            used = [take for take in self._takes if take >= begin]
        else:
            used = [take for take in self._takes if take > at - budget.window]
        return budget.limit - len(used)


@dataclass
class _Run:
    """All looks that showed the same: from a kept reading up to the next, ``end`` not included."""

    case: _Case
    look: Look
    end: datetime
    every: timedelta = field(init=False)

    def __post_init__(self) -> None:
        self.every = self.look.every * _MS

    def show(self) -> None:
        case, look = self.case, self.look
        at = moment(look.at)
        if look.before == 0:
            case.memory = None
        elif look.before > 0:
            if case.memory is None:
                case.see(self._well(moment(look.before)), self.every)
            else:
                case.memory = case.memory.model_copy(update={"at": moment(look.before)})
        elif case.shown is None or case.shown.found in GOOD:
            self._lead_up(at)
        case.shown = look
        if look.found in GOOD:
            case.care(case.see(self._reading(at), self.every), at, at + self.every)
        else:
            self._go_on(at)

    def _lead_up(self, at: datetime) -> None:
        """The looks before a bad one. They were not kept, as they were good under the policy of
        then; what they showed is known from the moment on since when the record had not changed.
        """
        case, begin = self.case, self._known_since()
        since = moment(case.shown.at) if case.shown is not None else begin - self.every
        early: list[datetime] = []
        while len(early) < _MOST_EARLIER:
            before = at - (len(early) + 1) * self.every
            if before <= max(begin, since):
                break
            early.append(before)
        well = (early[-1] if early else at) - self.every
        if well > since or case.memory is None:
            case.care(case.see(self._well(well), self.every), well, well)
        if case.memory is not None:
            known = {"moved": _or_none(self.look.moved), "loading": _or_none(self.look.loading)}
            known = {name: at for name, at in known.items() if at is not None and at <= well}
            case.memory = case.memory.model_copy(update=known)
        for before in reversed(early):
            finding = case.see(self._reading(before), self.every)
            case.care(finding, before, before + self.every)

    def _known_since(self) -> datetime:
        look = self.look
        if look.found in (Verdict.STALLED, Verdict.OVERDUE):
            return moment(look.moved or look.loading or look.at)
        if look.beat and not look.moves:
            return moment(min(look.beat, look.at))
        return moment(look.at)

    def _go_on(self, at: datetime) -> None:
        """Look again and again. Where nothing changes any more, go to where a threshold is next."""
        case, calm, last = self.case, 0, None
        while at < self.end:
            finding = case.see(self._reading(at), self.every)
            memory = case.memory
            assert memory is not None
            calm = calm + 1 if (finding.verdict, memory.verdict) == last else 0
            last = (finding.verdict, memory.verdict)
            following = at + self.every
            if calm > 1 and memory.pending is None:
                following = max(following, self._before_change(at, memory))
                case.memory = memory.model_copy(update={"at": following - self.every})
            case.care(finding, at, min(following, self.end))
            at = following

    def _before_change(self, at: datetime, memory: Memory) -> datetime:
        """The last look before something may be judged otherwise."""
        policy, look = self.case.policy, self.look
        moments = [self.end]
        if look.beat and not look.moves:
            beat = moment(look.beat)
            moments += [beat + policy.stale_after, beat + policy.load_limit]
        if memory.moved is not None and policy.stalled_after is not None:
            moments.append(memory.moved + policy.stalled_after)
        if memory.loading is not None:
            moments.append(memory.loading + policy.load_limit)
        following = min(each for each in moments if each > at)
        return at + ((following - at - _MS) // self.every) * self.every

    def _reading(self, at: datetime) -> Reading:
        look = self.look
        if look.status != ReadStatus.OK:
            return Reading(server=look.server, at=at, status=ReadStatus(look.status))
        beat = moment(look.beat) if look.beat else None
        if beat is not None and look.moves:
            beat = at - (moment(look.at) - beat)
        return Reading(
            server=look.server,
            at=at,
            state=WorkState(look.state),
            heartbeat=beat,
            progress=look.progress or None,
            process=look.process or None,
        )

    def _well(self, at: datetime) -> Reading:
        """A look at a server that works, as the one before a bad reading was."""
        shown = self.case.shown
        return Reading(
            server=self.look.server,
            at=at,
            state=WorkState.PROCESSING if self.look.moved else WorkState.IDLE,
            heartbeat=at,
            progress=(self.look.progress or None) if self.look.moved else None,
            process=((shown or self.look).process or None),
        )


def _or_none(at: int) -> datetime | None:
    return moment(at) if at else None


@dataclass(frozen=True)
class Pair:
    """What two policies make of the same stretch; one of them may see none."""

    now: Episode | None
    then: Episode | None

    @property
    def either(self) -> Episode:
        found = self.now or self.then
        assert found is not None
        return found


def paired(now: Sequence[Episode], then: Sequence[Episode], until: datetime) -> list[Pair]:
    """The episodes of one server under two policies, those of the same time together."""
    left = list(then)
    pairs = []
    for episode in now:
        same = next((each for each in left if _overlap(episode, each, until)), None)
        if same is not None:
            left.remove(same)
        pairs.append(Pair(episode, same))
    pairs += [Pair(None, each) for each in left]
    return sorted(pairs, key=lambda pair: pair.either.first)


def _overlap(one: Episode, other: Episode, until: datetime) -> bool:
    return one.first <= (other.ended or until) and other.first <= (one.ended or until)


def unknowable(now: Policy, then: Policy) -> list[str]:
    """What a record of bad readings can't say about a change, in one line each."""
    said = []
    for key in ("stale_after", "stalled_after", "load_limit", "skew_tolerance"):
        old, new = getattr(now, key), getattr(then, key)
        if new is not None and (old is None or new < old):
            below = f"{key} was {show(old)}" if old is not None else f"{key} was off"
            said.append(
                f"{below}: readings that were good under that were not kept, so servers that"
                f" {show(new)} would have found bad, and that got well before, are missing here"
            )
    return said
