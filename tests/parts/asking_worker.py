"""``python -m tests.parts.asking_worker ADDRESS QUEUE SOURCE``: a worker that only asks engines.

``SOURCE`` is the engine's source, in JSON. It is made to be killed in the middle of a request.
"""

import asyncio
import sys

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from activities.asking import AskActivities
from fleet.config import ServerSpec
from fleet.contracts.fleet import PresentPolicy, ShardSlice
from fleet.durations import parse
from fleet.engine_sources import EngineSource
from fleet.policy import Policy


class OneEngine:
    """What ``PolicyReader`` answers of a fleet of one engine."""

    def __init__(self, name: str, source: EngineSource) -> None:
        self._spec = ServerSpec(
            name=name, source=source, store=None, restart=None, host=None, policy=Policy()
        )

    async def present(self, server: str) -> PresentPolicy:
        return PresentPolicy(version=1, spec=self._spec)

    async def shard(self, number: int) -> ShardSlice:
        return ShardSlice(version=1, interval=parse("30s"), specs=[self._spec])


async def main(address: str, queue: str, source: str) -> None:
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    asking = AskActivities(OneEngine("v-1", EngineSource.model_validate_json(source)))
    async with Worker(client, task_queue=queue, activities=[asking.ask_engine]):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
