"""Reports on their way to remediations, on the real server: nothing is lost, nothing starts twice.

The remediation and the guard are the real workflows; the world around them is written by the test.
"""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment
from temporalio.worker import Worker

from activities.guards import GuardActivities
from activities.ledgers import GuardReader
from activities.reports import NOT_REPORTED, ReportActivities
from fleet.contracts.fleet import FoundingRequest
from fleet.contracts.guard import GuardInput, GuardState, Hold, TakeRequest
from fleet.contracts.names import SERVER_GUARD, guard_id, remediation_id
from fleet.contracts.remediation import Outcome, RemediationSignal, RemediationStatus
from fleet.contracts.sweep import Observation, Report, ReportBatch, ReportResult
from fleet.policy import Mode, Policy
from fleet.verdicts import Verdict
from tests.parts.people import People
from tests.parts.temporal import QUICK_TIMERS, DevServer, dev_server
from tests.parts.world import World
from workflows.alert import Alert
from workflows.guard import ServerGuard
from workflows.remediation import Remediation

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
AT_ONCE = Policy(persist_hung=timedelta(0), cooldown=SECOND / 10, verify_after=SECOND / 10)
PATIENT = Policy()


class Desk:
    """One server's world with a worker of its own, and a sweep's activity run by hand."""

    def __init__(self, client: Client, policy: Policy) -> None:
        self.client = client
        self.queue = f"reports-{uuid.uuid4().hex[:8]}"
        env = WorkflowEnvironment.from_client(client)
        self.world = World(env, f"gpu-{uuid.uuid4().hex[:8]}", policy)
        self.guards = GuardActivities(client)
        self.reports = ReportActivities(client)

    @property
    def server(self) -> str:
        return self.world.server

    @property
    def handle(self) -> WorkflowHandle[Any, RemediationStatus]:
        return self.client.get_workflow_handle_for(Remediation.run, remediation_id(self.server))

    def worker(self) -> Worker:
        guards = self.guards
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=[Remediation, ServerGuard, Alert],
            activities=[
                *self.world.activities,
                *People(self.world.told).activities,
                guards.open_incident,
                guards.take_budget,
                guards.give_back,
                guards.close_incident,
            ],
        )

    def environment(self, attempt: int = 1) -> ActivityEnvironment:
        asker = ActivityEnvironment()
        asker.info = dataclasses.replace(
            asker.info, task_queue=self.queue, attempt=attempt, activity_id=uuid.uuid4().hex
        )
        return asker

    async def send(self, *reports: Report, attempt: int = 1) -> ReportResult:
        batch = ReportBatch(reports=list(reports))
        return await self.environment(attempt).run(self.reports.report, batch)

    async def report(self, report: Report) -> None:
        """Send one report as a sweep does, with a second attempt."""
        try:
            await self.send(report)
        except ApplicationError as problem:
            if problem.type != NOT_REPORTED:
                raise
            assert (await self.send(report, attempt=2)).unsent == {}

    async def see(self, verdict: Verdict = Verdict.HUNG, key: str | None = None) -> Observation:
        return await self.world.observation(verdict, key=key or uuid.uuid4().hex)

    async def new(self, verdict: Verdict = Verdict.HUNG, key: str | None = None) -> Observation:
        """Report a verdict that has just been confirmed."""
        seen = await self.see(verdict, key)
        await self.report(Report(observation=seen, mode=self.world.policy.mode))
        return seen

    async def ongoing(self) -> None:
        """Report a hang that an earlier sweep has reported."""
        seen = await self.see()
        await self.report(Report(observation=seen, ongoing=True, mode=self.world.policy.mode))

    async def good(self) -> None:
        self.world.frozen_at = None
        await self.report(Report(observation=await self.see(Verdict.BUSY), good=True))

    async def runs(self, expected: int) -> list[str]:
        """The remediation's runs so far. The listing lags behind, so it is asked until it shows
        ``expected``; a moment later it must not show more.
        """
        found: list[str] = []
        for _ in range(100):
            query = f'WorkflowId="{remediation_id(self.server)}"'
            found = [each.run_id async for each in self.client.list_workflows(query)]
            if len(found) >= expected:
                break
            await asyncio.sleep(0.1)
        return found

    async def doubt(self, quiet: timedelta) -> Observation:
        """Report a suspicion that goes on; nothing here confirms it."""
        seen = await self.see(Verdict.SUSPECT)
        await self.report(Report(observation=seen, ongoing=True, quiet=quiet))
        return seen

    async def keys(self, run_id: str | None = None, expected: int = 0) -> list[str]:
        """The sweeps whose signals a run was given, by default the newest. A signal that comes
        during a step stands in the history only after it, so it is read until it has ``expected``.
        """
        found: list[str] = []
        for _ in range(100):
            found = [seen.key for seen in await self.heard(run_id)]
            if len(found) >= expected:
                break
            await asyncio.sleep(0.1)
        return found

    async def heard(self, run_id: str | None = None) -> list[Observation]:
        history = await self.client.get_workflow_handle(
            remediation_id(self.server), run_id=run_id
        ).fetch_history()
        found = []
        for event in history.events:
            if event.HasField("workflow_execution_signaled_event_attributes"):
                signal = event.workflow_execution_signaled_event_attributes
                (seen,) = await self.client.data_converter.decode(
                    signal.input.payloads, [Observation]
                )
                found.append(seen)
        return found

    async def guard(self) -> GuardState:
        held = await GuardReader(self.client).state(self.server)
        assert held is not None
        return held

    async def end(self) -> RemediationStatus:
        return await asyncio.wait_for(self.handle.result(), 30)

    async def is_running(self) -> bool:
        return (await self.handle.describe()).status is WorkflowExecutionStatus.RUNNING

    async def exists(self, workflow_id: str) -> bool:
        try:
            await self.client.get_workflow_handle(workflow_id).describe()
        except RPCError as problem:
            if problem.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def clear(self) -> None:
        for workflow_id in (remediation_id(self.server), guard_id(self.server)):
            with suppress(RPCError):
                await self.client.get_workflow_handle(workflow_id).terminate("the test is over")


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    async with dev_server(tmp_path_factory.mktemp("temporal")) as running:
        yield running


