"""The story of a drill: check, wait for work, freeze, watch others find and heal it, thaw."""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from fleet import drill, operator
    from fleet.config import ServerSpec
    from fleet.contracts.drill import (
        DrillInput,
        DrillOutcome,
        DrillPhase,
        DrillStatus,
        Expected,
        Healing,
    )
    from fleet.contracts.host import Effect, HostState
    from fleet.contracts.remediation import OperatorRequest
    from fleet.drill import Readiness
    from fleet.drill_text import too_late
    from fleet.durations import brief
    from fleet.readings import Reading
    from workflows.case import LEAST
    from workflows.drill_book import DrillBook
    from workflows.drill_hands import DrillHands
    from workflows.hands import HostTrouble, Interrupted

#: Between two looks at a server that is waited for: jobs may be short.
_AT_WORK_EVERY = timedelta(seconds=3)
#: What was written before the freeze has arrived by then.
_SETTLED = timedelta(seconds=1)
#: So often it may be caught between two jobs, and let go on.
_CATCHES = 10
#: Between two tries to thaw, each of which has its own retries; and for how long.
_THAW_EVERY, _THAW_FOR = timedelta(minutes=5), timedelta(hours=24)


class Over(Exception):
    """The drill has come to an end."""

    def __init__(self, outcome: DrillOutcome, why: str) -> None:
        super().__init__(why)
        self.outcome, self.why = outcome, why


