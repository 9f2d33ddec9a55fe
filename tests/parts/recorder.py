"""Writes histories of a real server to files, without what says where they were recorded."""

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle


class Recorder:
    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self._folder = client, folder

    async def write(self, name: str, workflow_id: str, run_id: str | None = None) -> None:
        """Write the history of a run, by default of the newest, one event a line."""
        handle = self.client.get_workflow_handle(workflow_id, run_id=run_id)
        recorded = (await handle.fetch_history()).to_json_dict()
        events = ",\n".join(json.dumps(_public(event)) for event in recorded["events"])
        (self._folder / f"{name}.json").write_text(f'{{"events":[\n{events}\n]}}\n')

    async def write_chain(self, name: str, handle: WorkflowHandle[Any, Any]) -> None:
        """Write the first run, which continued as new, and the one that followed it."""
        first = handle.first_execution_run_id
        await self.write(name, handle.id, first)
        await self.write(f"{name}-continued", handle.id)


def _public(value: Any) -> Any:
    """Without the stack traces, which say where the machine that recorded keeps its files."""
    if isinstance(value, dict):
        return {name: _public(inner) for name, inner in value.items() if name != "stackTrace"}
    if isinstance(value, list):
        return [_public(inner) for inner in value]
    return value


Part = Callable[["Recorder"], Coroutine[Any, Any, None]]
