"""One message to people, tried until it is out. It holds nothing else up, and it ends."""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    is_cancelled_exception,
)
from temporalio.exceptions import TimeoutError as TimedOut

with workflow.unsafe.imports_passed_through():
    from activities.alerts import NOT_DELIVERED, AlertActivities
    from fleet.contracts.alerts import AlertMessage, AlertPlan, AlertResult, Delivered, Delivery
    from fleet.contracts.names import ALERT
    from fleet.durations import brief

_SHORTEST = timedelta(seconds=1)
#: So often the fleet file may change under an alert before what it then names is no longer asked.
_ROUNDS = 5
_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=5),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(minutes=5),
)

_NOBODY = "[alerts] names nobody for a"


@workflow.defn(name=ALERT)
class Alert:
    """Delivers ``alert/<incident>/<cause>``: its ID is what makes it one message.

    Each target has an activity of its own, so that none waits for another, and none that has the
    message gets it again. A plain exception here would leave it open and tried again, never lost:
    that is wanted.
    """

    @workflow.init
    def __init__(self, message: AlertMessage) -> None:
        self._message = message
        # A time-out of zero would mean none at all.
        self._until = workflow.now() + max(message.give_up_after, _SHORTEST)
        self._came: dict[str, Delivered | None] = {}

    @workflow.run
    async def run(self, message: AlertMessage) -> AlertResult:
        self._show("on its way")
        why = await self._tell_all()
        told = [came for came in self._came.values() if came is not None]
        failed = [came for came in told if not came.delivered and not came.gone]
        said = why or "; ".join(f"{came.target}: {came.detail}" for came in failed)
        result = AlertResult(delivered=not said, detail=said, targets=told)
        if _NOBODY in said:
            workflow.logger.warning("nobody is named to be told: %s", message.title)
        elif said:
            name = f"{message.incident}/{message.cause}"
            workflow.logger.error("gave up on the alert %s: %s", name, said)
        self._show(f"**not delivered**: {why}" if why else "")
        return result

    async def _tell_all(self) -> str:
        """Tell whom the fleet names, and whom it names instead; return why nobody could be."""
        for _ in range(_ROUNDS):
            try:
                plan = await self._plan()
            except ActivityError as problem:
                return _given_up(problem, "").detail
            new = [target for target in plan.targets if target not in self._came]
            await asyncio.gather(*(self._tell(target, plan) for target in new))
            if not any(came.gone for name in new if (came := self._came[name])):
                break
        reached = any(came is not None and not came.gone for came in self._came.values())
        return "" if reached else f"{_NOBODY} {self._message.severity}"

    async def _tell(self, target: str, plan: AlertPlan) -> None:
        self._came[target] = None
        try:
            came = await self._deliver(target, plan)
        except ActivityError as problem:
            came = _given_up(problem, target)
        self._came[target] = came
        self._show()

    async def _plan(self) -> AlertPlan:
        return await workflow.execute_activity_method(
            AlertActivities.plan_alert,
            self._message,
            schedule_to_close_timeout=_left(self._until),
            start_to_close_timeout=timedelta(seconds=60),
            heartbeat_timeout=timedelta(seconds=15),
            retry_policy=_RETRY,
            summary="whom to tell",
        )

    async def _deliver(self, target: str, plan: AlertPlan) -> Delivered:
        limit = _left(self._until)
        return await workflow.execute_activity_method(
            AlertActivities.deliver,
            Delivery(
                message=self._message,
                target=target,
                incidents=plan.incidents,
                drill=plan.drill,
            ),
            schedule_to_close_timeout=limit,
            start_to_close_timeout=timedelta(seconds=60),
            heartbeat_timeout=timedelta(seconds=15),
            retry_policy=_RETRY,
            summary=f"tell {target}, for up to {brief(limit)}: {self._message.title}"[:190],
        )

    def _show(self, said: str = "") -> None:
        message = self._message
        lines = [f"**{message.severity}** · {message.title}"]
        lines += [said] if said else []
        lines += [_line(target, came) for target, came in self._came.items()]
        lines += [message.detail] if message.detail else []
        lines += [f"Next: {message.next_step}"] if message.next_step else []
        workflow.set_current_details("\n\n".join(lines))


def _left(until: datetime) -> timedelta:
    return max(until - workflow.now(), _SHORTEST)


def _line(target: str, came: Delivered | None) -> str:
    if came is None:
        return f"{target}: on its way"
    return (
        f"{target}: delivered" if came.delivered else f"{target}: **not delivered**, {came.detail}"
    )


def _given_up(problem: ActivityError, target: str) -> Delivered:
    """The last reason that is known: a time-out has the failure of the last try as its cause.

    Raises:
        ActivityError: a person cancelled the alert.
    """
    if is_cancelled_exception(problem):
        raise problem
    cause: BaseException | None = problem.cause
    why, attempts = "no worker delivered it in time", 0
    while isinstance(cause, FailureError):
        if isinstance(cause, ApplicationError):
            tried = cause.details[0] if cause.type == NOT_DELIVERED and cause.details else 0
            why, attempts = cause.message, int(tried)
            break
        if isinstance(cause, TimedOut):
            why = "no answer in time"
        cause = cause.cause
    return Delivered(target=target, delivered=False, attempts=attempts, detail=why)
