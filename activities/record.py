"""Hands readings to the record of their shard, which begins with the first of them."""

from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from activities.pulse import pulse
from fleet.contracts.names import RECORD, record_id
from fleet.contracts.record import KeepRequest, RecordInput, RecordSignal

_RPC_TIMEOUT = timedelta(seconds=5)


class RecordActivities:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def keep_readings(self, request: KeepRequest) -> None:
        """Signal-with-start ``record/<shard>``; what is sent twice is kept once.

        Raises:
            RPCError: Temporal is out of reach.
        """
        async with pulse():
            await self._client.start_workflow(
                RECORD,
                RecordInput(shard=request.shard),
                id=record_id(request.shard),
                task_queue=activity.info().task_queue,
                start_signal=RecordSignal.KEEP,
                start_signal_args=[request],
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                static_summary=f"bad readings of shard {request.shard}, for steady replay",
                rpc_timeout=_RPC_TIMEOUT,
            )