class Drilling:
    def __init__(self, request: DrillInput) -> None:
        self._server = request.server
        self._book = DrillBook(request)
        self._cancel: OperatorRequest | None = None
        self._hands = DrillHands(request.server, lambda: self._cancel is not None)
        self._spec: ServerSpec | None = None
        self._goal: Expected | None = None
        self._host: HostState | None = None
        self._frozen: Reading | None = None

    def status(self) -> DrillStatus:
        return self._book.status

    def cancel(self, order: OperatorRequest) -> None:
        if self._cancel is None:
            self._cancel = order
            self._book.note(f"cancelled {operator.by(order)}")

    async def run(self) -> None:
        """Drill, and let go on what was frozen, whatever happens."""
        try:
            await self._drill()
        except Over as end:
            outcome, why = end.outcome, end.why
        except Interrupted:
            outcome, why = DrillOutcome.CANCELLED, self._cancelled()
        except Exception as problem:  # noqa: BLE001 - nothing stays frozen
            workflow.logger.exception("a drill failed")
            outcome, why = DrillOutcome.FAILED, f"{type(problem).__name__}: {problem}"[:300]
        else:
            outcome, why = DrillOutcome.FAILED, "it came to no end"
        if outcome is DrillOutcome.HEALED and self._host is not None and self._host.identity:
            # Its remediation has seen another process run there.
            self._book.keep(is_frozen=False)
        if self._book.status.is_frozen:
            await self._thaw(f"{outcome}: {why}")
        await self._book.close(outcome, why)

    async def _drill(self) -> None:
        await self._check()
        for _ in range(_CATCHES):
            await self._wait_for_work()
            if await self._freeze():
                await self._be_found()
                await self._be_healed()
            await self._thaw("it was caught between two jobs, where no hang shows")
            if self._book.status.is_frozen:
                raise Over(DrillOutcome.FAILED, "it was caught between two jobs, and not thawed")
            self._book.keep(frozen_at=None)
        raise Over(
            DrillOutcome.NEVER_BUSY,
            f"it was caught between two jobs {_CATCHES} times: its jobs are too short",
        )

    # --- before ----------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Look at everything that speaks against it.

        Raises:
            Over: something does.
        """
        self._book.enter(DrillPhase.CHECKING, "whether it may begin")
        present = await self._hands.present()
        reasons = drill.forbidden(present, self._server, workflow.now())
        goal, spec = drill.expected(present), present.spec
        if reasons or spec is None or spec.drill is None or spec.restart is None or goal is None:
            raise Over(DrillOutcome.REFUSED, "; ".join(reasons) or "it can't be judged")
        survey = await self._hands.survey(spec, present.machine)
        reasons = drill.hindrances(survey, spec.drill, workflow.now())
        try:
            host = await self._hands.inspect("what runs there now", before_restart=True)
        except HostTrouble as problem:
            raise Over(
                DrillOutcome.REFUSED, "; ".join([*reasons, f"the host can't be asked: {problem}"])
            ) from problem
        unfit = drill.unfit(host, spec.restart)
        if reasons or unfit:
            raise Over(DrillOutcome.REFUSED, "; ".join([*reasons, *([unfit] if unfit else [])]))
        self._spec, self._host, self._goal = spec, host, goal
        self._book.keep(expected=goal)

    async def _wait_for_work(self) -> None:
        """Wait until a hang would show; what was checked before a long wait is checked again.

        Raises:
            Over: it does not come to work in time, or isn't well.
        """
        spec = self._known()
        patience = spec.drill.wait_for_work if spec.drill is not None else timedelta(0)
        until, waited = workflow.now() + patience, False
        self._book.enter(DrillPhase.WAITING, "freeze it as soon as it works", until)
        while True:
            reading = await self._hands.read("does it work?")
            is_so, said = drill.readiness(reading, spec.policy)
            if is_so is Readiness.ILL:
                raise Over(DrillOutcome.REFUSED, f"it is not well: {said}")
            if is_so is Readiness.WORKS:
                break
            if workflow.now() >= until:
                why = f"it did not come to work within {brief(patience)}: {said}"
                raise Over(DrillOutcome.NEVER_BUSY, why)
            waited = True
            await self._sleep(
                min(_AT_WORK_EVERY, until - workflow.now()), "until it is looked at again"
            )
        if waited:
            await self._check()
        self._book.note(f"it works: {reading.brief()}")

    # --- the hang --------------------------------------------------------------------------------

    async def _freeze(self) -> bool:
        """Freeze it; false where it was caught at rest.

        Raises:
            Over: it could not be frozen.
        """
        assert self._host is not None
        self._book.enter(DrillPhase.FREEZING, "the command is on its way to the host")
        at = workflow.now()
        try:
            result = await self._hands.freeze(self._host)
        except HostTrouble as problem:
            raise Over(DrillOutcome.REFUSED, f"not frozen: {problem}") from problem
        self._book.keep(is_frozen=True, frozen_at=at)
        said = f": {result.detail}" if result.detail else ""
        self._book.note(f"freeze command: {result.effect}{said}")
        if result.effect is Effect.FAILED:
            raise Over(DrillOutcome.FAILED, f"it could not be frozen{said}")
        await self._sleep(_SETTLED, "what it wrote before may still arrive")
        self._frozen = await self._hands.read("what it left")
        return not drill.at_rest(self._frozen)

    async def _be_found(self) -> None:
        """Wait until somebody else has found it.

        Raises:
            Over: nobody has in time, or it works on.
        """
        await self._book.tell_frozen()
        goal = self._expected()
        patience, _ = drill.patience(goal, self._known().policy)
        until = self._frozen_at() + patience
        self._book.enter(DrillPhase.FINDING, "thaw it, if nobody has found it by then", until)
        while True:
            await self._sight()
            if self._book.status.found_at is not None:
                return
            reading = await self._hands.read("does it stand still?")
            if drill.moved(self._frozen, reading):
                raise Over(
                    DrillOutcome.NOT_FROZEN,
                    "it works on: what was frozen is not what does the work (set freeze and thaw),"
                    " or somebody let it go on",
                )
            if workflow.now() >= until:
                late = too_late(self._book.status, "found", patience)
                raise Over(DrillOutcome.NOT_FOUND, f"{late}; it was read as: {reading.brief()}")
            await self._sleep(drill.look_every(goal), "until it is asked again who has found it")

    async def _be_healed(self) -> None:
        """Wait until its remediation has come to an end.

        Raises:
            Over: with what it came to.
        """
        goal = self._expected()
        _, patience = drill.patience(goal, self._known().policy)
        until = self._frozen_at() + patience
        self._book.enter(DrillPhase.HEALING, "thaw it, if it is not healed by then", until)
        while True:
            healing = await self._sight()
            came_to = drill.came_to(healing) if healing is not None else None
            if came_to is not None and healing is not None:
                outcome, why = came_to
                if outcome is DrillOutcome.HEALED:
                    self._book.keep(healed_at=healing.closed_at or workflow.now())
                raise Over(outcome, why)
            if workflow.now() >= until:
                raise Over(DrillOutcome.NOT_HEALED, too_late(self._book.status, "healed", patience))
            await self._look_for_work()
            await self._sleep(drill.look_every(goal), "until it is asked again how it stands")

    async def _look_for_work(self) -> None:
        if self._book.status.restarted_at is None or self._book.status.works_at is not None:
            return
        reading = await self._hands.read("does the new process work?")
        if drill.works_again(self._frozen, reading, self._known().policy):
            self._book.keep(works_at=workflow.now())
            self._book.note(f"it works again: {reading.brief()}")

    async def _sight(self) -> Healing | None:
        """The remediation that the freeze has begun, noted; none as long as there is none."""
        try:
            survey = await self._hands.survey(self._known(), None)
        except ActivityError as problem:
            self._book.note_once(f"nobody could be asked: {problem.cause}")
            return None
        healing = drill.concerns(survey.healing, self._frozen_at())
        if healing is not None:
            self._book.saw(healing)
        return healing

    # --- after -----------------------------------------------------------------------------------

    async def _thaw(self, why: str) -> None:
        """Let it go on, if the frozen process is still there. No word interrupts this."""
        assert self._host is not None
        until = workflow.now() + _THAW_FOR
        self._book.enter(DrillPhase.THAWING, f"let it go on ({why})", until)
        while True:
            try:
                thawed = await self._hands.thaw(self._known(), self._host)
            except HostTrouble as problem:
                await self._book.tell_still_frozen(str(problem))
                if workflow.now() >= until:
                    return
            else:
                done = "thawed" if thawed.needed else "no need to thaw"
                self._book.keep(is_frozen=False)
                self._book.note(f"{done}{f': {thawed.detail}' if thawed.detail else ''}")
                return
            await workflow.sleep(_THAW_EVERY, summary="until it is tried again to thaw it")

    async def _sleep(self, span: timedelta, summary: str) -> None:
        until = workflow.now() + span
        while self._cancel is None and (left := until - workflow.now()) > timedelta(0):
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: self._cancel is not None,
                    timeout=max(left, LEAST),
                    timeout_summary=summary,
                )
        if self._cancel is not None:
            raise Interrupted

    def _known(self) -> ServerSpec:
        assert self._spec is not None
        return self._spec

    def _expected(self) -> Expected:
        assert self._goal is not None
        return self._goal

    def _frozen_at(self) -> datetime:
        assert self._book.status.frozen_at is not None
        return self._book.status.frozen_at

    def _cancelled(self) -> str:
        return operator.by(self._cancel) if self._cancel is not None else ""
