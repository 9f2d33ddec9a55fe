"""The evidence on workers' disks: for how long it is kept, and whether it is still there."""

import socket
from enum import StrEnum
from pathlib import Path

from temporalio.client import Client

from activities.ledgers import GuardReader
from activities.retention import Retention
from fleet.retention import Limits
from worker.deeds import Saved
from worker.settings import Settings


def retention(client: Client, settings: Settings) -> Retention:
    limits = Limits(span=settings.evidence_keep, size=int(settings.evidence_size))
    return Retention(settings.state_dir, limits, GuardReader(client))


class Place(StrEnum):
    """Where a bundle is, as seen from this machine."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    EXPIRED = "expired"


def place(saved: Saved) -> Place:
    """What can be said of a bundle without asking the machine that keeps it.

    Where its machine is this one, or was not named by an older worker, it has expired if its shelf
    is here and it is not on it.
    """
    path = Path(saved.path or "")
    shelf = path.parent.parent
    own = shelf.name == "evidence" and shelf.is_dir()
    if saved.kept_on and saved.kept_on != socket.gethostname():
        return Place.ELSEWHERE
    return Place.EXPIRED if own and not path.is_dir() else Place.HERE
