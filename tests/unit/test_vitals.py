"""Whether a worker works, judged by what it did: every clock here is the test's."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from fleet.contracts.sweep import SweepResult
from worker.sweeps import Shard
from worker.vitals import Limits, Vitals

LIMITS = Limits(loop=5, temporal=30, polls=150, margin=30)
BEGIN = datetime(2026, 11, 30, 10, tzinfo=UTC)
EVERY = timedelta(seconds=30)


class Worker:
    """A worker whose time passes as the test says; without work it only polls."""

    def __init__(self) -> None:
        self.at = 0.0
        self.vitals = Vitals(LIMITS, clock=lambda: self.at, now=self.now)
        self.shards: list[Shard] = []
        self.reached = self.polls = self.turns = self.sweeps = True
        self.works: Callable[[], bool] = lambda: False

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.at)

    def live(self, seconds: int) -> list[str]:
        """Let time pass; what is wrong after it."""
        for _ in range(seconds):
            self.at += 1
            self._step()
        return self.vitals.diagnose().why

    def _step(self) -> None:
        if not self.turns:
            return
        self.vitals.beat()
        if self.works():
            self.vitals.finished("read_shard", "completed")
        if self.reached and self.at % 10 == 0:
            minute = int(self.at // 60) if self.polls else 0
            polled = BEGIN + timedelta(minutes=minute)
            shards = [self._swept(shard) for shard in self.shards]
            self.vitals.answered(shards, {"workflow": polled, "activity": polled})

    def _swept(self, shard: Shard) -> Shard:
        if not self.sweeps:
            return shard
        result = SweepResult(shard=shard.number, at=self.now())
        return Shard(shard.number, shard.every, shard.since, shard.paused, result=result)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def due(worker: Worker) -> Worker:
    """A worker in a fleet whose sweeps are due."""
    worker.shards = [Shard(0, EVERY, BEGIN), Shard(1, EVERY, BEGIN)]
    return worker


def test_before_temporal_has_answered_a_worker_is_not_well(worker: Worker) -> None:
    assert worker.vitals.diagnose().why == ["Temporal has not answered yet"]


def test_without_a_fleet_a_worker_is_well_while_its_polls_are_seen(worker: Worker) -> None:
    assert worker.live(24 * 3600) == []


def test_a_worker_that_no_longer_polls_is_not_well_though_temporal_still_lists_it(
    worker: Worker,
) -> None:
    worker.polls = False
    assert worker.live(150) == []
    assert worker.live(20) == [
        f"Temporal has not seen this worker poll for {kind} tasks for 160 s"
        for kind in ("workflow", "activity")
    ]


def test_a_worker_that_was_never_seen_to_poll_is_not_well(worker: Worker) -> None:
    worker.vitals.beat()
    worker.vitals.answered([], {"workflow": BEGIN, "activity": None})
    assert worker.vitals.diagnose().why == [
        "Temporal has not yet seen this worker poll for activity tasks"
    ]


def test_a_worker_with_all_hands_full_polls_no_more_and_is_well(due: Worker) -> None:
    due.polls, due.sweeps, due.works = False, False, lambda: True
    assert due.live(3600) == []


def test_an_idle_worker_is_well_while_others_do_the_sweeps(due: Worker) -> None:
    assert due.live(3600) == []


def test_three_intervals_and_a_margin_without_any_work_are_too_many(due: Worker) -> None:
    assert due.live(60) == []
    due.sweeps = False
    due.shards = [Shard(0, EVERY, BEGIN)]
    assert due.live(60) == []
    assert due.live(10) == ["no work was done for 130 s, and a sweep is due every 30 s"]


def test_a_worker_that_just_started_has_that_long_to_do_the_first_sweep(due: Worker) -> None:
    due.sweeps = False
    assert due.live(120) == []
    assert due.live(10) == ["no work was done for 130 s, and a sweep is due every 30 s"]


def test_sweeps_that_a_person_paused_are_not_missed(due: Worker) -> None:
    due.sweeps = False
    due.shards = [Shard(0, EVERY, BEGIN, paused=True)]
    assert due.live(3600) == []


def test_a_temporal_that_does_not_answer_is_told_after_half_a_minute(due: Worker) -> None:
    due.live(60)
    due.reached, due.works = False, lambda: False
    assert due.live(30) == []
    assert due.live(5) == ["Temporal has not answered for 35 s"]


def test_it_is_well_again_when_temporal_answers_again(due: Worker) -> None:
    due.live(60)
    due.reached = False
    assert due.live(600) != []
    due.reached = True
    assert due.live(70) == []


def test_a_blocked_event_loop_is_told_first(due: Worker) -> None:
    due.live(60)
    due.turns = False
    assert due.live(5) == []
    assert due.live(2) == ["the event loop is blocked for 7 s"]


def test_the_document_says_how_old_each_sign_of_life_is(due: Worker) -> None:
    due.works = lambda: due.at == 50
    due.live(65)
    document = due.vitals.diagnose().document()
    assert (document["status"], document["why"]) == ("ok", [])
    assert document["ages"] == {
        "event_loop": 0.0,
        "temporal": 5.0,
        "activity": 15.0,
        "sweep": 5.0,
        "workflow_poll": 5.0,
        "activity_poll": 5.0,
    }
