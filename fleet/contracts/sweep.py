"""What a sweep reads, leaves for the next one, and reports."""

from pydantic import AwareDatetime

from fleet.contracts.fleet import Pause
from fleet.contracts.names import Message
from fleet.durations import Duration
from fleet.judge import Memory
from fleet.policy import Mode, Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict


class SweepRequest(Message):
    shard: int


class SweepReadings(Message):
    """Readings of a shard. ``policies`` are listed once; ``policy_of`` points into them."""

    interval: Duration
    version: int
    readings: list[Reading]
    policies: list[Policy]
    policy_of: dict[str, int]
    paused: dict[str, Pause] = {}
    search_attributes: bool = False


class SweepResult(Message):
    """What a sweep leaves for the next one, and for whoever looks."""

    shard: int
    at: AwareDatetime
    version: int = 0
    servers: dict[str, Memory] = {}
    whys: dict[str, str] = {}


class Observation(Message):
    """A confirmed verdict on its way to a remediation. ``key`` is the sweep run: it dedupes."""

    server: str
    verdict: Verdict
    since: AwareDatetime
    reading: Reading
    why: str = ""
    key: str = ""


class Report(Message):
    """``ongoing``: reported before; only makes sure that somebody still cares for it.

    ``quiet`` is how long a suspicion is left alone after one that was not confirmed.
    """

    observation: Observation
    ongoing: bool = False
    good: bool = False
    mode: Mode = Mode.ACT
    quiet: Duration | None = None


class ReportBatch(Message):
    reports: list[Report]
    search_attributes: bool = False


class ReportResult(Message):
    """``unsent`` names the servers whose reports reached nobody, each with the reason."""

    unsent: dict[str, str] = {}
