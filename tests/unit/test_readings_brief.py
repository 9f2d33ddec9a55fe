"""A reading in one phrase, as timelines have it."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.readings import Reading, WorkState, missing

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (timedelta(seconds=7), "heartbeat 7s old"),
        (timedelta(minutes=2, seconds=10), "heartbeat 2m10s old"),
        (timedelta(hours=26), "heartbeat 1d2h old"),
        (timedelta(milliseconds=-400), "heartbeat 0s old"),
        (timedelta(seconds=-90), "heartbeat 1m30s in the future"),
        (None, "no heartbeat"),
    ],
)
def test_it_says_how_old_the_heartbeat_is(age: timedelta | None, said: str) -> None:
    beat = NOW - age if age is not None else None
    reading = Reading(server="gpu-1", at=NOW, state=WorkState.PROCESSING, heartbeat=beat, job="j-1")
    assert reading.brief() == f"state processing, {said}, job j-1"


def test_what_was_not_read_says_why() -> None:
    assert missing("gpu-1", NOW, "no such key").brief() == "missing: no such key"
