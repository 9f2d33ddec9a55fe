"""What applying a fleet would change, and whether it may be applied at all."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fleet.config import Fleet

#: A fleet travels as one payload, of which Temporal takes 2 MB; a shard's slice is another.
MOST_SERVERS = 2000
MOST_BYTES = 1_500_000


@dataclass(frozen=True)
class Change:
    """What is different between the fleet in force and another, by name of server.

    ``altered`` has the servers for which anything is different that an activity would see: a
    default or a host that changed alters every server that uses it.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    anything: bool = False


def compare(before: Fleet | None, after: Fleet) -> Change:
    old = set(before.servers) if before is not None else set()
    new = set(after.servers)
    kept = old & new
    return Change(
        added=sorted(new - old),
        removed=sorted(old - new),
        altered=[] if before is None else sorted(_altered(kept, before, after)),
        anything=before != after,
    )


def _altered(names: Iterable[str], before: Fleet, after: Fleet) -> Iterable[str]:
    return (name for name in names if before.spec(name) != after.spec(name))


def check(fleet: Fleet) -> None:
    """Whether the fleet is small enough to travel. That it holds together its model saw to.

    Raises:
        ValueError: it is not; the message names the place and the remedy.
    """
    count = len(fleet.servers)
    if count > MOST_SERVERS:
        raise ValueError(
            f"servers: {count} are more than one fleet holds ({MOST_SERVERS}): split it over"
            " several Temporal namespaces"
        )
    size = len(fleet.model_dump_json())
    if size > MOST_BYTES:
        raise ValueError(
            f"the fleet is {size:,} bytes, more than the {MOST_BYTES:,} that one fleet may have:"
            " split it over several Temporal namespaces"
        )
