"""The ledger and the open incident of a server, decision by decision."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from fleet import guard, ledger
from fleet.contracts.guard import (
    CloseRequest,
    GiveBackRequest,
    GuardState,
    Hold,
    Incident,
    OpenRequest,
    TakeRequest,
    TakeResult,
)
from fleet.contracts.names import incident_id
from fleet.contracts.sweep import Observation
from fleet.policy import Budget, DailyBudget, Mode, RollingBudget
from fleet.readings import Reading
from fleet.verdicts import Verdict

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(hours=24)
THREE_A_DAY = RollingBudget(limit=3, window=DAY)
DELAYS = [timedelta(0), 5 * MINUTE, 15 * MINUTE, 15 * MINUTE]


def seen(since: datetime = NOON, verdict: Verdict = Verdict.HUNG, job: str = "j1") -> OpenRequest:
    reading = Reading(server="gpu-1", at=since + MINUTE, heartbeat=since - HOUR, job=job)
    observation = Observation(server="gpu-1", verdict=verdict, since=since, reading=reading)
    return OpenRequest(server="gpu-1", observation=observation)


def opened(state: GuardState, request: OpenRequest, now: datetime) -> tuple[GuardState, Incident]:
    state, result = guard.open_incident(state, request, now)
    return state, result.incident


def asked(
    key: str,
    *,
    incident: str = "",
    budget: Budget = THREE_A_DAY,
    day: tuple[datetime, datetime] | None = None,
) -> TakeRequest:
    return TakeRequest(
        server="gpu-1",
        incident=incident,
        key=key,
        budget=budget,
        cooldown=10 * MINUTE,
        day_start=day[0] if day else None,
        day_end=day[1] if day else None,
    )


def taken(
    state: GuardState, key: str, now: datetime, incident: str = ""
) -> tuple[GuardState, TakeResult]:
    return guard.take(state, asked(key, incident=incident), now)


def given_back(state: GuardState, key: str, now: datetime = NOON) -> GuardState:
    proof = GiveBackRequest(server="gpu-1", key=key, proof="connection refused")
    return guard.give_back(state, proof, now)[0]


def with_takes(*moments: datetime) -> GuardState:
    state = guard.founded("gpu-1")
    for number, at in enumerate(moments):
        state, result = taken(state, f"k{number}", at)
        assert result.granted
    return state


class TestTaking:
    def test_grants_until_the_limit_and_says_what_is_left(self) -> None:
        state = guard.founded("gpu-1")
        left = []
        for number in range(3):
            state, result = taken(state, f"k{number}", NOON + number * HOUR)
            left.append((result.granted, result.left))

        assert left == [(True, 2), (True, 1), (True, 0)]

    def test_refuses_the_one_too_many_with_why_and_when_the_next_is_free(self) -> None:
        state = with_takes(NOON, NOON + HOUR, NOON + 2 * HOUR)

        after, result = taken(state, "k3", NOON + 3 * HOUR)

        assert not result.granted
        assert result.why == "3 of 3 restarts in 1d are used"
        assert result.next_at == NOON + DAY
        assert after.takes == state.takes

    def test_frees_a_take_exactly_one_window_later(self) -> None:
        state = with_takes(NOON, NOON + HOUR, NOON + 2 * HOUR)
        just_before = NOON + DAY - timedelta(microseconds=1)

        assert not taken(state, "k3", just_before)[1].granted
        assert taken(state, "k3", NOON + DAY)[1].granted

    def test_counts_a_key_once_however_often_it_is_asked(self) -> None:
        state = guard.founded("gpu-1")
        for minutes in range(50):
            state, result = taken(state, "same", NOON + minutes * MINUTE)
            assert (result.granted, result.left) == (True, 2)

        assert [t.key for t in state.takes] == ["same"]

    def test_keeps_a_granted_key_granted_when_the_budget_has_since_run_out(self) -> None:
        state = with_takes(NOON, NOON + HOUR, NOON + 2 * HOUR)

        assert taken(state, "k1", NOON + 3 * HOUR)[1].granted

    def test_starts_the_cooldown(self) -> None:
        state, _ = taken(guard.founded("gpu-1"), "k0", NOON)

        assert state.cooldown_until == NOON + 10 * MINUTE

    def test_counts_the_restart_in_its_own_incident_only(self) -> None:
        state, incident = opened(guard.founded("gpu-1"), seen(), NOON)
        state, _ = taken(state, "k0", NOON, incident=incident.id)
        state, _ = taken(state, "by hand", NOON, incident="another")

        assert state.incident is not None
        assert state.incident.restarts == 1

    def test_grants_nothing_from_a_budget_of_none(self) -> None:
        request = asked("k0", budget=RollingBudget(limit=0, window=DAY))

        _, result = guard.take(guard.founded("gpu-1"), request, NOON)

        assert (result.granted, result.next_at) == (False, None)

    def test_counts_what_a_smaller_limit_finds_taken(self) -> None:
        state = with_takes(NOON, NOON + HOUR, NOON + 2 * HOUR)
        request = asked("k3", budget=RollingBudget(limit=1, window=DAY))

        _, result = guard.take(state, request, NOON + 3 * HOUR)

        assert not result.granted
        assert result.next_at == NOON + 2 * HOUR + DAY

    def test_treats_a_lost_history_as_used_up_when_it_was_lost(self) -> None:
        state = guard.lost("gpu-1", NOON)

        _, result = taken(state, "k0", NOON + HOUR)

        assert not result.granted
        assert "lost at 2026-03-02 12:00:00 UTC" in result.why
        assert result.next_at == NOON + DAY
        assert taken(state, "k0", NOON + DAY)[1].granted

    def test_never_forgets_a_take_that_a_budget_may_still_count(self) -> None:
        week = RollingBudget(limit=1, window=timedelta(days=7))
        state, _ = guard.take(guard.founded("gpu-1"), asked("k0", budget=week), NOON)
        state = ledger.pruned(state, NOON + timedelta(days=6, hours=23))

        _, result = guard.take(
            state, asked("k1", budget=week), NOON + timedelta(days=6, hours=23, minutes=59)
        )

        assert not result.granted

    def test_keeps_its_lists_bounded(self) -> None:
        small = RollingBudget(limit=100, window=timedelta(seconds=1))
        state = guard.founded("gpu-1")
        for second in range(1000):
            now = NOON + timedelta(seconds=second)
            key = f"k{second}"
            state, result = guard.take(state, asked(key, budget=small), now)
            assert result.granted
            if second % 2:
                state = given_back(state, key, now)

        assert 290 < len(state.takes) <= ledger.MOST_TAKES
        assert len(state.returned) == ledger.MOST_RETURNED
        assert len(state.model_dump_json()) < 100_000


class TestGivingBack:
    def test_frees_the_take_ends_its_cooldown_and_uncounts_the_restart(self) -> None:
        state, incident = opened(guard.founded("gpu-1"), seen(), NOON)
        before = state
        state, _ = taken(state, "k0", NOON, incident=incident.id)

        state = given_back(state, "k0")

        assert (state.takes, state.cooldown_until) == ([], None)
        assert state.incident == before.incident

    def test_leaves_the_cooldown_of_another_take(self) -> None:
        state = with_takes(NOON, NOON + 5 * MINUTE)

        state = given_back(state, "k1", NOON + 6 * MINUTE)

        assert state.cooldown_until == NOON + 10 * MINUTE

    def test_happens_once(self) -> None:
        state, incident = opened(guard.founded("gpu-1"), seen(), NOON)
        state, _ = taken(state, "k0", NOON, incident=incident.id)
        state, _ = taken(state, "k1", NOON, incident=incident.id)

        once = given_back(state, "k0")

        assert given_back(once, "k0") == once
        assert once.incident is not None
        assert once.incident.restarts == 1

    def test_of_an_unknown_key_changes_nothing(self) -> None:
        state = with_takes(NOON)

        assert given_back(state, "never taken") == state

    def test_without_proof_changes_nothing(self) -> None:
        state = with_takes(NOON)

        after, _ = guard.give_back(state, GiveBackRequest(server="gpu-1", key="k0", proof=""), NOON)

        assert after == state

    def test_spends_the_key_so_that_a_late_retry_books_nothing(self) -> None:
        state = given_back(with_takes(NOON), "k0")

        after, result = taken(state, "k0", NOON + MINUTE)

        assert not result.granted
        assert "given back" in result.why
        assert after == state

    def test_leaves_the_next_try_its_budget_under_a_key_of_its_own(self) -> None:
        state = given_back(with_takes(NOON), "k0")

        _, result = taken(state, "k1", NOON + MINUTE)

        assert (result.granted, result.left) == (True, 2)


class TestCalendarDays:
    @pytest.mark.parametrize(
        ("zone", "day", "hours"),
        [
            ("Europe/Berlin", "2026-03-29", 23),
            ("Europe/Berlin", "2026-10-25", 25),
            ("America/New_York", "2026-03-08", 23),
            ("America/New_York", "2026-11-01", 25),
            ("Australia/Lord_Howe", "2026-10-04", 23.5),
            ("Australia/Lord_Howe", "2026-04-05", 24.5),
            ("America/Santiago", "2026-09-06", 23),
            ("America/Santiago", "2026-04-04", 25),
            ("UTC", "2026-03-29", 24),
        ],
    )
    def test_are_as_long_as_the_clocks_make_them(self, zone: str, day: str, hours: float) -> None:
        where = ZoneInfo(zone)
        midday = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=where)

        start, end = ledger.local_day(zone, midday.astimezone(UTC))

        assert end - start == timedelta(hours=hours)
        assert start.astimezone(where).date() == midday.date()
        before = (start - timedelta(microseconds=1)).astimezone(where)
        assert before.date() == midday.date() - timedelta(days=1)
        assert end.astimezone(where).date() == midday.date() + timedelta(days=1)

    def test_open_a_new_budget_at_local_midnight(self) -> None:
        budget = DailyBudget(limit=1, per_day_in="Europe/Berlin")
        evening = datetime(2026, 3, 28, 22, 59, tzinfo=UTC)
        midnight = datetime(2026, 3, 28, 23, 0, tzinfo=UTC)
        today = ledger.local_day("Europe/Berlin", evening)
        state, first = guard.take(
            guard.founded("gpu-1"), asked("k0", budget=budget, day=today), evening
        )
        _, refused = guard.take(state, asked("k1", budget=budget, day=today), evening)

        tomorrow = ledger.local_day("Europe/Berlin", midnight)
        _, second = guard.take(state, asked("k2", budget=budget, day=tomorrow), midnight)

        assert (first.granted, refused.granted, second.granted) == (True, False, True)
        assert refused.next_at == midnight
        assert refused.why == "1 of 1 restarts a day in Europe/Berlin are used"

    def test_are_not_begun_by_a_clock_that_runs_ahead(self) -> None:
        budget = DailyBudget(limit=1, per_day_in="UTC")
        now = datetime(2026, 3, 2, 23, 50, tzinfo=UTC)
        state, _ = guard.take(
            guard.founded("gpu-1"),
            asked("k0", budget=budget, day=ledger.local_day("UTC", now)),
            now,
        )
        ahead = ledger.local_day("UTC", now + 20 * MINUTE)

        _, result = guard.take(state, asked("k1", budget=budget, day=ahead), now + MINUTE)

        assert not result.granted

    def test_are_judged_anew_for_a_request_that_waited_over_midnight(self) -> None:
        budget = DailyBudget(limit=1, per_day_in="UTC")
        evening = datetime(2026, 3, 2, 23, 50, tzinfo=UTC)
        day = ledger.local_day("UTC", evening)
        state, _ = guard.take(guard.founded("gpu-1"), asked("k0", budget=budget, day=day), evening)

        after = evening + 15 * MINUTE
        state, first = guard.take(state, asked("k1", budget=budget, day=day), after)
        _, second = guard.take(state, asked("k2", budget=budget, day=day), after + MINUTE)

        assert (first.granted, second.granted) == (True, False)

    def test_that_nobody_named_count_more_and_never_less(self) -> None:
        budget = DailyBudget(limit=1, per_day_in="UTC")
        state = with_takes(NOON)

        assert not guard.take(state, asked("k1", budget=budget), NOON + DAY)[1].granted


class TestOpening:
    def test_founds_an_incident_from_what_was_observed(self) -> None:
        state, result = guard.open_incident(guard.founded("gpu-1"), seen(), NOON + 5 * MINUTE)

        assert result.is_new
        assert result.incident.id == incident_id("gpu-1", NOON)
        assert result.incident.first_observed == NOON
        assert result.incident.beat == NOON - HOUR
        assert state.incident == result.incident

    def test_keeps_the_clock_and_the_job_of_the_open_incident(self) -> None:
        state, first = opened(guard.founded("gpu-1"), seen(), NOON)
        later = seen(NOON + HOUR, verdict=Verdict.ERROR, job="j2")

        _, result = guard.open_incident(state, later, NOON + HOUR)

        assert not result.is_new
        assert result.incident == first.model_copy(update={"verdict": Verdict.ERROR})

    def test_by_hand_founds_one_at_that_moment(self) -> None:
        request = OpenRequest(server="gpu-1", by_hand=True)

        _, incident = opened(guard.founded("gpu-1"), request, NOON)

        assert (incident.first_observed, incident.verdict) == (NOON, None)

    def test_by_hand_lifts_a_hold_and_the_wait_but_not_the_count_of_failed_tries(self) -> None:
        state, incident = opened(guard.founded("gpu-1"), seen(), NOON)
        for _ in range(len(DELAYS) + 1):
            failed = CloseRequest(
                server="gpu-1", incident=incident.id, failed_try=True, retry_delays=DELAYS
            )
            state, _ = guard.close(state, failed, NOON)

        _, lifted = opened(state, OpenRequest(server="gpu-1", by_hand=True), NOON)

        assert (lifted.hold, lifted.next_try_at) == (None, None)
        assert lifted.failed_tries == len(DELAYS) + 1

    def test_shows_a_running_cooldown_only(self) -> None:
        state = with_takes(NOON)

        during = guard.open_incident(state, seen(), NOON + 9 * MINUTE)[1]
        after = guard.open_incident(state, seen(), NOON + 10 * MINUTE)[1]

        assert (during.cooldown_until, after.cooldown_until) == (NOON + 10 * MINUTE, None)

    def test_never_gives_an_ended_incident_its_clock_and_keys_back(self) -> None:
        """A late report of an ended incident would find its takes granted already, for free."""
        state, ended = opened(guard.founded("gpu-1"), seen(), NOON)
        state, _ = guard.close(
            state, CloseRequest(server="gpu-1", incident=ended.id, recovered=True), NOON + HOUR
        )

        _, founded = opened(state, seen(), NOON + HOUR + MINUTE)

        assert founded.id != ended.id
        assert founded.first_observed == NOON + HOUR + MINUTE

    def test_takes_a_time_of_another_zone_for_what_it_is(self) -> None:
        berlin = seen(NOON.astimezone(ZoneInfo("Europe/Berlin")))

        _, incident = opened(guard.founded("gpu-1"), berlin, NOON)

        assert incident.id == incident_id("gpu-1", NOON)


class TestClosing:
    @pytest.fixture
    def state(self) -> GuardState:
        return opened(guard.founded("gpu-1"), seen(), NOON)[0]

    def ending(self, **facts: object) -> CloseRequest:
        base = {"server": "gpu-1", "incident": incident_id("gpu-1", NOON), "retry_delays": DELAYS}
        return CloseRequest.model_validate({**base, **facts})

    def test_as_recovered_ends_the_incident(self, state: GuardState) -> None:
        state, _ = guard.close(state, self.ending(recovered=True), NOON)

        assert state.incident is None

    def test_with_a_hold_keeps_it_with_its_mode(self, state: GuardState) -> None:
        state, _ = guard.close(state, self.ending(hold=Hold.DRY_RUN, hold_mode=Mode.DRY_RUN), NOON)
        state, _ = guard.close(state, self.ending(told=["resolved"]), NOON)

        assert state.incident is not None
        assert (state.incident.hold, state.incident.hold_mode) == (Hold.DRY_RUN, Mode.DRY_RUN)

    def test_after_failed_tries_spaces_the_next_and_then_holds(self, state: GuardState) -> None:
        answers = []
        for _ in range(5):
            state, result = guard.close(state, self.ending(failed_try=True), NOON)
            answers.append((result.next_try_at, result.out_of_tries, result.failed_tries))

        assert answers == [
            (NOON, False, 1),
            (NOON + 5 * MINUTE, False, 2),
            (NOON + 15 * MINUTE, False, 3),
            (NOON + 15 * MINUTE, False, 4),
            (None, True, 5),
        ]
        assert state.incident is not None
        assert state.incident.hold is Hold.OUT_OF_TRIES

    def test_counts_a_failed_try_once_however_often_it_is_sent(self, state: GuardState) -> None:
        for _ in range(9):
            state, result = guard.close(state, self.ending(failed_try=True, key="run-1/7"), NOON)
            assert (result.failed_tries, result.next_try_at) == (1, NOON)

    def test_remembers_what_was_told_once_and_not_without_end(self, state: GuardState) -> None:
        for number in range(200):
            state, _ = guard.close(state, self.ending(told=["same", f"cause {number}"]), NOON)

        assert state.incident is not None
        assert len(state.incident.told) == guard.MOST_TOLD
        assert state.incident.told[-1] == "cause 199"

    def test_another_incident_than_the_open_one_changes_nothing(self, state: GuardState) -> None:
        other = self.ending(incident="gpu-1@another", recovered=True, failed_try=True)

        after, result = guard.close(state, other, NOON)

        assert after == state
        assert result.failed_tries == 0


class TestRecovery:
    def test_after_the_first_observation_ends_the_incident(self) -> None:
        state, _ = opened(guard.founded("gpu-1"), seen(), NOON)

        assert guard.recovered(state, NOON + MINUTE).incident is None

    def test_seen_before_the_incident_began_proves_nothing(self) -> None:
        state, _ = opened(guard.founded("gpu-1"), seen(), NOON)

        assert guard.recovered(state, NOON) == state

    def test_keeps_the_ledger(self) -> None:
        state, incident = opened(guard.founded("gpu-1"), seen(), NOON)
        state, _ = taken(state, "k0", NOON, incident=incident.id)

        assert guard.recovered(state, NOON + MINUTE).takes == state.takes

    def test_is_not_needed_to_lift_a_hold(self) -> None:
        state, incident = opened(guard.founded("gpu-1"), seen(), NOON)
        cancelled = CloseRequest(server="gpu-1", incident=incident.id, hold=Hold.CANCELLED)
        state, _ = guard.close(state, cancelled, NOON)

        freed = guard.forget_hold(state).incident

        assert freed is not None
        assert (freed.id, freed.hold) == (incident.id, None)
