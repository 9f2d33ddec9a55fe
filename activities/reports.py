"""Reports of a sweep on their way to remediations, by signals that lose nothing."""

import asyncio
from datetime import UTC, datetime

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.guards import GuardReader, send_recovered
from fleet.contracts import (
    REMEDIATION,
    RemediationInput,
    RemediationSignal,
    Report,
    ReportBatch,
    remediation_id,
)
from fleet.sweep import may_open
from fleet.verdicts import ACTIONABLE

_AT_ONCE = 16


class ReportActivities:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._guards = GuardReader(client)

    @activity.defn
    async def report(self, batch: ReportBatch) -> None:
        """Pass each report on; a repeated run of this activity sends what its receiver dedupes."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def send(report: Report) -> None:
            async with slots:
                activity.heartbeat()
                await self._send(report, search_attributes=batch.search_attributes)

        async with asyncio.TaskGroup() as group:
            for report in batch.reports:
                group.create_task(send(report))

    async def _send(self, report: Report, *, search_attributes: bool) -> None:
        server = report.observation.server
        if report.good:
            if not await self._tell(report):
                await send_recovered(self._client, server, report.observation.reading.at)
            return
        if report.observation.verdict not in ACTIONABLE:
            await self._tell(report)
            return
        if await self._is_running(server):
            if not report.ongoing:
                await self._tell(report)
            return
        if may_open(await self._guards.state(server), report.mode, datetime.now(UTC)):
            await self._open(report, search_attributes=search_attributes)

    async def _open(self, report: Report, *, search_attributes: bool) -> None:
        """Signal-with-start under a fixed ID: fifty detectors make one workflow; none is lost."""
        server = report.observation.server
        await self._client.start_workflow(
            REMEDIATION,
            RemediationInput(server=server, search_attributes=search_attributes),
            id=remediation_id(server),
            task_queue=activity.info().task_queue,
            start_signal=RemediationSignal.OBSERVE,
            start_signal_args=[report.observation],
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            static_summary=f"{server}: {report.observation.verdict}",
        )

    async def _tell(self, report: Report) -> bool:
        """Signal a remediation that runs; start none. It tells its guard itself."""
        handle = self._client.get_workflow_handle(remediation_id(report.observation.server))
        try:
            await handle.signal(RemediationSignal.OBSERVE, report.observation)
        except RPCError as problem:
            if problem.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def _is_running(self, server: str) -> bool:
        handle = self._client.get_workflow_handle(remediation_id(server))
        try:
            return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        except ValueError:
            # The SDK has no name for the status of a paused workflow; paused is open.
            return True