Enter = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture
def desk(server: DevServer) -> Enter:
    @asynccontextmanager
    async def enter(policy: Policy = PATIENT, *, founded: bool = True) -> AsyncIterator[Desk]:
        desk = Desk(await server.client(), policy)
        await desk.world.freeze()
        async with desk.worker():
            if founded:
                request = FoundingRequest(servers=[desk.server])
                await desk.environment().run(desk.guards.found_guards, request)
            yield desk
            await desk.clear()

    return enter


# --- opening -------------------------------------------------------------------------------------


async def test_fifty_detectors_at_once_make_one_workflow_that_hears_them_all(desk: Enter) -> None:
    async with desk() as d:
        keys = [f"sweep-{n}" for n in range(50)]
        await asyncio.gather(*(d.new(key=key) for key in keys))
        (run,) = await d.runs(1)
        assert sorted(await d.keys(run, expected=len(keys))) == sorted(keys)
        await d.world.env.sleep(SECOND)
        assert len(await d.runs(1)) == 1
        assert (await d.guard()).incident is not None


async def test_a_report_that_is_sent_twice_is_heard_once(desk: Enter) -> None:
    async with desk() as d:
        seen = await d.see()
        for _ in range(2):
            await d.send(Report(observation=seen))
        status = await d.handle.query(Remediation.status)
        assert len([m for m in status.timeline if m.text.startswith("sweep: ")]) == 1


async def test_a_hang_that_goes_on_does_not_disturb_the_remediation_that_runs(desk: Enter) -> None:
    async with desk() as d:
        first = await d.new()
        await d.ongoing()
        (run,) = await d.runs(1)
        assert await d.keys(run) == [first.key]


