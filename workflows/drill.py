"""``drill/<server>``: one hang made on purpose, and whether it is found and healed.

The running workflow is what sees to it that nothing stays frozen, whoever dies meanwhile: the
command line that began it, or any worker. It reports nothing to the pipeline that it tries.
"""

import asyncio
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet import operator
    from fleet.contracts.drill import DrillInput, DrillOutcome, DrillStatus
    from fleet.contracts.names import DRILL
    from workflows.drilling import Drilling


@workflow.defn(name=DRILL)
class Drill:
    @workflow.init
    def __init__(self, request: DrillInput) -> None:
        self._story = Drilling(request)
        self._cancelled_by_temporal = False

    @workflow.run
    async def run(self, request: DrillInput) -> DrillStatus:
        """Run the story in a task of its own: a cancellation from the Temporal UI thaws as well."""
        del request
        story = asyncio.create_task(self._story.run())
        while not story.done():
            try:
                await workflow.wait_condition(story.done)
            except asyncio.CancelledError:
                self._cancelled_by_temporal = True
                reason = workflow.cancellation_reason()
                self.cancel({"who": "a cancellation in Temporal", "why": reason or ""})
        await story
        status = self._story.status()
        if self._cancelled_by_temporal and status.outcome is DrillOutcome.CANCELLED:
            raise asyncio.CancelledError
        return status

    @workflow.query(description="Where the drill stands, its times, and the next step")
    def status(self) -> DrillStatus:
        return self._story.status()

    @workflow.signal(description='End the drill and thaw: {"who": "...", "why": "..."}')
    def cancel(self, *words: Any) -> None:
        self._story.cancel(operator.read_request(words))
