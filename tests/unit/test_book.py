"""What the book of a remediation keeps of a long story, and that people see it at once."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from fleet.contracts.remediation import RemediationInput
from fleet.contracts.sweep import Observation
from fleet.readings import Reading, WorkState
from fleet.verdicts import Verdict
from workflows import book as module
from workflows.book import Book

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class Clock:
    """Stands in for the workflow around the book: its clock, and what it shows."""

    def __init__(self) -> None:
        self.shown = ""
        self.at = START

    def now(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at

    def info(self) -> SimpleNamespace:
        return SimpleNamespace(namespace="default")

    def set_current_details(self, text: str) -> None:
        self.shown = text


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stand_in = Clock()
    monkeypatch.setattr(module, "workflow", stand_in)
    return stand_in


def kept() -> Book:
    return Book(RemediationInput(server="gpu-1"))


def reading(beat: int, job: str = "job-1") -> Reading:
    return Reading(
        server="gpu-1",
        at=START,
        state=WorkState.PROCESSING,
        heartbeat=START - timedelta(seconds=beat),
        job=job,
    )


def texts(book: Book) -> list[str]:
    return [moment.text for moment in book.timeline]


@pytest.mark.usefixtures("clock")
def test_of_readings_that_say_the_same_the_first_and_the_newest_are_kept() -> None:
    book = kept()
    for beat in range(10, 100, 10):
        book.read(reading(beat), "hung")
    assert texts(book) == [
        "fresh reading: hung (state processing, heartbeat 10s old, job job-1)",
        "fresh reading: hung (state processing, heartbeat 1m30s old, job job-1)",
    ]


@pytest.mark.usefixtures("clock")
def test_a_reading_that_says_something_else_is_kept_and_so_is_what_stands_between() -> None:
    book = kept()
    book.read(reading(10), "hung")
    book.note("cancel by ana: too late")
    book.read(reading(20), "hung")
    book.read(reading(30), "silent")
    assert len(book.timeline) == 4


def test_what_is_noted_is_shown_at_once(clock: Clock) -> None:
    book = kept()
    book.note("approved by ana")
    assert clock.shown.endswith("approved by ana")


@pytest.mark.usefixtures("clock")
def test_the_job_is_the_one_that_hung_not_the_one_that_came_after_the_restart() -> None:
    book = kept()
    for verdict, job in ((Verdict.HUNG, "job-7"), (Verdict.RESTARTED, "job-1")):
        seen = reading(5, job)
        book.saw(Observation(server="gpu-1", verdict=verdict, since=START, reading=seen))
    assert book.job == "job-7"
