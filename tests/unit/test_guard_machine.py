"""Whatever comes in whatever order, a server is never restarted more often than its budget says."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet import guard, ledger
from fleet.contracts.guard import (
    CloseRequest,
    GiveBackRequest,
    GuardState,
    OpenRequest,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.sweep import Observation
from fleet.policy import Budget, DailyBudget, RollingBudget
from fleet.readings import Reading
from fleet.verdicts import Verdict

SERVER = "gpu-1"
STEPS = st.one_of(
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(minutes=90)),
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=26)),
    st.just(timedelta(days=9)),
)
CLOCK_ERRORS = st.timedeltas(min_value=timedelta(hours=-3), max_value=timedelta(hours=3))

#: Around these moments the clocks change: a day has 23, 23.5, 24.5 or 25 hours.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 28, 20, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 24, 20, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 2, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 2, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 11, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 11, tzinfo=UTC)),
]


class Ledger(RuleBasedStateMachine):
    """The guard beside a list of what was really granted, kept in the plainest way there is."""

    now: datetime
    budget: Budget

    def begin(self, now: datetime, budget: Budget) -> None:
        self.now = now
        self.budget = budget
        self.state = guard.founded(SERVER)
        self.granted: dict[str, datetime] = {}
        self.long_ago: list[datetime] = []
        self.spent: set[str] = set()
        self.keys = 0

    def advance_to(self, moment: datetime) -> None:
        self.now = max(self.now, moment)
        for key, at in list(self.granted.items()):
            if at <= self.now - ledger.MEMORY:
                self.long_ago.append(self.granted.pop(key))

    @rule()
    def a_new_restart_is_asked_for(self) -> None:
        answer = self._take(self._new_key())
        assert answer.granted or self._in_force() >= self.budget.limit, "refused, with some left"

    @rule(error=CLOCK_ERRORS)
    def one_is_asked_for_by_another_clock(self, error: timedelta) -> None:
        """The activity looked at its clock some time before, or its clock runs ahead or behind."""
        self._take(self._new_key(), error)

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def a_granted_one_is_retried(self, data: st.DataObject) -> None:
        before = dict(self.granted)
        assert self._take(data.draw(st.sampled_from(sorted(self.granted)))).granted
        assert self.granted == before

    @precondition(lambda self: self.spent)
    @rule(data=st.data())
    def a_returned_one_is_retried_late(self, data: st.DataObject) -> None:
        assert not self._take(data.draw(st.sampled_from(sorted(self.spent)))).granted

    @precondition(lambda self: self.granted or self.spent)
    @rule(data=st.data())
    def one_is_given_back(self, data: st.DataObject) -> None:
        """Also what was given back before: that must free nothing more."""
        key = data.draw(st.sampled_from(sorted(self.granted.keys() | self.spent)))
        request = GiveBackRequest(server=SERVER, key=key, proof="refused before it was sent")
        self.state, _ = guard.give_back(self.state, request, self.now)
        self.granted.pop(key, None)
        self.spent.add(key)

    @rule(step=STEPS)
    def time_passes(self, step: timedelta) -> None:
        self.advance_to(self.now + step)

    @rule()
    def the_workflow_continues_as_new(self) -> None:
        before = self.state
        self.state = GuardState.model_validate_json(self.state.model_dump_json())
        assert self.state == before

    @rule()
    def an_incident_is_opened_or_seen_again(self) -> None:
        reading = Reading(server=SERVER, at=self.now)
        seen = Observation(server=SERVER, verdict=Verdict.HUNG, since=self.now, reading=reading)
        request = OpenRequest(server=SERVER, observation=seen)
        self.state, _ = guard.open_incident(self.state, request, self.now)

    @precondition(lambda self: self.state.incident is not None)
    @rule(recovered=st.booleans(), failed=st.booleans())
    def the_incident_is_closed(self, recovered: bool, failed: bool) -> None:
        assert self.state.incident is not None
        request = CloseRequest(
            server=SERVER, incident=self.state.incident.id, recovered=recovered, failed_try=failed
        )
        self.state, _ = guard.close(self.state, request, self.now)

    @rule()
    def the_server_recovers(self) -> None:
        self.state = guard.recovered(self.state, self.now)

    @invariant()
    def lists_are_bounded(self) -> None:
        assert len(self.state.takes) <= ledger.MOST_TAKES
        assert len(self.state.returned) <= ledger.MOST_RETURNED

    def _take(self, key: str, clock_error: timedelta = timedelta(0)) -> TakeResult:
        day = None
        if isinstance(self.budget, DailyBudget):
            day = ledger.local_day(self.budget.per_day_in, self.now + clock_error)
        request = TakeRequest(
            server=SERVER,
            incident=self.state.incident.id if self.state.incident else "",
            key=key,
            budget=self.budget,
            cooldown=timedelta(minutes=10),
            day_start=day[0] if day else None,
            day_end=day[1] if day else None,
        )
        self.state, result = guard.take(self.state, request, self.now)
        if result.granted:
            self.granted.setdefault(key, self.now)
        return result

    def _new_key(self) -> str:
        self.keys += 1
        return f"key-{self.keys:03}"

    def _all(self) -> list[datetime]:
        return [*self.long_ago, *self.granted.values()]

    def _in_force(self) -> int:
        raise AssertionError("each sort of budget counts in its own way")


class RollingLedger(Ledger):
    @initialize(
        limit=st.integers(0, 4),
        window=st.sampled_from([timedelta(hours=h) for h in (1, 24, 24 * 7)]),
    )
    def found(self, limit: int, window: timedelta) -> None:
        self.begin(datetime(2026, 3, 2, 12, tzinfo=UTC), RollingBudget(limit=limit, window=window))

    @invariant()
    def no_window_holds_more_than_the_limit(self) -> None:
        """Every window that matters begins with a take."""
        assert isinstance(self.budget, RollingBudget)
        for start in self._all():
            inside = [at for at in self._all() if start <= at < start + self.budget.window]
            assert len(inside) <= self.budget.limit

    def _in_force(self) -> int:
        assert isinstance(self.budget, RollingBudget)
        return sum(at > self.now - self.budget.window for at in self._all())


class DailyLedger(Ledger):
    @initialize(limit=st.integers(0, 3), change=st.sampled_from(CHANGES))
    def found(self, limit: int, change: tuple[str, datetime]) -> None:
        zone, start = change
        self.begin(start, DailyBudget(limit=limit, per_day_in=zone))

    @rule(off=st.timedeltas(timedelta(minutes=-5), timedelta(minutes=5)))
    def midnight_comes(self, off: timedelta) -> None:
        assert isinstance(self.budget, DailyBudget)
        self.advance_to(ledger.local_day(self.budget.per_day_in, self.now)[1] + off)

    @invariant()
    def no_calendar_day_holds_more_than_the_limit(self) -> None:
        for day in {self._day(at) for at in self._all()}:
            inside = [at for at in self._all() if self._day(at) == day]
            assert len(inside) <= self.budget.limit

    def _in_force(self) -> int:
        return sum(self._day(at) == self._day(self.now) for at in self._all())

    def _day(self, at: datetime) -> date:
        assert isinstance(self.budget, DailyBudget)
        return at.astimezone(ZoneInfo(self.budget.per_day_in)).date()


TestRollingLedger = RollingLedger.TestCase
TestRollingLedger.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestDailyLedger = DailyLedger.TestCase
TestDailyLedger.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
