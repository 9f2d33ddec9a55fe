"""What a sweep reads, leaves for the next one, and reports."""

from pydantic import AwareDatetime

from fleet.contracts.fleet import Pause, StormTerms
from fleet.contracts.names import Message
from fleet.duration_fields import Duration
from fleet.judge import Memory
from fleet.policy import Mode, Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict


class SweepRequest(Message):
    shard: int


class SweepReadings(Message):
    """Readings of a shard. ``policies`` are listed once; ``policy_of`` points into them.

    ``follows_up``: whoever read it expects the sweep to remind people, and to say what is over.
    ``unmanaged`` are the servers for which no restart is configured.
    ``keep_for``: for how long readings that were bad are kept; none are where it is none.
    ``guarded`` are the servers that steady may restart, with their machines ("" for one that has no
    guard yet): a start of another process of theirs is of interest.
    """

    interval: Duration
    version: int
    readings: list[Reading]
    policies: list[Policy]
    policy_of: dict[str, int]
    paused: dict[str, Pause] = {}
    search_attributes: bool = False
    follows_up: bool = False
    unmanaged: list[str] = []
    storm: StormTerms | None = None
    keep_for: Duration | None = None
    guarded: dict[str, str] = {}


class ProbeReadings(Message):
    """``engines`` are all that may be probed; ``seen`` those whose page was read just now."""

    engines: list[str]
    seen: SweepReadings


class SweepResult(Message):
    """What a sweep leaves for the next one, and for whoever looks.

    ``ill`` says of each server that turned bad, since when it has not been well, whatever verdicts
    followed; one that was never seen well enough to be read is not there. ``share_heard`` is a
    digest of what ``storm-guard`` was last told of this shard.
    """

    shard: int
    at: AwareDatetime
    version: int = 0
    servers: dict[str, Memory] = {}
    whys: dict[str, str] = {}
    ill: dict[str, AwareDatetime] = {}
    share_heard: str = ""


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
    ``remind``: people should hear of it again, so the open incident is asked for; ``ends``: and
    for a good one too, as it may have been left to people.
    """

    observation: Observation
    ongoing: bool = False
    good: bool = False
    mode: Mode = Mode.ACT
    quiet: Duration | None = None
    remind: bool = False
    ends: bool = False


class ReportBatch(Message):
    reports: list[Report]
    search_attributes: bool = False


class OpenIncident(Message):
    """What the guard of a server has of its incident, as far as people are told of it."""

    id: str
    since: AwareDatetime
    verdict: Verdict | None = None
    job: str | None = None


class ReportResult(Message):
    """``unsent`` names the servers whose reports reached nobody, each with the reason.

    ``incidents`` are the open ones that were asked for; those of servers that are well are over.
    """

    unsent: dict[str, str] = {}
    incidents: dict[str, OpenIncident] = {}