async def test_another_verdict_is_told_to_the_remediation_that_runs(desk: Enter) -> None:
    async with desk() as d:
        await d.new()
        await d.new(Verdict.MISSING)
        await d.new(Verdict.ERROR)
        (run,) = await d.runs(1)
        assert len(await d.keys(run, expected=3)) == 3


async def test_a_verdict_that_only_alerts_starts_nothing(desk: Enter) -> None:
    async with desk() as d:
        await d.new(Verdict.MISSING)
        assert not await d.exists(remediation_id(d.server))


async def test_an_outcome_is_reached_by_what_a_report_started(desk: Enter) -> None:
    async with desk(AT_ONCE) as d:
        d.world.boot = timedelta(0)
        await d.new()
        assert (await d.end()).outcome is Outcome.RESOLVED
        assert len(d.world.restarts) == 1
        while "resolved" not in d.world.causes:
            await asyncio.sleep(0.05)
        assert sorted(d.world.causes) == ["confirmed", "resolved", "restarting"]


# --- recoveries ----------------------------------------------------------------------------------


async def test_a_recovery_is_told_to_the_remediation_that_runs_and_ends_it(desk: Enter) -> None:
    async with desk() as d:
        await d.new()
        await d.good()
        assert (await d.end()).outcome is Outcome.RECOVERED
        assert (await d.guard()).incident is None


async def test_without_a_remediation_a_recovery_is_told_to_the_guard(desk: Enter) -> None:
    async with desk() as d:
        await d.new()
        while (await d.guard()).incident is None:
            await asyncio.sleep(0.05)
        await d.handle.terminate("by hand")
        await d.good()
        assert (await d.guard()).incident is None
        assert len(await d.runs(1)) == 1


async def test_a_recovery_of_a_server_that_nobody_ever_cared_for_starts_nothing(
    desk: Enter,
) -> None:
    async with desk(founded=False) as d:
        await d.good()
        assert not await d.exists(remediation_id(d.server))
        assert not await d.exists(guard_id(d.server))


# --- opening again -------------------------------------------------------------------------------


async def test_a_workflow_terminated_by_hand_is_opened_again_with_the_clock_of_its_incident(
    desk: Enter,
) -> None:
    async with desk() as d:
        await d.new()
        while (await d.guard()).incident is None:
            await asyncio.sleep(0.05)
        first = (await d.guard()).incident
        assert first is not None
        await d.handle.terminate("by hand")
        await d.ongoing()
        assert await d.is_running()
        assert len(await d.runs(2)) == 2
        while (status := await d.handle.query(Remediation.status)).incident is None:
            await asyncio.sleep(0.05)
        assert (status.incident, status.since) == (first.id, first.first_observed)


async def test_what_a_person_cancelled_stays_closed(desk: Enter) -> None:
    async with desk() as d:
        await d.new()
        await d.handle.signal(RemediationSignal.CANCEL, {"who": "ann"})
        assert (await d.end()).outcome is Outcome.CANCELLED
        assert await _hold(d) is Hold.CANCELLED
        await d.ongoing()
        await d.new(Verdict.ERROR)
        assert not await d.is_running()
        assert len(await d.runs(1)) == 1


async def test_the_next_try_waits_for_its_moment(desk: Enter) -> None:
    async with desk(AT_ONCE.model_copy(update={"retry_delays": (SECOND * 5, SECOND * 3600)})) as d:
        d.world.unreachable = True
        await d.new()
        assert (await d.end()).outcome is Outcome.RESTART_FAILED
        incident = (await d.guard()).incident
        assert incident is not None
        assert incident.next_try_at is not None
        await d.ongoing()
        assert datetime.now(UTC) < incident.next_try_at, "the machine is too slow for this test"
        assert not await d.is_running()
        await asyncio.sleep((incident.next_try_at - datetime.now(UTC)).total_seconds())
        await d.ongoing()
        assert len(await d.runs(2)) == 2
        assert (await d.end()).outcome is Outcome.RESTART_FAILED
        await d.ongoing()
        assert len(await d.runs(2)) == 2
        assert not await d.is_running()


