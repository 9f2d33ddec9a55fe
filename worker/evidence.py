"""The evidence on this machine's disk: for how long it is kept, and whether it is still there."""

from temporalio.client import Client

from activities.guards import GuardReader
from activities.retention import Retention
from fleet.retention import Limits
from worker.settings import Settings


def retention(client: Client, settings: Settings) -> Retention:
    limits = Limits(span=settings.evidence_keep, size=int(settings.evidence_size))
    return Retention(settings.state_dir, limits, GuardReader(client))
