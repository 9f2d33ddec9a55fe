"""What a server is, where its open incident has proved what no sweep can see: to every sweep an
engine that froze while idle looks well.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.ledgers import GuardReader
from fleet.contracts.guard import Incident
from fleet.contracts.names import REMEDIATION, SearchAttribute, remediation_id
from fleet.contracts.remediation import Phase
from fleet.judge import Memory
from fleet.verdicts import Verdict
from worker.sweeps import first

_PATIENCE = timedelta(seconds=3)
_AT_ONCE = 8
#: So many runs are looked through for what they proved, newest first.
_MOST = 300

#: What a remediation proves by a request, and what an engine like that shows to every sweep.
_PROVED = frozenset({Verdict.STUCK, Verdict.UNRESPONSIVE})
_LOOKS_LIKE = frozenset({Verdict.IDLE, Verdict.SUSPECT})
#: From the command on the proof is about a process that may be gone: the sweep knows more.
_OUTDATED_IN = frozenset(
    {Phase.SETTLING, Phase.FREEING, Phase.COOLING, Phase.VERIFYING, Phase.CLOSED}
)


def is_proved(swept: Verdict | None, incident: Verdict | None, phase: Phase | str | None) -> bool:
    """Whether the verdict of the open incident holds, and not what the last sweep saw."""
    return incident in _PROVED and phase not in _OUTDATED_IN and swept in _LOOKS_LIKE


def held_verdict(swept: Verdict | None, incident: Incident | None) -> Verdict | None:
    """What holds of a server without a remediation, whose guard may still keep an open incident."""
    proved = incident.verdict if incident is not None else None
    return proved if proved in _PROVED and swept in _LOOKS_LIKE else swept


class ProvedReader:
    """Also of incidents whose remediation has ended, and that wait for a person."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._guards = GuardReader(client)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def over(self, memories: Mapping[str, Memory], problems: list[str]) -> dict[str, Memory]:
        """What the sweeps left, with what open incidents have proved in place of it."""
        found = dict(memories)
        for name, incident in (await self.incidents(memories, problems)).items():
            proved = {"verdict": incident.verdict, "since": incident.first_observed}
            found[name] = memories[name].model_copy(update=proved)
        return found

    async def incidents(
        self, memories: Mapping[str, Memory], problems: list[str]
    ) -> dict[str, Incident]:
        """The open incidents that have proved what the sweeps of these servers can't see."""
        quiet = {
            name
            for name, memory in memories.items()
            if memory.engine and memory.verdict in _LOOKS_LIKE
        }
        names = await self._suspected(quiet, problems) if quiet else []
        found = await asyncio.gather(*(self._incident(name) for name in names))
        return {
            name: incident
            for name, incident in zip(names, found, strict=True)
            if incident is not None and incident.verdict in _PROVED
        }

    async def _suspected(self, names: set[str], problems: list[str]) -> list[str]:
        """Those of which a remediation ever proved something; without search attributes, all."""
        verdicts = ", ".join(f"'{verdict}'" for verdict in sorted(_PROVED))
        query = f"WorkflowType = '{REMEDIATION}' AND {SearchAttribute.VERDICT} IN ({verdicts})"
        runs = self._client.list_workflows(query, rpc_timeout=_PATIENCE)
        try:
            known = [run.id.removeprefix(remediation_id("")) async for run in first(runs, _MOST)]
        except RPCError as problem:
            if problem.status is not RPCStatusCode.INVALID_ARGUMENT:
                problems.append(f"the remediations of engines: {str(problem)[:200]}")
                return []
            known = sorted(names)
        return [name for name in dict.fromkeys(known) if name in names][:_MOST]

    async def _incident(self, name: str) -> Incident | None:
        """The open one; where its guard does not answer, the sweep is believed."""
        try:
            async with self._slots, asyncio.timeout(_PATIENCE.total_seconds()):
                guard = await self._guards.state(name)
        except (RPCError, WorkflowQueryFailedError, TimeoutError, ValueError):
            return None
        return guard.incident if guard is not None else None
