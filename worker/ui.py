"""Where the Temporal UI is, as far as anybody says."""

import asyncio
from datetime import timedelta

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from fleet.contracts.fleet import FleetQuery, FleetState
from fleet.contracts.names import FLEET_ID
from worker.client import settings
from worker.state import noted_temporal

_PATIENCE = timedelta(seconds=3)


async def temporal_ui(client: Client) -> str | None:
    """The one of this folder's ``steady up`` if it is the server in use; else what the fleet file
    names, where a worker answers for it.
    """
    embedded = noted_temporal(settings().state_dir)
    if embedded is not None and embedded.address == client.service_client.config.target_host:
        return embedded.ui_url
    handle = client.get_workflow_handle(FLEET_ID)
    try:
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            state: FleetState = await handle.query(FleetQuery.STATE, result_type=FleetState)
    except (RPCError, WorkflowQueryFailedError, TimeoutError):
        return None
    return state.fleet.fleet.temporal_ui if state.fleet is not None else None
