"""Whom alerts reach: they write down what they are told, or can't be reached."""

from collections.abc import Callable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.alerts import NOT_DELIVERED
from fleet.contracts.alerts import AlertMessage, AlertPlan, Delivered, Delivery


class People:
    """The activities of the workflow ``Alert``, over the list ``told``."""

    def __init__(self, told: list[AlertMessage] | None = None) -> None:
        self.told: list[AlertMessage] = [] if told is None else told
        self.reachable = True

    @activity.defn
    async def plan_alert(self, message: AlertMessage) -> AlertPlan:
        return AlertPlan(targets=["webhook"])

    @activity.defn
    async def deliver(self, order: Delivery) -> Delivered:
        attempt = activity.info().attempt
        if not self.reachable:
            raise ApplicationError("HTTP 503", attempt, type=NOT_DELIVERED)
        self.told.append(order.message)
        return Delivered(target=order.target, delivered=True, attempts=attempt)

    @property
    def activities(self) -> list[Callable[..., Any]]:
        return [self.plan_alert, self.deliver]
