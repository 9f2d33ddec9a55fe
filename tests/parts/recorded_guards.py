"""Ledgers to be recorded: lost, and so old that they continue as new."""

from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.worker import Worker

from fleet.contracts.guard import (
    GiveBackRequest,
    GuardInput,
    GuardSignal,
    GuardUpdate,
    HostGuardInput,
    HostSignal,
    HostTakeRequest,
    InheritRequest,
    ResetRequest,
    Take,
    TakeRequest,
)
from fleet.contracts.names import HOST_GUARD, SERVER_GUARD, guard_id, host_guard_id
from fleet.policy import RollingBudget
from tests.parts.recorder import Recorder
from workflows.guard import ServerGuard
from workflows.host_guard import HostGuard

_QUEUE = "recorded-guards"
_NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
_CLAIM: dict[str, Any] = {
    "incident": "",
    "budget": RollingBudget(limit=3),
    "cooldown": timedelta(minutes=10),
}


async def guards(recorder: Recorder) -> None:
    async with Worker(recorder.client, task_queue=_QUEUE, workflows=[ServerGuard, HostGuard]):
        await _of_a_server(recorder)
        await _of_a_machine(recorder)


# --- of a server ---------------------------------------------------------------------------------


async def _of_a_server(recorder: Recorder) -> None:
    await _guard(recorder, "lost", founding=False)
    await recorder.write("guard-lost", guard_id("lost"))

    handle = await _guard(recorder, "for_long", founding=True)
    present = recorder.client.get_workflow_handle(handle.id)
    await present.execute_update(
        GuardUpdate.INHERIT, InheritRequest(server="for_long", takes=[_other("its old name")])
    )
    await present.execute_update(GuardUpdate.RESET, _reset("for_long"))
    while (await present.describe()).run_id == handle.first_execution_run_id:
        await present.signal(GuardSignal.FORGET_HOLD)
    await present.execute_update(GuardUpdate.TAKE, _take("for_long", "one more"))
    await recorder.write_chain("guard-for_long", handle)


async def _guard(recorder: Recorder, name: str, *, founding: bool) -> WorkflowHandle[Any, Any]:
    handle: WorkflowHandle[Any, Any] = await recorder.client.start_workflow(
        SERVER_GUARD,
        GuardInput(server=name, founding=founding),
        id=guard_id(name),
        task_queue=_QUEUE,
    )
    for number in range(4):
        await handle.execute_update(GuardUpdate.TAKE, _take(name, f"try {number}"))
    return handle


def _take(server: str, key: str) -> TakeRequest:
    return TakeRequest(server=server, key=key, **_CLAIM)


def _reset(server: str, machine: str = "") -> ResetRequest:
    return ResetRequest(server=server, machine=machine, who="ann", why="new fan", key="reset")


def _other(key: str) -> Take:
    return Take(key=key, at=_NOON, cooldown_until=_NOON, by="bob")


# --- of a machine --------------------------------------------------------------------------------


async def _of_a_machine(recorder: Recorder) -> None:
    lost = await _host_guard(recorder, "lost", founding=False)
    await recorder.write("host-guard-lost", lost.id)

    machine = "for_long"
    handle = await _host_guard(recorder, machine, founding=True)
    present = recorder.client.get_workflow_handle(handle.id)
    await present.execute_update(
        GuardUpdate.GIVE_BACK,
        GiveBackRequest(
            server="gpu-1", machine=machine, key="gpu-1/try 0", proof="nothing was sent"
        ),
    )
    await present.execute_update(GuardUpdate.RESET, _reset("gpu-1", machine))
    number = 0
    while (await present.describe()).run_id == handle.first_execution_run_id:
        number += 1
        await present.signal(HostSignal.BOOK, _other(f"gpu-2/{number}"))
    await present.execute_update(GuardUpdate.TAKE, _of_its_total(machine, "gpu-1/one more"))
    await recorder.write_chain("host-guard-for_long", handle)


async def _host_guard(
    recorder: Recorder, machine: str, *, founding: bool
) -> WorkflowHandle[Any, Any]:
    handle: WorkflowHandle[Any, Any] = await recorder.client.start_workflow(
        HOST_GUARD,
        HostGuardInput(machine=machine, founding=founding, takes=[_other("gpu-2/before")]),
        id=host_guard_id(machine),
        task_queue=_QUEUE,
    )
    for number in range(4):
        await handle.execute_update(GuardUpdate.TAKE, _of_its_total(machine, f"gpu-1/try {number}"))
    return handle


def _of_its_total(machine: str, key: str) -> HostTakeRequest:
    return HostTakeRequest(machine=machine, server="gpu-1", key=key, **_CLAIM)
