"""What people are told, by whom it is delivered, and what came of it."""

from datetime import timedelta
from enum import StrEnum

from pydantic import AwareDatetime, Field

from fleet.contracts.names import Message
from fleet.duration_fields import Duration
from fleet.verdicts import Verdict


class Severity(StrEnum):
    NOTICE = "notice"
    PAGE = "page"


class AlertAction(StrEnum):
    """What a service that threads or resolves should do with what it has under the incident."""

    TRIGGER = "trigger"
    UPDATE = "update"
    RESOLVE = "resolve"


class AlertMessage(Message):
    """One message a cause an incident; ``server`` is empty where it is of the whole fleet.

    ``paged``: whoever gets pages has heard of the incident, and so hears of its good end.
    """

    server: str
    incident: str
    cause: str
    severity: Severity
    action: AlertAction = AlertAction.TRIGGER
    title: str
    verdict: Verdict | None = None
    since: AwareDatetime | None = None
    job: str | None = None
    next_step: str = ""
    detail: str = Field(default="", max_length=1000)
    raised_at: AwareDatetime | None = None
    workflow_id: str = ""
    give_up_after: Duration = timedelta(hours=24)
    paged: bool = False


class AlertPlan(Message):
    """Who is told, by name; ``incidents`` are the server's of the last 24 h, 0 if not counted.

    ``drill`` says that the server was frozen on purpose when the alert was raised.
    """

    targets: list[str] = []
    incidents: int = 0
    drill: bool = False


class Delivery(Message):
    message: AlertMessage
    target: str
    incidents: int = 0
    drill: bool = False


class Delivered(Message):
    """What came of one target; ``gone`` says that the fleet no longer names it."""

    target: str
    delivered: bool
    attempts: int = 0
    detail: str = ""
    gone: bool = False


class AlertResult(Message):
    """``delivered`` says that every target that the fleet still names has it."""

    delivered: bool
    detail: str = ""
    targets: list[Delivered] = []
