"""The book that a drill keeps: its times, its timeline, and what people are told."""

from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.alerts import AlertAction, AlertMessage, Severity
    from fleet.contracts.drill import (
        DrillInput,
        DrillOutcome,
        DrillPhase,
        DrillStatus,
        Healing,
    )
    from fleet.contracts.names import SearchAttribute, incident_id
    from fleet.contracts.remediation import Moment, Phase
    from fleet.drill_text import MEANING, PAGES, in_words, markdown
    from workflows.alerting import raise_alert

_KEPT_MOMENTS = 60

#: What a notice of a drill does to what a service holds, by its cause.
_ACTION = {"frozen": AlertAction.TRIGGER, "ended": AlertAction.RESOLVE}


class DrillBook:
    def __init__(self, request: DrillInput) -> None:
        began = workflow.info().start_time
        self._searchable = request.search_attributes
        self._shown: dict[SearchAttribute, str] = {}
        self._why = request.why
        self._phase: Phase | None = None
        self._told: set[str] = set()
        #: What the messages of this drill have in common.
        self._key = f"drill-{incident_id(request.server, began)}"
        self.status = DrillStatus(
            server=request.server,
            phase=DrillPhase.CHECKING,
            who=request.who,
            began_at=began,
        )
        if request.why:
            self.note(f"ordered by {request.who}: {request.why}")

    def keep(self, **changes: Any) -> None:
        self.status = self.status.model_copy(update=changes)
        self._show()

    def note(self, text: str) -> None:
        """Add a line to the timeline; of a long one, the beginning and the newest are kept."""
        kept = [*self.status.timeline, Moment(at=workflow.now(), text=text[:300])]
        if len(kept) > _KEPT_MOMENTS:
            del kept[10]
        self.keep(timeline=kept)

    def note_once(self, text: str) -> None:
        """Add a line, unless it stands there last."""
        if not self.status.timeline or self.status.timeline[-1].text != text[:300]:
            self.note(text)

    def enter(self, phase: DrillPhase, next_step: str, at: datetime | None = None) -> None:
        self.keep(phase=phase, next_step=next_step, next_at=at)

    def saw(self, healing: Healing) -> None:
        """Take over what the remediation says of itself; a phase that is new is a line."""
        known = self.status
        if known.found_at is None and healing.detected_at is not None:
            self.keep(found_at=healing.detected_at)
            self.note("found: its incident was opened")
        if healing.restarted_at is not None and known.restarted_at is None:
            self.note("restarted")
        self.keep(
            incident=healing.incident or known.incident,
            restarts=healing.restarts,
            restarted_at=known.restarted_at or healing.restarted_at,
        )
        if healing.phase not in (None, self._phase):
            self._phase = healing.phase
            self.note(f"its remediation: {healing.phase}")

    async def tell_frozen(self) -> None:
        why = f": {self._why}" if self._why else ""
        await self._tell(
            "frozen",
            Severity.NOTICE,
            f"{self.status.server}: frozen on purpose, for a drill",
            detail=f"ordered by {self.status.who or 'somebody'}{why}",
            next_step="steady has to find it and restart it; what is told of it is the drill's",
        )

    async def tell_still_frozen(self, why: str) -> None:
        self.note_once(f"it could not be thawed: {why}")
        await self._tell(
            "still_frozen",
            Severity.PAGE,
            f"{self.status.server}: a drill froze it, and it can't be thawed",
            detail=why,
            next_step="a person has to let it go on (SIGCONT) or restart it; steady tries on",
        )

    async def close(self, outcome: DrillOutcome, why: str) -> None:
        self.keep(outcome=outcome, why=why[:500])
        self.note(f"{outcome}: {why or MEANING[outcome]}")
        status = self.status
        if status.frozen_at is not None or outcome is DrillOutcome.FAILED:
            await self._tell(
                "ended",
                Severity.PAGE if outcome in PAGES or status.is_frozen else Severity.NOTICE,
                f"{status.server}: the drill ended, {MEANING[outcome]}",
                detail="; ".join(part for part in (in_words(status), why) if part)[:1000],
            )
        self.keep(closed_at=workflow.now())
        self.enter(DrillPhase.CLOSED, "")

    async def _tell(
        self,
        cause: str,
        severity: Severity,
        title: str,
        *,
        detail: str,
        next_step: str = "",
    ) -> None:
        """Tell people, once a cause; that nobody could be told stops no drill.

        What a person has to see to stays open with the services that hold it.
        """
        if cause in self._told:
            return
        self._told.add(cause)
        is_page = severity is Severity.PAGE
        message = AlertMessage(
            server=self.status.server,
            incident=self._key,
            cause=cause,
            severity=severity,
            action=AlertAction.UPDATE if is_page else _ACTION[cause],
            title=title,
            since=self.status.frozen_at,
            detail=detail,
            next_step=next_step,
            workflow_id=workflow.info().workflow_id,
        )
        try:
            if await raise_alert(message):
                self.note(f"{severity}: {title}")
        except FailureError as problem:
            self.note(f"people could not be told ({cause}): {problem}")

    def _show(self) -> None:
        workflow.set_current_details(markdown(self.status, workflow.info().namespace))
        if not self._searchable:
            return
        wanted = {
            SearchAttribute.SERVER: self.status.server,
            SearchAttribute.PHASE: str(self.status.phase),
            SearchAttribute.OUTCOME: str(self.status.outcome or ""),
        }
        changed = {key: text for key, text in wanted.items() if self._shown.get(key, "") != text}
        if changed:
            workflow.upsert_search_attributes(
                [
                    SearchAttributeKey.for_keyword(key).value_set(text)
                    for key, text in changed.items()
                ]
            )
            self._shown.update(changed)
