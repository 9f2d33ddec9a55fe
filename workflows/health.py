"""The scheduled look at a shard of the fleet: read, judge, report. It never acts."""

from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.readings import ReadingActivities
    from activities.record import RecordActivities
    from activities.reports import ReportActivities
    from activities.storms import StormActivities
    from fleet import details
    from fleet.contracts.names import HEALTH_SWEEP
    from fleet.contracts.record import KeepRequest, Look
    from fleet.contracts.sweep import (
        ReportBatch,
        ReportResult,
        SweepReadings,
        SweepRequest,
        SweepResult,
    )
    from fleet.details import many
    from fleet.durations import brief
    from fleet.follow_up import followed_up
    from fleet.shares import digest, news
    from fleet.sweep import Judgement, is_too_old, judge_shard, with_unsent
    from workflows.alerting import raise_alert
    from workflows.starts import book_starts


@workflow.defn(name=HEALTH_SWEEP, failure_exception_types=[Exception])
class HealthSweep:
    """One sweep. What the last one saw is the schedule's last completion result, so two bad
    observations in a row are durable data and no worker's memory. A sweep that fails leaves that
    result as it was; a sweep that was missed is not made up.
    """

    @workflow.run
    async def run(self, request: SweepRequest) -> SweepResult:
        before = self._last_result()
        asked = workflow.now()
        seen = await self._read(request)
        if is_too_old(asked, workflow.now(), seen):
            raise ApplicationError(
                f"the readings were {brief(workflow.now() - asked)} old when they could be judged:"
                " nothing was concluded from them",
                type="ReadingsTooOld",
                non_retryable=True,
            )
        judgement = judge_shard(request.shard, workflow.now(), workflow.info().run_id, seen, before)
        workflow.set_current_details(details.sweep(judgement.result, workflow.info().namespace))
        judgement = await self._tell_share(judgement, seen, before)
        if judgement.reports:
            sent = await self._report(judgement, search_attributes=seen.search_attributes)
            judgement = followed_up(with_unsent(judgement, sent.unsent), sent)
        result, foreign = await book_starts(seen, before, judgement.result)
        for alert in [*judgement.alerts, *foreign]:
            await raise_alert(alert)
        if judgement.looks and seen.keep_for is not None:
            await self._keep(request.shard, judgement.looks, seen.keep_for)
        return result

    def _last_result(self) -> SweepResult | None:
        if not workflow.has_last_completion_result():
            return None
        return workflow.get_last_completion_result(SweepResult)

    async def _read(self, request: SweepRequest) -> SweepReadings:
        return await workflow.execute_activity_method(
            ReadingActivities.read_shard,
            request,
            schedule_to_close_timeout=timedelta(seconds=60),
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=15),
            retry_policy=RetryPolicy(maximum_attempts=2),
            summary=f"read the servers of shard {request.shard}",
        )

    async def _tell_share(
        self, judgement: Judgement, seen: SweepReadings, before: SweepResult | None
    ) -> Judgement:
        """Tell ``storm-guard`` before anybody may act on this sweep; what fails, the next tells."""
        share = news(seen, judgement.result, before, workflow.now())
        if share is None:
            return judgement
        try:
            await workflow.execute_activity_method(
                StormActivities.report_share,
                share,
                schedule_to_close_timeout=timedelta(seconds=20),
                start_to_close_timeout=timedelta(seconds=10),
                retry_policy=RetryPolicy(maximum_attempts=2),
                summary=f"tell storm-guard: {len(share.ill)} of {share.managed} are not well",
            )
        except ActivityError as problem:
            workflow.logger.warning("storm-guard could not be told: %s", problem.cause)
            return judgement
        heard = judgement.result.model_copy(update={"share_heard": digest(share)})
        return replace(judgement, result=heard)

    async def _keep(self, shard: int, looks: list[Look], keep_for: timedelta) -> None:
        """Keep readings, to judge them again. Where that fails they are lost, nothing else."""
        try:
            await workflow.execute_activity_method(
                RecordActivities.keep_readings,
                KeepRequest(shard=shard, looks=looks, keep_for=keep_for),
                schedule_to_close_timeout=timedelta(seconds=10),
                retry_policy=RetryPolicy(maximum_attempts=2),
                summary=f"keep {many(len(looks), 'reading')} for steady replay",
            )
        except ActivityError as problem:
            workflow.logger.warning("readings were not kept: %s", problem.cause)

    async def _report(self, judgement: Judgement, *, search_attributes: bool) -> ReportResult:
        names = [report.observation.server for report in judgement.reports]
        return await workflow.execute_activity_method(
            ReportActivities.report,
            ReportBatch(reports=judgement.reports, search_attributes=search_attributes),
            schedule_to_close_timeout=timedelta(seconds=60),
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=15),
            retry_policy=RetryPolicy(maximum_attempts=3),
            summary=f"report {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"[:190],
        )
