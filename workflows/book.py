"""The book that a remediation keeps: where it stands, what happened, what it answered."""

from datetime import datetime

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from fleet import details
    from fleet.contracts.guard import Incident
    from fleet.contracts.names import SearchAttribute
    from fleet.contracts.remediation import (
        Moment,
        Outcome,
        Phase,
        RemediationInput,
        RemediationStatus,
    )
    from fleet.contracts.sweep import Observation
    from fleet.readings import Reading
    from fleet.verdicts import GOOD, Verdict

_KEPT_MOMENTS = 60
_KEPT_ANSWERS = 40


class Book:
    """Everything that a person sees of the incident: query, details, search attributes."""

    def __init__(self, request: RemediationInput) -> None:
        carried = request.carried
        self.server = request.server
        self.incident: Incident | None = carried.incident if carried else None
        self.outcome: Outcome | None = carried.outcome if carried else None
        self.phase = Phase.ESCALATED if carried else Phase.CONFIRMING
        self.since: dict[Verdict, datetime] = dict(carried.since) if carried else {}
        self.detected_at = carried.detected_at if carried else None
        self.restarted_at = carried.restarted_at if carried else None
        self.timeline: list[Moment] = list(carried.timeline) if carried else []
        self.answers: dict[str, str] = dict(carried.answers) if carried else {}
        self.pages: list[str] = list(carried.pages) if carried else []
        self.verdict: Verdict | None = carried.incident.verdict if carried else None
        self.job: str | None = carried.incident.job if carried else None
        self.closed_at: datetime | None = None
        #: The last sweep that spoke said it is well, after all that this run did.
        self.well = False
        self._next_step = ""
        self._next_at: datetime | None = None
        self._searchable = request.search_attributes
        self._shown: dict[SearchAttribute, str] = {}

    def note(self, text: str) -> None:
        """Add a line to the timeline; of a long one, the beginning and the newest are kept."""
        self.timeline.append(Moment(at=workflow.now(), text=text[:300]))
        if len(self.timeline) > _KEPT_MOMENTS:
            del self.timeline[10]
        self._draw()

    def enter(self, phase: Phase, next_step: str = "", at: datetime | None = None) -> None:
        self.phase, self._next_step, self._next_at = phase, next_step, at
        self.show()

    def answer(self, request_id: str, text: str) -> None:
        if not request_id:
            return
        self.answers[request_id] = text
        while len(self.answers) > _KEPT_ANSWERS:
            del self.answers[next(iter(self.answers))]

    def adopt(self, verdict: Verdict, since: datetime) -> None:
        """Take over an actionable verdict: the ones that are no longer true lose their clocks."""
        known = self.since.get(verdict, since)
        self.since = {verdict: min(known, since)}
        if verdict is not self.verdict:
            if self.verdict is not None:
                self.note(f"verdict changed from {self.verdict} to {verdict}")
            self.verdict = verdict

    def saw(self, observation: Observation) -> None:
        self.note(
            f"sweep: {observation.verdict} since {observation.since:%H:%M:%S}"
            f" ({observation.reading.brief()})"
        )
        if observation.verdict not in GOOD:
            self.job = observation.reading.job or self.job
        self.well = observation.verdict in GOOD - {Verdict.LOADING, Verdict.RESTARTED}

    def read(self, reading: Reading, said: str) -> None:
        """Note a reading. Of many in a row that say the same, the first and the newest are kept."""
        begins = f"fresh reading: {said} ("
        last = self.timeline[-2:]
        if len(last) == 2 and all(moment.text.startswith(begins) for moment in last):
            self.timeline.pop()
        self.note(f"{begins}{reading.brief()})")

    def show(self) -> None:
        """Bring the Temporal UI up to date."""
        self._draw()
        if not self._searchable:
            return
        wanted = {
            SearchAttribute.SERVER: self.server,
            SearchAttribute.PHASE: str(self.phase),
            SearchAttribute.VERDICT: str(self.verdict or ""),
            SearchAttribute.OUTCOME: str(self.outcome or ""),
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

    def _draw(self) -> None:
        workflow.set_current_details(details.remediation(self.status(), workflow.info().namespace))

    def status(self) -> RemediationStatus:
        incident = self.incident
        return RemediationStatus(
            server=self.server,
            incident=incident.id if incident else None,
            phase=self.phase,
            verdict=self.verdict,
            outcome=self.outcome,
            since=incident.first_observed if incident else None,
            detected_at=self.detected_at,
            restarted_at=self.restarted_at,
            closed_at=self.closed_at,
            restarts=incident.restarts if incident else 0,
            pages=self.pages,
            job=self.job,
            next_step=self._next_step,
            next_at=self._next_at,
            timeline=self.timeline,
            answers=self.answers,
        )
