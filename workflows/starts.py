"""What a sweep does with processes that are others than before: the guards book them."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.guards import GuardActivities
    from fleet import foreign
    from fleet.contracts.alerts import AlertMessage
    from fleet.contracts.guard import StartBatch
    from fleet.contracts.sweep import SweepReadings, SweepResult
    from fleet.details import many


async def book_starts(
    seen: SweepReadings, before: SweepResult | None, after: SweepResult
) -> tuple[SweepResult, list[AlertMessage]]:
    """Tell the guards; return what the sweep leaves, and whom to tell that somebody else restarts.

    A start of which its guard could not be told is found anew by the next sweep.
    """
    starts = list(foreign.starts(seen, before, after.servers))
    if not starts:
        return after, []
    booked = await workflow.execute_activity_method(
        GuardActivities.report_starts,
        StartBatch(starts=starts),
        schedule_to_close_timeout=timedelta(seconds=60),
        start_to_close_timeout=timedelta(seconds=30),
        heartbeat_timeout=timedelta(seconds=15),
        retry_policy=RetryPolicy(maximum_attempts=3),
        summary=f"another process than before: {many(len(starts), 'server')}",
    )
    told = [foreign.alert(server, answer) for server, answer in sorted(booked.answers.items())]
    result = foreign.with_unreported(after, before, booked.unsent)
    return result, [message for message in told if message is not None]
