"""One short request to one engine. While it runs, nobody else can ask: its ID is the lock."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.asking import AskActivities
    from fleet.contracts.engine import AskRequest
    from fleet.contracts.names import ASK_ENGINE
    from fleet.details import plain
    from fleet.engines.judge import in_words
    from fleet.readings import Reading

#: Longer than the longest deadline that a fleet file may set, for each of a page's engines that
#: answers at once, and for the readings beside it.
ASK_WITHIN = timedelta(minutes=15)
_HEARTBEAT = timedelta(seconds=20)


@workflow.defn(name=ASK_ENGINE, failure_exception_types=[Exception])
class AskEngine:
    """Fails where it is not known what came of it; nothing is concluded from that."""

    @workflow.run
    async def run(self, request: AskRequest) -> Reading:
        reading = await workflow.execute_activity_method(
            AskActivities.ask_engine,
            request,
            schedule_to_start_timeout=timedelta(seconds=60),
            start_to_close_timeout=ASK_WITHIN,
            heartbeat_timeout=_HEARTBEAT,
            retry_policy=RetryPolicy(maximum_attempts=1),
            summary=f"one token from {request.server}, unless it moves",
        )
        answer = reading.engine.answer if reading.engine is not None else None
        said = in_words(answer) if answer is not None else "it was not asked"
        workflow.set_current_details(
            f"**{request.server}**: {plain(said)} ({plain(reading.brief())})"
        )
        return reading