async def test_nothing_is_opened_in_the_cooldown_after_a_restart(desk: Enter) -> None:
    async with desk() as d:
        take = TakeRequest(
            server=d.server,
            incident="",
            key="another script",
            budget=PATIENT.budget,
            cooldown=timedelta(minutes=10),
        )
        await d.environment().run(d.guards.take_budget, take)
        await d.new()
        assert not await d.exists(remediation_id(d.server))


async def test_another_mode_opens_what_a_dry_run_had_left_to_people(desk: Enter) -> None:
    async with desk(AT_ONCE.model_copy(update={"mode": Mode.DRY_RUN})) as d:
        d.world.boot = timedelta(0)
        await d.new()
        assert (await d.end()).outcome is Outcome.DRY_RUN
        assert await _hold(d) is Hold.DRY_RUN
        await d.ongoing()
        assert len(await d.runs(1)) == 1
        d.world.policy = AT_ONCE
        await d.ongoing()
        assert len(await d.runs(2)) == 2
        assert (await d.end()).outcome is Outcome.RESOLVED
        assert len(d.world.restarts) == 1


# --- while it closes, and when something fails ---------------------------------------------------


async def test_after_a_suspicion_that_was_not_confirmed_the_server_is_left_alone(
    desk: Enter,
) -> None:
    async with desk() as d:
        await d.doubt(timedelta(hours=1))
        assert (await d.end()).outcome is Outcome.NOT_CONFIRMED
        cleared = await d.handle.describe()
        assert cleared.close_time is not None
        await d.doubt(timedelta(hours=1))
        assert (await d.handle.describe()).run_id == cleared.run_id
        # Once that time is over it is looked at again; what was cleared counts no longer.
        doubted = await d.doubt(SECOND / 100)
        again = await d.handle.describe()
        assert again.run_id != cleared.run_id
        [heard] = await d.heard(again.run_id)
        assert doubted.since < heard.since == cleared.close_time


async def test_the_quiet_after_a_suspicion_hides_no_hang(desk: Enter) -> None:
    async with desk() as d:
        await d.doubt(timedelta(hours=1))
        assert (await d.end()).outcome is Outcome.NOT_CONFIRMED
        seen = await d.new(Verdict.HUNG)
        assert await d.is_running()
        assert await d.keys() == [seen.key]


async def test_only_a_suspicion_that_was_not_confirmed_makes_it_quiet(desk: Enter) -> None:
    async with desk() as d:
        await d.new(Verdict.HUNG)
        await d.good()
        assert (await d.end()).outcome is Outcome.RECOVERED
        recovered = (await d.handle.describe()).run_id
        await d.doubt(timedelta(hours=1))
        doubted = (await d.handle.describe()).run_id
        assert doubted != recovered


async def test_no_report_is_lost_while_its_workflow_is_just_closing(desk: Enter) -> None:
    """Each run ends at once, so that sixty reports meet runs at every point of their end."""
    async with desk() as d:
        d.world.in_fleet = False
        sent = []
        for _ in range(12):
            sent += [seen.key for seen in await asyncio.gather(*(d.new() for _ in range(5)))]
        heard: list[str] = []
        for _ in range(50):
            heard = [key for run in await d.runs(1) for key in await d.keys(run)]
            if len(heard) >= len(sent):
                break
            await asyncio.sleep(0.1)
        assert sorted(heard) == sorted(sent)


