"""Reports of a sweep on their way to remediations, by signals that lose nothing."""

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.guards import send_forget_hold, send_recovered
from activities.ledgers import GuardReader
from fleet.contracts.guard import GuardState
from fleet.contracts.names import REMEDIATION, remediation_id
from fleet.contracts.remediation import (
    Outcome,
    RemediationInput,
    RemediationSignal,
    RemediationStatus,
)
from fleet.contracts.sweep import OpenIncident, Report, ReportBatch, ReportResult
from fleet.details import WHAT_A_PERSON_CAN_SAY
from fleet.durations import show
from fleet.sweep import may_open
from fleet.verdicts import FOR_REMEDIATION

_AT_ONCE = 16
_WITHIN = timedelta(seconds=5)
_ATTEMPTS = 2

#: ``ApplicationError.type`` of a first attempt that could not send every report.
NOT_REPORTED = "NotReported"


class ReportActivities:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._guards = GuardReader(client)

    @activity.defn
    async def report(self, batch: ReportBatch) -> ReportResult:
        """Pass each report on; a repeated run of this activity sends what its receiver dedupes.

        One server's trouble is never the shard's: what can't be sent is named in the result.

        Raises:
            ApplicationError: type ``NotReported``; another attempt, maybe on another worker, helps.
        """
        slots = asyncio.Semaphore(_AT_ONCE)
        unsent: dict[str, str] = {}
        incidents: dict[str, OpenIncident] = {}

        async def send(report: Report) -> None:
            async with slots:
                activity.heartbeat()
                sent = await self._try(report, search_attributes=batch.search_attributes)
            if isinstance(sent, str):
                unsent[report.observation.server] = sent[:200]
            elif sent is not None:
                incidents[report.observation.server] = sent

        async with asyncio.TaskGroup() as group:
            for report in batch.reports:
                group.create_task(send(report))
        if unsent and activity.info().attempt < _ATTEMPTS:
            raise ApplicationError(f"not reported: {', '.join(unsent)}"[:500], type=NOT_REPORTED)
        return ReportResult(unsent=unsent, incidents=incidents)

    async def _try(self, report: Report, *, search_attributes: bool) -> OpenIncident | str | None:
        """Send one report; return why it could not be sent, or the incident that was asked for."""
        try:
            async with asyncio.timeout(_WITHIN.total_seconds()):
                return await self._send(report, search_attributes=search_attributes)
        except TimeoutError:
            return f"no answer within {show(_WITHIN)}"
        except Exception as problem:  # noqa: BLE001 - whatever it is, the others are sent
            return f"{type(problem).__name__}: {problem}"

    async def _send(self, report: Report, *, search_attributes: bool) -> OpenIncident | None:
        if report.good:
            return await self._end(report)
        await self._pass_on(report, search_attributes=search_attributes)
        if not report.remind:
            return None
        return _open(await self._guards.state(report.observation.server))

    async def _end(self, report: Report) -> OpenIncident | None:
        """Say that a server is well; return the incident that was left to people, if any."""
        if await self._tell(report):
            return None
        server, at = report.observation.server, report.observation.reading.at
        left = _open(await self._guards.state(server)) if report.ends else None
        await send_recovered(self._client, server, at)
        return left if left is not None and left.since < at else None

    async def _pass_on(self, report: Report, *, search_attributes: bool) -> None:
        server = report.observation.server
        if report.observation.verdict not in FOR_REMEDIATION:
            await self._tell(report)
            return
        if await self._is_heard(report):
            return
        guard = await self._guards.state(server)
        if not may_open(guard, report.mode, datetime.now(UTC)):
            return
        if report.quiet is not None:
            calmed = await self._last_doubt(server)
            if calmed is not None and datetime.now(UTC) - calmed < report.quiet:
                return
            report = _not_before(report, calmed)
        if guard is not None and guard.incident is not None and guard.incident.hold is not None:
            await send_forget_hold(self._client, server)
        await self._open(report, search_attributes=search_attributes)

    async def _is_heard(self, report: Report) -> bool:
        """Whether a remediation runs and knows. One that closes meanwhile does not: it is asked
        first, and told second.
        """
        if not await self._is_running(report.observation.server):
            return False
        return report.ongoing or await self._tell(report)

    async def _last_doubt(self, server: str) -> datetime | None:
        """When the newest remediation of the server ended, if it confirmed nothing."""
        try:
            last = await self._client.get_workflow_handle(remediation_id(server)).describe()
            if last.status is not WorkflowExecutionStatus.COMPLETED:
                return None
            # Of that run: another that was opened meanwhile would be waited for.
            ended = self._client.get_workflow_handle(
                last.id, run_id=last.run_id, result_type=RemediationStatus
            )
            status: RemediationStatus = await ended.result()
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        return last.close_time if status.outcome is Outcome.NOT_CONFIRMED else None

    async def _open(self, report: Report, *, search_attributes: bool) -> None:
        """Signal-with-start under a fixed ID: fifty detectors make one workflow; none is lost."""
        seen = report.observation
        await self._client.start_workflow(
            REMEDIATION,
            RemediationInput(server=seen.server, search_attributes=search_attributes),
            id=remediation_id(seen.server),
            task_queue=activity.info().task_queue,
            start_signal=RemediationSignal.OBSERVE,
            start_signal_args=[seen],
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            static_summary=f"{seen.server} is {seen.verdict}: {seen.why}"[:190],
            static_details=WHAT_A_PERSON_CAN_SAY,
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


def _open(guard: GuardState | None) -> OpenIncident | None:
    incident = guard.incident if guard is not None else None
    if incident is None:
        return None
    return OpenIncident(
        id=incident.id,
        since=incident.first_observed,
        verdict=incident.verdict,
        job=incident.job,
    )


def _not_before(report: Report, calmed: datetime | None) -> Report:
    """The report with a clock that does not reach back behind a doubt that was cleared."""
    seen = report.observation
    if calmed is None or seen.since >= calmed:
        return report
    return report.model_copy(update={"observation": seen.model_copy(update={"since": calmed})})
