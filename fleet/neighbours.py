"""Containers that hang together: what a restart of one does to others, and to itself.

A container that runs in the network namespace of another loses its network when that one is
restarted, without a word: it must be restarted after it, or somebody must be told.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.contracts.host import HostErrorType
from fleet.host_replies import Reply, ReplyError

_JOINED = "container:"


@dataclass(frozen=True)
class Neighbour:
    """A container with its network mode; ``removes_itself`` when it ends (``--rm``)."""

    id: str
    name: str
    network: str
    removes_itself: bool

    @property
    def joins(self) -> str:
        """The ID or name of the container in whose network namespace it runs, or empty."""
        return self.network.removeprefix(_JOINED) if self.network.startswith(_JOINED) else ""

    def is_called(self, word: str) -> bool:
        return word in (self.id, self.name)


def neighbours(reply: Reply) -> list[Neighbour]:
    """Read the answer to ``neighbours_argv``, a line for each container.

    One that went away in between is missing, and makes the command fail; the others are good.

    Raises:
        ReplyError: it can't be understood.
    """
    return [_neighbour(line, reply) for line in reply.out.splitlines() if line.strip()]


def _neighbour(line: str, reply: Reply) -> Neighbour:
    try:
        shown = json.loads(line)
        return Neighbour(
            id=str(shown["id"]),
            name=str(shown["name"]).removeprefix("/"),
            network=str(shown["network"]),
            removes_itself=shown["rm"] is True,
        )
    except (ValueError, KeyError, TypeError):
        raise ReplyError(
            HostErrorType.MISCONFIGURED,
            f"what the container engine says of its containers can't be understood: {reply.tail()}",
        ) from None


def hindrance(
    restarted: Sequence[Neighbour], running: Sequence[Neighbour], *, in_order: bool = True
) -> str:
    """Why a restart of these containers would do harm; empty where it would not.

    ``running`` are all that run on the host, the restarted ones or not. ``in_order``: they are
    started in the order in which they stand; else whoever starts them knows a good one.
    """
    for each in restarted:
        if each.removes_itself:
            return (
                f"{each.name} was started with --rm: once stopped it is removed, its logs with it,"
                " and there is nothing left to start. Run it without --rm, or let what starts it"
                ' be restarted (kind = "systemd" or "command")'
            )
    return next(iter(_sharing(restarted, running, in_order=in_order)), "")


def _sharing(
    restarted: Sequence[Neighbour], running: Sequence[Neighbour], *, in_order: bool
) -> Sequence[str]:
    inside = {each.id for each in restarted}
    outside = [each for each in running if each.id not in inside]
    found = []
    for at, each in enumerate(restarted):
        if each.joins:
            owner = next((one for one in restarted if one.is_called(each.joins)), None)
            if owner is None:
                named = next((one.name for one in outside if one.is_called(each.joins)), each.joins)
                found.append(_alone(each.name, f"runs in the network of {named[:64]}"))
            elif in_order and owner in restarted[at:]:
                found.append(
                    f"{each.name} runs in the network of {owner.name}, which the group starts after"
                    f" it: name {owner.name} before {each.name} in its group"
                )
        joining = [one.name for one in outside if one.joins and each.is_called(one.joins)]
        if joining:
            said = f"{', '.join(joining)} {'runs' if len(joining) == 1 else 'run'} in its network"
            found.append(_alone(each.name, f"is not alone: {said}, and would lose it"))
    return found


def _alone(name: str, why: str) -> str:
    return (
        f"{name} {why}: containers that share a network are restarted as one, in order, or not at"
        " all. Name them all as its group, the owner of the network first"
    )
