"""What kept readings come to under other thresholds, beside what was really done."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.ledgers import GuardReader
from fleet.config import Fleet
from fleet.contracts.names import RECORD, record_id
from fleet.contracts.record import Kept, Look, RecordQuery
from fleet.durations import brief
from fleet.policy import Policy
from fleet.recording import unpacked
from fleet.replay import Episode, by_server, episodes, is_of_an_engine, paired, unknowable
from fleet.verdicts import Verdict
from worker.asking import ask
from worker.sweeps import first

_PATIENCE = timedelta(seconds=10)
_AT_ONCE = 8
_MOST_SHARDS = 200


class Fate(BaseModel):
    """What would have become of a stretch: a restart, one that the budget refused, or none.

    ``known`` is false where none was due before a real restart, and the server was well then:
    whether it would have become so without that one is in no record.
    """

    model_config = ConfigDict(frozen=True)

    restarted_at: AwareDatetime | None = None
    refused_at: AwareDatetime | None = None
    said: str = "not confirmed"
    known: bool = True


class Stretch(BaseModel):
    """A server that was bad from ``first`` to ``ended`` (none: it goes on).

    ``now`` is what the fleet file makes of it, ``then`` what the change does (none: there is none).
    ``really`` are the restarts that the server's ledger has of that time. ``by_itself``: it got
    well, and nobody had restarted it.
    """

    model_config = ConfigDict(frozen=True)

    server: str
    verdict: Verdict
    first: AwareDatetime
    ended: AwareDatetime | None
    now: Fate
    then: Fate | None
    really: list[AwareDatetime] = []
    by_itself: bool = False


class Replay(BaseModel):
    """``kept_since`` is when the records begin; ``limits`` say what they can't tell."""

    model_config = ConfigDict(frozen=True)

    at: AwareDatetime
    since: AwareDatetime
    kept_since: AwareDatetime | None = None
    readings: int = 0
    dropped: int = 0
    stretches: list[Stretch] = []
    limits: list[str] = []
    problems: list[str] = []


