"""A sweep and the one before it: what is remembered, concluded and passed on.

Schedules carry the memory, so these run on the real server; only looks and receivers are written.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError

from fleet.contracts.alerts import AlertMessage, Severity
from fleet.contracts.fleet import Pause, StormTerms
from fleet.contracts.names import alert_id
from fleet.policy import Policy
from fleet.verdicts import Verdict
from tests.parts.shard import T0, Shard, broken, busy, gone, hung, shard
from tests.parts.temporal import DevServer, dev_server

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
_numbers = itertools.count()


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    async with dev_server(tmp_path_factory.mktemp("temporal")) as running:
        yield running


Enter = Callable[..., AbstractAsyncContextManager[Shard]]


@pytest.fixture
def enter(server: DevServer) -> Enter:
    """Enter a shard with a worker."""

    @asynccontextmanager
    async def enter(policy: Policy | None = None) -> AsyncIterator[Shard]:
        async with shard(await server.client(), next(_numbers), policy) as s, s.worker():
            yield s

    return enter


# --- what one sweep leaves for the next ----------------------------------------------------------


async def test_two_observations_in_a_row_are_a_verdict_and_are_reported(enter: Enter) -> None:
    async with enter() as s:
        first = await s.sweep(busy(0))
        once = await s.sweep(hung(30))
        assert first.servers[s.server].verdict is once.servers[s.server].verdict is Verdict.BUSY
        assert [report.good for report in s.reports] == [True]
        twice = await s.sweep(hung(60))
        assert (twice.servers[s.server].verdict, twice.version) == (Verdict.HUNG, 1)
        assert twice.whys == {s.server: "state processing, heartbeat 2m40s old"}
        (report,) = s.reports[1:]
        assert (report.observation.verdict, report.ongoing) == (Verdict.HUNG, False)
        assert report.observation.since == T0 + 30 * SECOND


async def test_each_sweep_names_itself_so_that_its_reports_are_heard_once(enter: Enter) -> None:
    async with enter() as s:
        await s.sweep(busy(0), hung(30), hung(60), hung(90))
        keys = [report.observation.key for report in s.reports]
        assert len(set(keys)) == len(keys) == 3
        assert [report.ongoing for report in s.reports] == [False, False, True]


async def test_what_was_seen_survives_a_sweep_that_failed(enter: Enter) -> None:
    async with enter() as s:
        await s.sweep(busy(0), hung(30))
        with pytest.raises(WorkflowFailureError) as failed:
            await s.sweep(broken())
        assert isinstance(failed.value.cause, ActivityError)
        then = await s.sweep(hung(90))
        assert then.servers[s.server].verdict is Verdict.HUNG
        assert then.servers[s.server].since == T0 + 30 * SECOND


async def test_what_was_seen_survives_the_worker(server: DevServer) -> None:
    async with shard(await server.client(), next(_numbers)) as s:
        for look in (busy(0), hung(30)):
            async with s.worker():
                await s.sweep(look)
        async with s.worker():
            then = await s.sweep(hung(60))
        assert then.servers[s.server].verdict is Verdict.HUNG


async def test_readings_that_came_late_conclude_nothing_and_change_nothing(enter: Enter) -> None:
    async with enter(Policy(reading_max_age=SECOND / 2)) as s:
        await s.sweep(busy(0), hung(30))
        s.takes = 2 * SECOND
        with pytest.raises(WorkflowFailureError) as failed:
            await s.sweep(hung(60))
        cause = failed.value.cause
        assert isinstance(cause, ApplicationError)
        assert cause.type == "ReadingsTooOld"
        assert len(s.reports) == 1
        s.takes = timedelta(0)
        assert (await s.sweep(hung(90))).servers[s.server].verdict is Verdict.HUNG


async def test_after_steadys_own_pause_a_sweep_needs_fresh_intervals_before_it_judges(
    enter: Enter,
) -> None:
    async with enter() as s:
        await s.sweep(busy(0), hung(30))
        looked = await s.sweep(hung(600))
        once = await s.sweep(hung(630))
        assert looked.servers[s.server].verdict is once.servers[s.server].verdict is None
        assert len(s.reports) == 1
        judged = await s.sweep(hung(660))
        assert judged.servers[s.server].verdict is Verdict.HUNG
        assert s.reports[-1].observation.since == T0 + 30 * SECOND


async def test_sweeps_that_were_missed_are_not_made_up(server: DevServer) -> None:
    """The one that waited for a worker reads anew; those that it overlapped were skipped."""
    async with shard(await server.client(), next(_numbers), every=SECOND) as s:
        s.looks = [busy(30 * n) for n in range(100)]
        while (await s.schedule.describe()).info.num_actions_skipped_overlap < 5:
            await asyncio.sleep(0.1)
        assert (await s.schedule.describe()).info.num_actions == 1
        began = time.monotonic()
        async with s.worker():
            while not s.reports:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
            await s.schedule.pause()
        made = (await s.schedule.describe()).info.num_actions - 1
        assert made <= time.monotonic() - began + 2


# --- whom it tells -------------------------------------------------------------------------------


async def told(s: Shard, count: int) -> list[AlertMessage]:
    """What people were told; alerts hold no sweep up, so they may still be on their way."""
    async with asyncio.timeout(60):
        while len(s.told) < count:
            await asyncio.sleep(0.05)
    return s.told


async def test_a_verdict_for_people_is_one_alert_an_incident_and_no_remediation(
    enter: Enter,
) -> None:
    async with enter() as s:
        await s.sweep(busy(0), gone(30), gone(60), gone(90))
        (first,) = await told(s, 1)
        assert (first.cause, first.severity) == ("missing", Severity.PAGE)
        started = s.client.get_workflow_handle(alert_id(first.incident, first.cause))
        assert (await started.describe()).workflow_type == "Alert"
        await s.sweep(busy(120), gone(150), gone(180))
        assert len({alert.incident for alert in await told(s, 2)}) == 2
        assert not [r for r in s.reports if r.observation.verdict is Verdict.HUNG]


async def test_the_same_incident_seen_again_after_steadys_pause_is_not_told_again(
    enter: Enter,
) -> None:
    async with enter() as s:
        await s.sweep(busy(0), gone(30), gone(60))
        await told(s, 1)
        await s.sweep(gone(900), gone(930), gone(960))
        assert len(s.told) == 1


async def test_a_pause_keeps_an_alert_back_only_as_long_as_it_lasts(enter: Enter) -> None:
    async with enter() as s:
        s.paused = {s.server: Pause(until=T0 + 100 * SECOND)}
        await s.sweep(busy(0), gone(30), gone(60), gone(90))
        assert s.told == []
        await s.sweep(gone(120))
        (alert,) = await told(s, 1)
        assert alert.since == T0 + 30 * SECOND


async def test_a_report_that_reached_nobody_is_sent_again_and_people_hear_of_it(
    enter: Enter,
) -> None:
    async with enter() as s:
        await s.sweep(busy(0), hung(30))
        s.unsent = {s.server: "no answer within 5s"}
        await s.sweep(hung(60), hung(90))
        s.unsent = {}
        after = await s.sweep(hung(120))
        assert after.servers[s.server].verdict is Verdict.HUNG
        assert [report.ongoing for report in s.reports[1:]] == [False, False, False]
        assert {r.observation.since for r in s.reports[1:]} == {T0 + 30 * SECOND}
        await told(s, 1)
        assert [alert.cause for alert in s.told] == ["unreported"]


async def test_people_are_reminded_and_hear_that_it_is_over_under_one_key(enter: Enter) -> None:
    async with enter(Policy(remind_after=60 * SECOND)) as s:
        s.follows_up = True
        await s.sweep(busy(0), gone(30), gone(60), gone(90))
        # A worker that goes and comes back has no part in it: the schedule remembers.
        await s.sweep(gone(120), busy(150))
        first, again, over = await told(s, 3)
        assert [each.cause for each in s.told] == ["missing", "reminder", "over"]
        assert first.incident == again.incident == over.incident
        assert again.raised_at is not None


# --- what storm-guard hears ----------------------------------------------------------------------


async def test_storm_guard_hears_of_a_bad_server_once_and_before_anybody_acts(enter: Enter) -> None:
    async with enter() as s:
        s.storm = StormTerms(version=1)
        await s.sweep(busy(0))
        handle = await s.start(hung(30))
        await handle.result()
        assert s.shares == []
        handle = await s.start(hung(60))
        await handle.result()
        history = await handle.fetch_history()
        steps = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            for event in history.events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        assert steps == ["read_shard", "report_share", "report"]
        await s.sweep(hung(90))
        assert [(each.managed, list(each.ill)) for each in s.shares] == [(1, [s.server])]
        await s.sweep(busy(120), busy(150))
        assert [len(each.ill) for each in s.shares] == [1, 0]


async def test_a_storm_guard_that_cannot_be_told_holds_no_sweep_up_and_hears_with_the_next(
    enter: Enter,
) -> None:
    async with enter() as s:
        s.storm = StormTerms(version=1)
        s.storm_guard_hears = False
        await s.sweep(busy(0), hung(30), hung(60))
        assert len([report for report in s.reports if not report.good]) == 1
        s.storm_guard_hears = True
        await s.sweep(hung(90), hung(120))
        assert [list(each.ill) for each in s.shares] == [[s.server]]
