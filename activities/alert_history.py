"""What Temporal still knows of a server, that adorns its alerts: earlier ones, and a drill."""

import re
from datetime import UTC, datetime, timedelta

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fleet.config import NAME
from fleet.contracts.names import ALERT, drill_id

_LOOKED_BACK = timedelta(hours=24)
_PATIENCE = timedelta(seconds=5)
_MOST = 1000

_log = structlog.get_logger()


class AlertHistory:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def incidents(self, server: str, present: str) -> int:
        """The server's incidents of the last 24 h, ``present`` included; 0 where none can say.

        It only adorns an alert, so nothing that goes wrong here is raised.
        """
        if not re.fullmatch(NAME, server):
            return 0
        prefix, since = f"alert/{server}@", datetime.now(UTC) - _LOOKED_BACK
        query = (
            f"WorkflowType = '{ALERT}' AND WorkflowId STARTS_WITH '{prefix}'"
            f" AND StartTime > '{since:%Y-%m-%dT%H:%M:%SZ}'"
        )
        found = {present}
        try:
            async for each in self._client.list_workflows(
                query, limit=_MOST, rpc_timeout=_PATIENCE
            ):
                found.add(each.id.removeprefix("alert/").partition("/")[0])
        except RPCError as problem:
            _log.info("incidents can't be counted", server=server, why=problem.status.name)
            return 0
        return len(found)

    async def is_drill(self, server: str, at: datetime) -> bool:
        """Whether a drill of the server was under way ``at`` a moment; false where none can say."""
        try:
            drill = await self._client.get_workflow_handle(drill_id(server)).describe(
                rpc_timeout=_PATIENCE
            )
        except RPCError as problem:
            if problem.status is not RPCStatusCode.NOT_FOUND:
                _log.info("drills can't be seen", server=server, why=problem.status.name)
            return False
        return drill.start_time <= at and (drill.close_time is None or at <= drill.close_time)