@dataclass
class Material:
    """Kept readings of all shards, and the restarts of each server that its ledger has."""

    looks: list[Look] = field(default_factory=list)
    since: datetime | None = None
    dropped: int = 0
    dropped_until: datetime | None = None
    restarts: dict[str, list[datetime]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


async def read_material(client: Client, fleet: Fleet) -> Material:
    """All that is kept of the fleet's servers.

    Raises:
        RPCError: Temporal is out of reach, or no worker answers.
    """
    found = Material()
    query = f"WorkflowType = '{RECORD}' AND ExecutionStatus = 'Running'"
    runs = first(client.list_workflows(query, rpc_timeout=_PATIENCE), _MOST_SHARDS)
    # The listing lags behind; the first shard is asked in any case.
    shards = {record_id(0)} | {run.id async for run in runs}
    kept = await asyncio.gather(*(_kept(client, shard) for shard in sorted(shards)))
    for each in kept:
        if each is None:
            continue
        found.looks += unpacked(each.looks)
        found.since = min(filter(None, (found.since, each.since)), default=None)
        found.dropped += each.dropped
        ends = filter(None, (found.dropped_until, each.dropped_until))
        found.dropped_until = max(ends, default=None)
    names = {look.server for look in found.looks}
    await _read_restarts(client, sorted(names & set(fleet.servers)), found)
    return found


async def _kept(client: Client, shard: str) -> Kept | None:
    try:
        return await ask(client.get_workflow_handle(shard), RecordQuery.KEPT, Kept, _PATIENCE)
    except RPCError as problem:
        if problem.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def _read_restarts(client: Client, names: Sequence[str], found: Material) -> None:
    reader, slots = GuardReader(client), asyncio.Semaphore(_AT_ONCE)

    async def read(name: str) -> None:
        try:
            async with slots:
                guard = await reader.state(name)
        except (RPCError, WorkflowQueryFailedError, ValueError) as problem:
            said = " ".join(str(problem).split())[:200]
            found.problems.append(f"the ledger of {name} can't be read: {said}")
            return
        found.restarts[name] = [take.at for take in guard.takes] if guard is not None else []

    await asyncio.gather(*map(read, names))


def replay(
    material: Material,
    fleet: Fleet,
    since: datetime,
    change: Callable[[str], Policy] | None,
    server: str | None = None,
) -> Replay:
    """Judge what was kept, as the fleet file says and with a change: ``change`` is the policy that
    a server would have.
    """
    now = datetime.now(UTC)
    problems, limits = list(material.problems), _bounds(material, since)
    stretches: list[Stretch] = []
    engines, gone, unarmed = set(), set(), set()
    looks = by_server(material.looks)
    for name, of_one in looks.items():
        if server not in (None, name):
            continue
        if name not in fleet.servers:
            gone.add(name)
            continue
        if is_of_an_engine(of_one):
            engines.add(name)
            continue
        policy, tried = fleet.policy(name), change(name) if change is not None else None
        found = _stretches(of_one, (policy, tried), now, material.restarts.get(name, []))
        stretches += [each for each in found if each.ended is None or each.ended >= since]
        limits += [said for said in unknowable(policy, tried or policy) if said not in limits]
        if found and fleet.servers[name].restart is None:
            unarmed.add(name)
    limits += [
        *_of("no restart is configured, so a person would have been told instead", unarmed),
        *_of("engines are left out: whether one is stuck is asked of it, not read", engines),
        *_of("no longer in the fleet, and left out", gone),
    ]
    return Replay(
        at=now,
        since=since,
        kept_since=material.since,
        readings=sum(map(len, looks.values())),
        dropped=material.dropped,
        stretches=sorted(stretches, key=lambda each: each.first),
        limits=limits,
        problems=problems,
    )


def _stretches(
    looks: Sequence[Look],
    policies: tuple[Policy, Policy | None],
    until: datetime,
    restarts: Sequence[datetime],
) -> list[Stretch]:
    policy, tried = policies
    now = episodes(looks, policy, until)
    then = episodes(looks, tried, until) if tried is not None else []
    found = []
    for pair in paired(now, then, until):
        both = [each for each in (pair.now, pair.then) if each is not None]
        begin = min(each.first for each in both)
        ended = pair.either.ended
        really = [at for at in restarts if begin <= at <= (ended or until)]
        found.append(
            Stretch(
                server=pair.either.server,
                verdict=pair.either.verdict,
                first=begin,
                ended=ended,
                now=_fate(pair.now, really, ended),
                then=_fate(pair.then, really, ended) if tried is not None else None,
                really=really,
                by_itself=ended is not None and not really,
            )
        )
    return found


def _fate(episode: Episode | None, really: Sequence[datetime], ended: datetime | None) -> Fate:
    acts = episode is not None and (episode.restarted or episode.refused) is not None
    if really and ended is not None and not acts:
        return Fate(said="not known: it was really restarted before that", known=False)
    if episode is None:
        return Fate()
    return Fate(restarted_at=episode.restarted, refused_at=episode.refused, said=episode.fate())


def _bounds(material: Material, since: datetime) -> list[str]:
    """From when on the records tell something."""
    said = []
    if material.since is None:
        said.append("nothing was kept yet: readings are, from the first bad one on")
    elif material.since > since:
        said.append(f"nothing was kept before {material.since:%Y-%m-%d %H:%M} UTC")
    if material.dropped and material.dropped_until is not None:
        until = f"{material.dropped_until:%Y-%m-%d %H:%M} UTC"
        said.append(f"{material.dropped} readings up to {until} had no room any more")
    return said


def _of(said: str, servers: set[str]) -> list[str]:
    names = sorted(servers)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return [f"{', '.join(names[:5])}{more}: {said}"] if names else []


def summary(found: Replay, change: str) -> list[str]:
    """How many restarts it comes to, in one line each."""
    lines = [_count("as the fleet file says", found.stretches, [s.now for s in found.stretches])]
    if change:
        fates = [each.then or Fate() for each in found.stretches]
        lines.append(_count(f"with {change}", found.stretches, fates))
    real = sum(len(each.really) for each in found.stretches)
    lines.append(f"what was really done: {_many(real, 'restart')}")
    return lines


def _count(what: str, stretches: Sequence[Stretch], fates: Sequence[Fate]) -> str:
    both = list(zip(stretches, fates, strict=True))
    hit = [each for each, fate in both if fate.restarted_at is not None]
    servers = {each.server for each in hit}
    refused = sum(fate.refused_at is not None for _, fate in both)
    said = f"{what}: {_many(len(hit), 'restart')} of {_many(len(servers), 'server')}"
    said += f", {refused} refused" if refused else ""
    unknown = sum(not fate.known for fate in fates)
    said += f", {unknown} not known" if unknown else ""
    needless = sum(each.by_itself for each in hit)
    return said + (f"; {needless} got well without one" if needless else "")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def lasted(stretch: Stretch, now: datetime) -> str:
    if stretch.ended is None:
        return f"{brief(now - stretch.first)}, still"
    return brief(stretch.ended - stretch.first) + (", by itself" if stretch.by_itself else "")
