"""What passes to and from ``storm-guard``: slots to restart in, and the share that turned bad."""

from enum import StrEnum

from pydantic import AwareDatetime, Field

from fleet.contracts.fleet import StormTerms
from fleet.contracts.names import Message
from fleet.duration_fields import Duration

#: A shard has at most so many servers.
_MOST_ILL = 500


class SlotAsk(Message):
    """A run that wants to restart ``server`` asks for a slot; asked again, it keeps its place.

    The holder is the chain of runs whose first is ``run``: continue-as-new is going on. ``number``
    counts the times that it queued anew. ``takes`` is about how long it will hold the slot. An
    order ``by_hand`` never waits, and holds a slot all the same.
    """

    server: str = Field(max_length=100)
    workflow_id: str = Field(max_length=200)
    run: str = Field(max_length=100)
    number: int = Field(default=1, ge=0)
    incident: str = Field(default="", max_length=200)
    takes: Duration
    by_hand: bool = False
    terms: StormTerms


class SlotFree(Message):
    """The run no longer needs the slot that it holds or waits for, of this ``number`` or before."""

    workflow_id: str
    run: str
    number: int


class SlotWord(Message):
    """The answer to a ``SlotAsk``: granted, or what blocks it, and until when where that is known.

    A slot that was granted and is not used yet is taken back by a word that does not grant.
    """

    run: str
    number: int
    granted: bool
    by: str = Field(default="", max_length=300)
    until: AwareDatetime | None = None


class ShareReport(Message):
    """A shard after a sweep ``at``: how many ``managed`` servers count, and which of them are bad,
    each since when.
    """

    shard: int = Field(ge=0)
    at: AwareDatetime
    managed: int = Field(ge=0)
    ill: dict[str, AwareDatetime] = Field(default={}, max_length=_MOST_ILL)
    terms: StormTerms


class OpenByHand(Message):
    who: str = ""
    why: str = ""


class Opened(Message):
    """``suspicion`` is the one that was ended; none where nothing was blocked."""

    suspicion: "Suspicion | None" = None
    waiting: int = 0


class Lease(Message):
    """A slot that is held since ``granted_at``, or waited for where that is none.

    ``answered``: the run has been told how it stands.
    """

    server: str
    workflow_id: str
    run: str
    number: int
    incident: str = ""
    takes: Duration
    by_hand: bool = False
    asked_at: AwareDatetime
    granted_at: AwareDatetime | None = None
    answered: bool = False

    @property
    def holder(self) -> tuple[str, str]:
        return self.workflow_id, self.run


class ShardView(Message):
    """What was last heard of a shard. It is suspected from ``suspect_since`` on; ``good_since``
    says since when it no longer shows why.
    """

    at: AwareDatetime
    managed: int
    ill: dict[str, AwareDatetime] = {}
    suspect_since: AwareDatetime | None = None
    good_since: AwareDatetime | None = None


class Suspicion(Message):
    """So much of a shard turned bad at once that the observer is the suspect.

    ``page_at`` is when people are to hear (again) that it still blocks.
    """

    began: AwareDatetime
    shard: int
    bad: int
    managed: int
    servers: list[str] = []
    told: bool = False
    page_at: AwareDatetime
    pages: int = 0


class Crowd(Message):
    """Some wait so long for a slot that people were told; ``page_at`` is when they are again."""

    began: AwareDatetime
    page_at: AwareDatetime
    pages: int = 1


class Over(Message):
    """A suspicion that has ended, of which people have yet to hear. ``who`` opened it by hand."""

    suspicion: Suspicion
    at: AwareDatetime
    who: str = ""
    why: str = ""


class StormState(Message):
    """All that ``storm-guard`` holds; carried through continue-as-new.

    Servers that turned bad before ``waived_at`` arouse no suspicion: a person has looked at them.
    ``looks`` counts how often the present holders were looked at, last at ``looked_at``.
    """

    terms: StormTerms = StormTerms()
    holders: list[Lease] = []
    waiting: list[Lease] = []
    shards: dict[int, ShardView] = {}
    suspicion: Suspicion | None = None
    crowd: Crowd | None = None
    over: Over | None = None
    waived_at: AwareDatetime | None = None
    opened_at: AwareDatetime | None = None
    looked_at: AwareDatetime | None = None
    looks: int = 0


class StormInput(Message):
    state: StormState | None = None


class Look(Message):
    """Which of these leases are held by a run that has closed, and what limits are in force?"""

    leases: list[SlotFree]


class Looked(Message):
    """``terms`` is none where the fleet could not be asked."""

    closed: list[SlotFree] = []
    terms: StormTerms | None = None


class StormSignal(StrEnum):
    ASK = "ask"
    FREE = "free"
    SHARE = "share"


class StormUpdate(StrEnum):
    OPEN = "open"


class StormQuery(StrEnum):
    STATE = "state"


#: The signal by which a remediation hears a ``SlotWord``.
SLOT_SIGNAL = "slot"
