"""Alerts as a test sends them, and the fleet's settings and history that they meet."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from temporalio.testing import ActivityEnvironment

from activities.alerts import AlertActivities
from fleet.alerts import WEBHOOK
from fleet.config import Alerts, SecretRef
from fleet.contracts.alerts import AlertMessage, Delivered, Delivery, Severity
from fleet.contracts.fleet import AlertSettings
from fleet.verdicts import Verdict

SINCE = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)


class Applied:
    """A fleet that is applied: what ``PolicyReader`` answers. A test may apply another."""

    def __init__(
        self,
        webhook: SecretRef | None = None,
        *,
        notice: Sequence[SecretRef] = (),
        page: Sequence[SecretRef] = (),
        ui: str | None = None,
        mention: str = "@oncall",
    ) -> None:
        self.settings = AlertSettings(
            alerts=Alerts(webhook=webhook, notice=tuple(notice), page=tuple(page), mention=mention),
            fleet_name="lab",
            temporal_ui=ui,
        )

    async def alerts(self) -> AlertSettings:
        return self.settings


class Counted:
    """A history in which every server has so many incidents, and maybe a drill."""

    def __init__(self, count: int = 0, *, drill: bool = False) -> None:
        self._count, self._drill = count, drill

    async def incidents(self, server: str, present: str) -> int:
        return self._count

    async def is_drill(self, server: str, at: datetime) -> bool:
        return self._drill


def message(**changed: object) -> AlertMessage:
    return AlertMessage.model_validate(
        {
            "server": "gpu-1",
            "incident": f"gpu-1@{uuid.uuid4()}",
            "cause": "not_recovered",
            "severity": Severity.PAGE,
            "title": "restart did not recover gpu-1",
            "verdict": Verdict.HUNG,
            "since": SINCE,
            "job": "render-12",
            "next_step": "a second restart in 10m",
            "workflow_id": "remediate/gpu-1",
            "give_up_after": timedelta(seconds=60),
            **changed,
        }
    )


async def deliver(
    sent: AlertMessage, policies: Applied, target: str = WEBHOOK, incidents: int = 0
) -> Delivered:
    """One try at one target."""
    alerts = AlertActivities(policies, Counted())
    order = Delivery(message=sent, target=target, incidents=incidents)
    try:
        return await ActivityEnvironment().run(alerts.deliver, order)
    finally:
        await alerts.close()
