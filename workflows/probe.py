"""The scheduled question to idle engines: one that froze while idle shows nothing else. It reports,
like a sweep, and never acts.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.probing import ProbeActivities
    from activities.reports import ReportActivities
    from fleet import details
    from fleet.contracts.engine import AskRequest
    from fleet.contracts.names import PROBE_SWEEP, ask_id
    from fleet.contracts.sweep import (
        ProbeReadings,
        ReportBatch,
        SweepReadings,
        SweepRequest,
        SweepResult,
    )
    from fleet.engines.probing import carried, whom
    from fleet.follow_up import followed_up
    from fleet.readings import Reading
    from fleet.sweep import Judgement, judge_shard, with_unsent
    from workflows.alerting import raise_alert
    from workflows.ask import ASK_WITHIN, AskEngine

_AT_ONCE = 20


@workflow.defn(name=PROBE_SWEEP, failure_exception_types=[Exception])
class ProbeSweep:
    """One probe of a shard. What the last one saw is the schedule's last completion result."""

    @workflow.run
    async def run(self, request: SweepRequest) -> SweepResult:
        before = None
        if workflow.has_last_completion_result():
            before = workflow.get_last_completion_result(SweepResult)
        read = await self._read(request)
        answered = await self._ask(whom(read.seen, before))
        readings = [answered.get(each.server, each) for each in read.seen.readings]
        seen = read.seen.model_copy(update={"readings": readings})
        run = workflow.info().run_id
        judgement = judge_shard(request.shard, workflow.now(), run, seen, before)
        workflow.set_current_details(details.sweep(judgement.result, workflow.info().namespace))
        judgement = await self._report(judgement, seen)
        for alert in judgement.alerts:
            await raise_alert(alert)
        return carried(judgement.result, before, read.engines)

    async def _read(self, request: SweepRequest) -> ProbeReadings:
        return await workflow.execute_activity_method(
            ProbeActivities.read_engines,
            request,
            schedule_to_close_timeout=timedelta(seconds=60),
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=15),
            retry_policy=RetryPolicy(maximum_attempts=2),
            summary=f"read the engines of shard {request.shard}",
        )

    async def _ask(self, requests: list[AskRequest]) -> dict[str, Reading]:
        """What each came to; one that somebody else asks just now is left alone."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(request: AskRequest) -> Reading | None:
            async with slots:
                try:
                    return await workflow.execute_child_workflow(
                        AskEngine.run,
                        request,
                        id=ask_id(request.server),
                        execution_timeout=ASK_WITHIN + timedelta(minutes=2),
                        static_summary=f"one short request to {request.server}, which is idle",
                    )
                except (WorkflowAlreadyStartedError, ChildWorkflowError):
                    return None

        came = await asyncio.gather(*(ask(request) for request in requests))
        return {reading.server: reading for reading in came if reading is not None}

    async def _report(self, judgement: Judgement, seen: SweepReadings) -> Judgement:
        if not judgement.reports:
            return judgement
        sent = await workflow.execute_activity_method(
            ReportActivities.report,
            ReportBatch(reports=judgement.reports, search_attributes=seen.search_attributes),
            schedule_to_close_timeout=timedelta(seconds=60),
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=15),
            retry_policy=RetryPolicy(maximum_attempts=3),
            summary="report what was found",
        )
        return followed_up(with_unsent(judgement, sent.unsent), sent)
