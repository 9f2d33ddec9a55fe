"""``storm-guard``: how many restarts at once, and whether any at all; kept for ever.

Whoever wants to restart asks by a signal and hears by one, since a workflow takes only ten updates
at once. All that it decides is decided in ``fleet.storms`` and ``fleet.suspicion``. While nobody
holds, waits or is suspected it sets no timer.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, FailureError

with workflow.unsafe.imports_passed_through():
    from pydantic import BaseModel, ValidationError

    from activities.storms import StormActivities
    from fleet import storm_alerts, storms, suspicion
    from fleet.contracts.names import STORM_GUARD
    from fleet.contracts.storm import (
        SLOT_SIGNAL,
        Look,
        OpenByHand,
        Opened,
        ShareReport,
        SlotAsk,
        SlotFree,
        StormInput,
        StormQuery,
        StormSignal,
        StormState,
        StormUpdate,
    )
    from fleet.storm_alerts import Alarm
    from fleet.storm_details import markdown
    from fleet.storms import Saying
    from workflows.alerting import raise_alert

_LEAST = timedelta(milliseconds=50)
_LOOK_RETRY = RetryPolicy(maximum_attempts=2)

_Model = TypeVar("_Model", bound=BaseModel)


@workflow.defn(name=STORM_GUARD)
class StormGuard:
    @workflow.init
    def __init__(self, start: StormInput) -> None:
        self._state = start.state or StormState()
        self._stirred = True
        self._show()

    @workflow.run
    async def run(self, _start: StormInput) -> None:
        while True:
            self._stirred = False
            await self._settle()
            await self._raise_alarms()
            if storms.is_look_due(self._state, workflow.now()):
                await self._look()
            self._show()
            if self._is_to_be_renewed():
                workflow.continue_as_new(StormInput(state=self._state))
            await self._rest()

    @workflow.query(name=StormQuery.STATE)
    def state(self) -> StormState:
        return self._state

    @workflow.signal(name=StormSignal.ASK, description="A slot is asked for; sent by steady itself")
    def ask(self, *words: Any) -> None:
        request = _understood(SlotAsk, words)
        if request is not None:
            self._change(storms.ask(self._state, request, workflow.now()))

    @workflow.signal(name=StormSignal.FREE, description="A slot is given back; sent by steady")
    def free(self, *words: Any) -> None:
        request = _understood(SlotFree, words)
        if request is not None:
            self._change(storms.free(self._state, request))

    @workflow.signal(name=StormSignal.SHARE, description="What a sweep saw; sent by steady itself")
    def share(self, *words: Any) -> None:
        report = _understood(ShareReport, words)
        if report is not None:
            self._change(suspicion.hear(self._state, report, workflow.now()))

    @workflow.update(name=StormUpdate.OPEN)
    def open(self, order: OpenByHand) -> Opened:
        """A person's word that restarts are allowed again; what waits is judged anew."""
        order = OpenByHand(who=order.who[:200], why=order.why[:500])
        ended = self._state.suspicion
        self._change(suspicion.open_by_hand(self._state, order, workflow.now()))
        return Opened(suspicion=ended, waiting=len(self._state.waiting))

    def _change(self, state: StormState) -> None:
        self._state, self._stirred = state, True

    async def _settle(self) -> None:
        """Grant and tell; whose run is gone gives its slot back, and the next one has it."""
        while True:
            self._state, sayings = storms.settle(self._state, workflow.now())
            heard = await asyncio.gather(*map(self._say, sayings))
            lost = [saying for saying, ok in zip(sayings, heard, strict=True) if not ok]
            if not lost:
                return
            for saying in lost:
                word = saying.word
                gone = SlotFree(workflow_id=saying.workflow_id, run=word.run, number=word.number)
                self._state = storms.free(self._state, gone)

    async def _say(self, saying: Saying) -> bool:
        """Whether there was a run to hear it."""
        handle = workflow.get_external_workflow_handle(saying.workflow_id)
        try:
            await handle.signal(SLOT_SIGNAL, saying.word)
        except FailureError as problem:
            workflow.logger.info("%s could not be told: %s", saying.workflow_id, problem)
            return False
        return True

    async def _raise_alarms(self) -> None:
        self._state = storm_alerts.calmed(self._state, workflow.now())
        for alarm, message in storm_alerts.due(self._state, workflow.now()).items():
            try:
                await raise_alert(message)
            except FailureError:
                # It is not tried at once: what lasts is told again by itself.
                workflow.logger.exception("people could not be told: %s", message.title)
            self._state = _told(self._state, alarm)

    async def _look(self) -> None:
        """Free what closed runs hold. Where that can't be seen now, it is looked for again."""
        now = workflow.now()
        leases = [
            SlotFree(workflow_id=lease.workflow_id, run=lease.run, number=lease.number)
            for lease in self._state.holders
        ]
        try:
            looked = await workflow.execute_activity_method(
                StormActivities.look_at_slots,
                Look(leases=leases),
                schedule_to_close_timeout=timedelta(seconds=60),
                start_to_close_timeout=timedelta(seconds=30),
                heartbeat_timeout=timedelta(seconds=15),
                retry_policy=_LOOK_RETRY,
                summary=f"do the {len(leases)} that hold a slot still run?",
            )
        except ActivityError as problem:
            workflow.logger.warning("the slots could not be looked at: %s", problem.cause)
        else:
            state = self._state
            for lease in looked.closed:
                state = storms.free(state, lease)
            if looked.terms is not None:
                state = suspicion.adopt(state, looked.terms)
            self._stirred = self._stirred or state != self._state
            self._state = state
        self._state = storms.looked(self._state, now)

    def _is_to_be_renewed(self) -> bool:
        return workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()

    async def _rest(self) -> None:
        """Until a word comes, or something is due. A timer may fire a fraction early."""
        due = storms.next_due(self._state, workflow.now())
        wait = max(due - workflow.now(), _LEAST) if due is not None else None
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._stirred,
                timeout=wait,
                timeout_summary="until slots, suspicion or pages are looked at again",
            )

    def _show(self) -> None:
        workflow.set_current_details(markdown(self._state, workflow.info().namespace))


def _told(state: StormState, alarm: Alarm) -> StormState:
    return storm_alerts.told(state, alarm, workflow.now())


def _understood(model: type[_Model], words: tuple[Any, ...]) -> _Model | None:
    """Whatever else is sent, and however much, is ignored: an error would stop the entity."""
    try:
        return model.model_validate(words[0] if words else None)
    except ValidationError:
        workflow.logger.warning("a signal that is no %s was ignored", model.__name__)
        return None
