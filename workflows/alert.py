"""One message to people, tried until it is out. It holds nothing else up, and it ends."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError
from temporalio.exceptions import TimeoutError as TimedOut

with workflow.unsafe.imports_passed_through():
    from activities.alerts import NOT_DELIVERED, AlertActivities
    from fleet.contracts import ALERT, AlertMessage, AlertResult
    from fleet.durations import brief

_SHORTEST = timedelta(seconds=1)


@workflow.defn(name=ALERT)
class Alert:
    """Delivers ``alert/<incident>/<cause>``: its ID is what makes it one message.

    A plain exception here would leave it open and tried again, never lost: that is wanted.
    """

    @workflow.run
    async def run(self, message: AlertMessage) -> AlertResult:
        workflow.set_current_details(_details(message, "on its way"))
        try:
            result = await self._deliver(message)
        except ActivityError as problem:
            result = _given_up(problem)
            workflow.logger.error(
                "gave up on the alert %s/%s: %s", message.incident, message.cause, result.detail
            )
        said = "delivered" if result.delivered else f"**not delivered**: {result.detail}"
        workflow.set_current_details(_details(message, said))
        return result

    async def _deliver(self, message: AlertMessage) -> AlertResult:
        # A time-out of zero would mean none at all.
        limit = max(message.give_up_after, _SHORTEST)
        return await workflow.execute_activity_method(
            AlertActivities.deliver,
            message,
            schedule_to_close_timeout=limit,
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=15),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=5),
                backoff_coefficient=2.0,
                maximum_interval=timedelta(minutes=5),
            ),
            summary=f"tell people, for up to {brief(limit)}: {message.title}"[:190],
        )


def _given_up(problem: ActivityError) -> AlertResult:
    """The last reason that is known: a time-out has the failure of the last try as its cause."""
    cause: BaseException | None = problem.cause
    found = AlertResult(delivered=False, detail="no worker delivered it in time")
    while isinstance(cause, FailureError):
        if isinstance(cause, ApplicationError):
            tried = cause.details[0] if cause.type == NOT_DELIVERED and cause.details else 0
            return AlertResult(delivered=False, attempts=int(tried), detail=cause.message)
        if isinstance(cause, TimedOut):
            found = AlertResult(delivered=False, detail="no answer in time")
        cause = cause.cause
    return found


def _details(message: AlertMessage, said: str) -> str:
    lines = [f"**{message.severity}** · {message.title}", said]
    lines += [message.detail] if message.detail else []
    lines += [f"Next: {message.next_step}"] if message.next_step else []
    return "\n\n".join(lines)