async def test_a_remediation_that_closes_between_the_question_and_the_word_is_opened_again(
    desk: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk() as d:
        await d.new()
        await d.handle.terminate("just now")

        async def was_running(_server: str) -> bool:
            return True

        monkeypatch.setattr(d.reports, "_is_running", was_running)
        late = await d.new()
        assert await d.is_running()
        assert await d.keys() == [late.key]


async def test_a_guard_that_does_not_answer_holds_up_no_other_server(desk: Enter) -> None:
    """Its own report is tried again, on another worker maybe, and then named in the result."""
    async with desk() as d, desk() as other:
        stuck = f"stuck-{d.server}"
        await d.client.start_workflow(
            SERVER_GUARD,
            GuardInput(server=stuck, founding=True),
            id=guard_id(stuck),
            task_queue="nobody-works-here",
        )
        reports = [
            Report(observation=(await d.see()).model_copy(update={"server": stuck})),
            Report(observation=await d.see()),
            Report(observation=await other.see()),
        ]
        with pytest.raises(ApplicationError) as first:
            await d.send(*reports)
        last = await d.send(*reports, attempt=2)
        assert first.value.type == NOT_REPORTED
        assert last == ReportResult(unsent={stuck: "no answer within 5s"})
        assert await d.is_running()
        assert await other.is_running()
        assert not await d.exists(remediation_id(stuck))
        await d.client.get_workflow_handle(guard_id(stuck)).terminate("the test is over")


async def _hold(desk: Desk) -> Hold | None:
    incident = (await desk.guard()).incident
    return incident.hold if incident is not None else None


async def test_a_workflow_that_a_person_paused_in_temporal_is_open(tmp_path: Path) -> None:
    """The SDK has no name for its status, which is no reason to lose reports of other servers."""
    can_pause = "frontend.WorkflowPauseEnabled=true"
    async with dev_server(tmp_path, settings=(QUICK_TIMERS, can_pause)) as server:
        d = Desk(await server.client(), PATIENT)
        await d.world.freeze()
        async with d.worker():
            first = await d.new()
            request = PauseWorkflowExecutionRequest(
                namespace="default", workflow_id=d.handle.id, reason="a look at it"
            )
            await d.client.workflow_service.pause_workflow_execution(request)
            late = await d.new()
            await d.ongoing()
            assert await d.keys() == [first.key, late.key]


# --- what people hear once more ------------------------------------------------------------------


async def test_the_incident_that_a_reminder_is_of_is_asked_of_the_guard(desk: Enter) -> None:
    async with desk() as d:
        await d.new()
        await _until_open(d)
        seen = await d.see()
        quiet = Report(observation=seen, ongoing=True)
        assert (await d.send(quiet)).incidents == {}
        asked = await d.send(quiet.model_copy(update={"remind": True}))
        incident = (await d.guard()).incident
        assert incident is not None
        assert asked.incidents[d.server].id == incident.id
        assert asked.incidents[d.server].since == incident.first_observed


async def test_an_incident_that_was_left_to_people_is_named_when_its_server_is_well(
    desk: Enter,
) -> None:
    async with desk() as d:
        await d.new()
        await _until_open(d)
        await d.handle.signal(RemediationSignal.CANCEL, {"who": "ann"})
        assert (await d.end()).outcome is Outcome.CANCELLED
        left = (await d.guard()).incident
        assert left is not None
        assert left.told == ["confirmed"]
        d.world.frozen_at = None
        well = Report(observation=await d.see(Verdict.BUSY), good=True, ends=True)
        assert (await d.send(well)).incidents[d.server].id == left.id
        for _ in range(100):
            if (await d.guard()).incident is None:
                break
            await asyncio.sleep(0.05)
        assert (await d.send(well)).incidents == {}


async def test_a_remediation_that_runs_says_itself_that_it_is_over(desk: Enter) -> None:
    async with desk() as d:
        await d.new()
        await _until_open(d)
        d.world.frozen_at = None
        well = Report(observation=await d.see(Verdict.BUSY), good=True, ends=True)
        assert (await d.send(well)).incidents == {}
        assert (await d.end()).outcome is Outcome.RECOVERED


async def _until_open(d: Desk) -> None:
    """The guard has the incident, and people heard of it."""
    async with asyncio.timeout(30):
        while not d.world.told or (await d.guard()).incident is None:
            await asyncio.sleep(0.05)
