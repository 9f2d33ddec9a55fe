"""The ladder of a server: its actions, weakest first, and what they may not do to other servers.

The first step is ``restart``; each restart that did not help makes the next one take the next step,
and the last one repeats.
"""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pydantic import BaseModel

from fleet.actions import (
    ComposeRestart,
    DockerRestart,
    Host,
    RebootRestart,
    Restart,
    SystemdRestart,
    machine,
    named,
    target,
)
from fleet.contracts.host import HostState, HostStatus
from fleet.parts import members
from fleet.policy import STRICT
from fleet.refusal import Refusal

At = tuple[str | int, ...]


class Step(BaseModel):
    """One step of a server's ladder, with the host that it is done on."""

    model_config = STRICT

    action: Restart
    host: Host

    def __str__(self) -> str:
        return named(self.action)


@dataclass(frozen=True)
class Act:
    """A step where it stands in the fleet file; ``rung`` is its place in the ladder, from 0."""

    server: str
    rung: int
    action: Restart
    host: Host

    @property
    def at(self) -> At:
        return ("servers", self.server, *_place(self.rung))

    @cached_property
    def targets(self) -> frozenset[tuple[object, ...]]:
        """All that is restarted, member by member of a group."""
        return frozenset(target(each, self.host) for each in members(self.action))


def _place(rung: int) -> At:
    return ("restart",) if rung == 0 else ("ladder", rung - 1)


def acts(
    server: str, restart: Restart | None, ladder: tuple[Restart, ...], hosts: Mapping[str, Host]
) -> list[Act]:
    """The steps whose hosts are known, in their order."""
    steps = enumerate([restart, *ladder])
    return [
        Act(server, rung, step, hosts[step.host])
        for rung, step in steps
        if step is not None and step.host in hosts
    ]


# --- one ladder ----------------------------------------------------------------------------------


_PROJECT = 2


def _strength(action: Restart) -> tuple[int, str]:
    match action:
        case DockerRestart():
            return 1, "a container"
        case ComposeRestart(service=None):
            return _PROJECT, "a compose project"
        case ComposeRestart():
            return 1, "a container"
        case SystemdRestart():
            return 3, "a unit"
        case RebootRestart():
            return 4, "a reboot"
    return 0, "a command"


def contradictions(ladder: list[Act]) -> Iterator[Refusal]:
    """Weakest first, all on one machine. How strong a command of one's own is, nobody can tell."""
    ranked = [(act, *_strength(act.action)) for act in ladder]
    for (_, before, weaker), (act, strength, kind) in pairwise(r for r in ranked if r[1]):
        if strength < before:
            yield Refusal(
                act.at,
                f"{kind} comes after {weaker}, which is stronger",
                "put the weakest first: container, compose project, unit, reboot",
            )
    if ladder and ladder[0].rung == 0 and _strength(ladder[0].action)[0] == _PROJECT:
        yield Refusal(
            (*ladder[0].at, "service"),
            "is missing, and without it the whole project would be restarted",
            "name the service of this server; a whole project belongs in its ladder",
        )
    for act in ladder[1:]:
        if machine(act.host) != machine(ladder[0].host):
            yield Refusal(
                act.at,
                f"{act.action.host} is another machine than {ladder[0].action.host} of the first"
                " step",
                "name the same machine; another user of it may have a [hosts] table of its own",
            )


# --- the ladders of several servers --------------------------------------------------------------


def collisions(ladders: Mapping[str, list[Act]]) -> Iterator[Refusal]:
    """What would restart a server that is not its own, and does not say so.

    A restart is for one server that is already down. A first step is never shared: one thing would
    have two locks. A stronger one may take other servers along, where it names them.
    """
    near = _Near(ladders)
    for act in [act for ladder in ladders.values() for act in ladder]:
        yield from _misnamed(act, ladders)
        hit = [other for other in near.to(act) if _hits(act, ladders[other])]
        twin = next((one for one in hit if act.rung == 0 and _is_twin(act, ladders[one])), None)
        if twin is not None:
            is_group = len(act.targets | ladders[twin][0].targets) > 1
            yield from _two_locks(act, twin, list(ladders), is_group=is_group)
            continue
        unnamed = [other for other in hit if other not in act.action.also_restarts]
        if unnamed:
            yield Refusal(
                act.at,
                f"{named(act.action)} restarts {', '.join(unnamed[:5])} as well, which may be at"
                " work",
                "leave the step out; or, where that is meant, name every one of them in"
                " also_restarts",
            )


