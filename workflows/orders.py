"""What people and sweeps told a running remediation, until the story gets to it."""

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.remediation import OperatorRequest


class Orders:
    """Pending words. The story looks here at each step; nothing here acts by itself."""

    def __init__(self) -> None:
        self.cancel: OperatorRequest | None = None
        self.restart_now: OperatorRequest | None = None
        self.approved: OperatorRequest | None = None
        self.not_before: datetime | None = None
        self.committed = False
        self.no_more = False
        self.changed = False

    @property
    def by_hand(self) -> bool:
        return self.restart_now is not None

    @property
    def stop(self) -> bool:
        """Cancelled while there is still something to cancel."""
        return self.cancel is not None and not self.committed

    def restarted(self) -> None:
        """The command is out: approval and order are used up."""
        self.restart_now = None
        self.approved = None
