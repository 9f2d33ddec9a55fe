"""What runs beside a worker: its vital signs, who may ask for them, the dead man's switch, and who
ends evidence that is too old.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta

import structlog
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from worker.census import CensusTaker
from worker.deadman import DeadMansSwitch
from worker.evidence import retention
from worker.listener import Pages, listening
from worker.metrics import Metrics
from worker.scrape import Scrape
from worker.settings import Settings
from worker.sweeps import SweepReader
from worker.vitals import Vitals, keep_beating

LOOK_EVERY = timedelta(seconds=10)
_PATIENCE = timedelta(seconds=5)
_HIDDEN = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED)
_KINDS = {
    "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def watch(client: Client, settings: Settings) -> AsyncIterator[Vitals]:
    """Watch over the worker that the block runs, and serve what is seen where settings say so.

    Raises:
        SetupError: the address of the settings can't be listened on.
    """
    vitals = Vitals()
    metrics = Metrics(vitals)
    switch = DeadMansSwitch.on(client, metrics.pinged)
    async with AsyncExitStack() as stack:
        if settings.listen is not None:
            scrape = Scrape(CensusTaker(client), metrics, lambda: vitals.shards)
            pages = Pages(vitals.diagnose, scrape.page)
            port = stack.enter_context(listening(settings.listen, pages))
            _log.info("listening", host=settings.listen.rpartition(":")[0], port=port)
        for work in (
            keep_beating(vitals),
            _keep_looking(client, settings, vitals),
            switch.run(),
            retention(client, settings).run(),
        ):
            task = asyncio.create_task(work)
            stack.push_async_callback(_end, task)
        yield vitals


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _keep_looking(client: Client, settings: Settings, vitals: Vitals) -> None:
    """Look at the sweeps and the polls until cancelled; what fails is left out of the vitals."""
    sweeps, failing = SweepReader(client), False
    while True:
        try:
            shards = await sweeps.fetch()
            vitals.answered(shards, await polls(client, settings.task_queue))
            failing = False
        except (RPCError, TimeoutError) as problem:
            if not failing:
                _log.warning("Temporal can't be looked at", problem=str(problem)[:200])
            failing = True
        except Exception:  # noqa: BLE001 - what it can't see, /health says
            _log.exception("a look at Temporal failed")
        await asyncio.sleep(LOOK_EVERY.total_seconds())


async def polls(client: Client, task_queue: str) -> dict[str, datetime | None]:
    """When the server last saw this worker begin to poll for each kind of task.

    It lists pollers for minutes after they are gone, so only that this moment moves on counts. A
    server that shows nobody its pollers leaves this sign out.
    """
    found: dict[str, datetime | None] = {}
    for kind, number in _KINDS.items():
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=number,
        )
        try:
            about = await client.workflow_service.describe_task_queue(request, timeout=_PATIENCE)
        except RPCError as problem:
            if problem.status in _HIDDEN:
                return {}
            raise
        mine = [each for each in about.pollers if each.identity == client.identity]
        times = [each.last_access_time.ToDatetime(UTC) for each in mine]
        found[kind] = max(times, default=None)
    return found
