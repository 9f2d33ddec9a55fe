"""``record/<shard>``: readings that were bad, kept to be judged again under other thresholds.

It begins with the first of them, and ends when all that it holds is too old: a fleet that is well
has none. Nothing waits for it, and nothing that heals reads it.
"""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from fleet.contracts.names import RECORD
    from fleet.contracts.record import (
        KeepRequest,
        Kept,
        RecordInput,
        RecordQuery,
        RecordSignal,
    )
    from fleet.details import many, utc
    from fleet.durations import show
    from fleet.recording import Record

_SHORTEST = timedelta(seconds=1)
#: Where nothing says how long: a run that was started by hand.
_DEFAULT = timedelta(days=7)


@workflow.defn(name=RECORD)
class ReadingRecord:
    @workflow.init
    def __init__(self, start: RecordInput) -> None:
        self._record = Record(start.kept)
        self._last = workflow.now()

    @workflow.run
    async def run(self, start: RecordInput) -> None:
        while (left := self._too_old_at() - workflow.now()) > timedelta(0):
            await self._wait(left)
            if self._is_long():
                self._record.forget(workflow.now())
                carried = RecordInput(shard=start.shard, kept=self._record.kept())
                workflow.continue_as_new(carried)

    async def _wait(self, left: timedelta) -> None:
        """Until all is too old; shorter where it is to be kept for less than was thought."""
        until = self._too_old_at()
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._is_long() or self._too_old_at() < until,
                timeout=max(left, _SHORTEST),
                timeout_summary="until all that is kept here is too old",
            )

    @workflow.signal(name=RecordSignal.KEEP, description="Readings to keep; sent by steady itself")
    def keep(self, *words: Any) -> None:
        """One ``KeepRequest``; whatever else is sent, and however much, is not kept."""
        try:
            request = KeepRequest.model_validate(words[0] if words else None)
        except ValidationError:
            workflow.logger.warning("keep: not understood; only steady itself sends this signal")
            return
        self._last = workflow.now()
        self._record.add(request.looks, request.keep_for, workflow.now())
        self._show()

    @workflow.query(name=RecordQuery.KEPT, description="All that is kept, packed")
    def kept(self) -> Kept:
        return self._record.kept()

    @property
    def _keep_for(self) -> timedelta:
        return self._record.keep_for or _DEFAULT

    def _too_old_at(self) -> datetime:
        return self._last + self._keep_for

    def _is_long(self) -> bool:
        info = workflow.info()
        return info.is_continue_as_new_suggested() and workflow.all_handlers_finished()

    def _show(self) -> None:
        record = self._record
        span = show(self._keep_for)
        lines = [
            f"{many(record.count, 'reading')} for `steady replay`, each kept for {span}",
            f"The newest came {utc(self._last)}.",
        ]
        if record.dropped and record.dropped_until is not None:
            until = utc(record.dropped_until)
            lines.append(f"**{record.dropped} older ones had no room**, up to {until}.")
        workflow.set_current_details("\n\n".join(lines))
