"""What a probe has to know before it asks: the engines of a shard, and who is being healed."""

import asyncio

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.engine_pages import EnginePages
from activities.pulse import pulse
from activities.readings import Policies, longest_look
from fleet.config import EngineSource, ServerSpec
from fleet.contracts.names import remediation_id
from fleet.contracts.sweep import ProbeReadings, SweepReadings, SweepRequest
from fleet.engines.reading import Page
from fleet.policy import Policy
from fleet.readings import Reading

_AT_ONCE = 50


class ProbeActivities:
    def __init__(self, policies: Policies, client: Client) -> None:
        self._policies = policies
        self._client = client
        self._pages = EnginePages()

    @activity.defn
    async def read_engines(self, request: SweepRequest) -> ProbeReadings:
        """Read every engine of a shard that may be probed and that nobody is healing just now."""
        async with pulse():
            slice_ = await self._policies.shard(request.shard)
            specs = [spec for spec in slice_.specs if _is_probed(spec)]
            longest = longest_look(len(specs), slice_.probe_every)
            slots = asyncio.Semaphore(_AT_ONCE)

            async def look(spec: ServerSpec) -> Reading | None:
                source = spec.source
                assert isinstance(source, EngineSource)
                async with slots:
                    if spec.name in slice_.paused or await self._is_being_healed(spec.name):
                        return None
                    limit = min(source.timeout, longest)
                    reading = await self._pages.look(spec.name, source, limit)
                page = reading.engine.page if reading.engine is not None else None
                return reading if page in (Page.OK, Page.LISTED) else None

            seen = await asyncio.gather(*(look(spec) for spec in specs))
        places: dict[Policy, int] = {}
        return ProbeReadings(
            engines=[spec.name for spec in specs],
            seen=SweepReadings(
                interval=slice_.probe_every,
                version=slice_.version,
                readings=[reading for reading in seen if reading is not None],
                policy_of={
                    spec.name: places.setdefault(spec.policy, len(places)) for spec in specs
                },
                policies=list(places),
                paused=slice_.paused,
                search_attributes=slice_.search_attributes,
                follows_up=True,
            ),
        )

    async def _is_being_healed(self, server: str) -> bool:
        """Whether its remediation runs, which asks by itself where that is needed."""
        handle = self._client.get_workflow_handle(remediation_id(server))
        try:
            return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        except RPCError as problem:
            if problem.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        except ValueError:
            # The SDK has no name for the status of a paused workflow; paused is open.
            return True


def _is_probed(spec: ServerSpec) -> bool:
    return isinstance(spec.source, EngineSource) and spec.source.probe
