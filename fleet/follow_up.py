"""What people hear once more of incidents that remediations opened, which their guards know."""

from dataclasses import replace

from fleet import reminders
from fleet.alerts import RECOVERED_LATER
from fleet.contracts.alerts import AlertAction, AlertMessage, Severity
from fleet.contracts.names import remediation_id
from fleet.contracts.sweep import Observation, OpenIncident, ReportResult
from fleet.durations import brief
from fleet.sweep import Judgement
from fleet.verdicts import Verdict


def followed_up(judgement: Judgement, sent: ReportResult) -> Judgement:
    """The judgement with what people hear once more of incidents that remediations opened: that
    they are still open, and that one which was left to people is over.
    """
    if not sent.incidents:
        return judgement
    alerts, servers = list(judgement.alerts), dict(judgement.result.servers)
    for report in judgement.reports:
        server = report.observation.server
        incident = sent.incidents.get(server)
        if incident is None:
            continue
        if report.good:
            alerts.append(_recovered(report.observation, incident))
        elif number := judgement.reminders.get(server):
            alerts.append(_still_open(report.observation, incident, number))
            servers[server] = servers[server].model_copy(update={"told": number + 1})
    result = judgement.result.model_copy(update={"servers": servers})
    return replace(judgement, result=result, alerts=alerts)


def _recovered(seen: Observation, incident: OpenIncident) -> AlertMessage:
    return AlertMessage(
        server=seen.server,
        incident=incident.id,
        cause=RECOVERED_LATER,
        severity=Severity.NOTICE,
        action=AlertAction.RESOLVE,
        paged=True,
        title=f"{seen.server} has recovered",
        verdict=incident.verdict,
        since=incident.since,
        job=incident.job,
        detail=f"{seen.verdict}: {seen.why}",
    )


def _still_open(seen: Observation, incident: OpenIncident, number: int) -> AlertMessage:
    """What was proved of an engine is more than the suspicion that it shows ever after."""
    is_doubt = seen.verdict is Verdict.SUSPECT and incident.verdict is not None
    verdict = incident.verdict if is_doubt else seen.verdict
    return AlertMessage(
        server=seen.server,
        incident=incident.id,
        cause=reminders.cause(number),
        severity=Severity.PAGE,
        action=AlertAction.UPDATE,
        title=f"{seen.server} is still {verdict}, for {brief(seen.reading.at - seen.since)}",
        verdict=verdict,
        since=incident.since,
        job=incident.job,
        detail=seen.why,
        next_step="a person has to look: `steady incident show` tells what was done",
        workflow_id=remediation_id(seen.server),
    )