class _Near:
    """Which servers an act could hit at all, so that not every one is compared with every other."""

    def __init__(self, ladders: Mapping[str, list[Act]]) -> None:
        self._places = {server: place for place, server in enumerate(ladders)}
        self._by_target: dict[object, set[str]] = {}
        self._by_machine: dict[str, set[str]] = {}
        for act in (act for ladder in ladders.values() for act in ladder):
            self._by_machine.setdefault(machine(act.host), set()).add(act.server)
            for each in act.targets:
                self._by_target.setdefault(each, set()).add(act.server)

    def to(self, act: Act) -> list[str]:
        """The others, in the order of the file."""
        found = set().union(*(self._by_target[each] for each in act.targets))
        if _is_of_many(act.action):
            found |= self._by_machine[machine(act.host)]
        return sorted(found - {act.server}, key=self._places.__getitem__)


def _is_of_many(action: Restart) -> bool:
    return isinstance(action, RebootRestart) or (
        isinstance(action, ComposeRestart) and action.service is None
    )


def _is_twin(act: Act, ladder: list[Act]) -> bool:
    return ladder[0].rung == 0 and bool(ladder[0].targets & act.targets)


def _two_locks(act: Act, twin: str, order: list[str], *, is_group: bool) -> Iterator[Refusal]:
    """Said once of two: of the one that stands later in the file."""
    if order.index(twin) < order.index(act.server):
        yield Refusal(
            act.at,
            f"restarts the same as servers.{twin}.restart, so one thing would have two"
            " locks and two budgets",
            "name another container, unit or host, or remove one of the two servers. What is"
            " restarted as one is one server: another may watch it, without a restart of its own"
            if is_group
            else "name another container, unit or host, or remove one of the two servers",
        )


def _hits(act: Act, ladder: list[Act]) -> bool:
    """Whether the act restarts the server of that ladder, as far as the file tells."""
    first = ladder[0]
    if first.rung == 0 and _covers(act, first):
        return True
    return act.rung > 0 and any(act.targets & other.targets for other in ladder)


def _covers(act: Act, first: Act) -> bool:
    if act.targets & first.targets:
        return True
    if machine(act.host) != machine(first.host):
        return False
    match act.action, first.action:
        case RebootRestart(), _:
            return True
        case ComposeRestart(service=None, directory=whole), ComposeRestart(directory=part):
            return posixpath.normpath(whole) == posixpath.normpath(part)
    return False


def _misnamed(act: Act, ladders: Mapping[str, list[Act]]) -> Iterator[Refusal]:
    for name in act.action.also_restarts:
        if name == act.server:
            why, remedy = "is this server itself", "name the others only"
        elif name not in ladders:
            why, remedy = "is no server of this fleet", "name a server, or leave it out"
        else:
            continue
        yield Refusal((*act.at, "also_restarts"), f"{name} {why}", remedy)


# --- what the host shows -------------------------------------------------------------------------


def beneath(step: HostState, server: HostState) -> HostState:
    """What a stronger step would act on, with the server's own process as it is now.

    A server that somebody stopped, paused or replaced is not started by a stronger step either. A
    step that has no identity of its own goes by the server's.
    """
    if server.status not in (HostStatus.RUNNING, HostStatus.UNKNOWN):
        return step.model_copy(update={"status": server.status, "detail": server.detail})
    if not step.identity and step.status is HostStatus.UNKNOWN:
        return server
    return step.model_copy(update={"started_at": server.started_at, "process": server.own_start})
