"""How a command reaches Temporal and the fleet: bounded, and with one clear line where it fails."""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from fleet.config import Fleet
from fleet.contracts.fleet import FleetQuery, FleetState
from fleet.contracts.names import FLEET_ID
from worker.asking import ask
from worker.commands.exits import Exit, Stop
from worker.connection import connect, place
from worker.errors import SetupError
from worker.logs import catch_sdk_logs
from worker.render import remark
from worker.settings import Settings

T = TypeVar("T")

PATIENCE = timedelta(seconds=10)
NO_WORKER = "no worker answers: start one with `steady worker`, or all with `steady up`"

#: A query that no worker takes ends as one of these, after the time-out of the call.
_LATE = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)


def settings(**given: Any) -> Settings:
    """The settings of this process; what is ``given`` counts more than its variable.

    Raises:
        Stop: a ``STEADY_*`` variable, or what is given, has a value that can't be used.
    """
    try:
        return Settings(**given)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        name = "_".join(("STEADY", *map(str, first["loc"]))).upper()
        raise Stop(f"{name}: {first['msg'].lower()}", Exit.WRONG_INPUT) from problem


def with_temporal(work: Callable[[Client], Awaitable[T]], *, acts: bool = False) -> T:
    """Do some work with a connection. Where it ``acts``, and nothing named the Temporal server
    that is reached, standard error says which that is before anything is changed.

    Raises:
        SetupError: Temporal or a worker is not there, or speaks as another version of steady.
    """
    # A command says itself what it did not reach; what it retried is nobody's concern.
    catch_sdk_logs("ERROR")

    async def connected() -> T:
        client = await connect(settings())
        if acts:
            _say_where()
        try:
            return await work(client)
        except (ValidationError, KeyError) as problem:
            if isinstance(problem, KeyError) and "payload encoding" not in str(problem):
                raise
            raise SetupError(_other_version(client)) from problem
        except RPCError as problem:
            raise SetupError(
                f"Temporal did not answer as it should: {problem.message}"
            ) from problem

    return asyncio.run(connected())


def _say_where() -> None:
    where = place(settings())
    if where.doubt:
        remark(f"Temporal at {where.address}, namespace {where.namespace} ({where.doubt})")


def _other_version(client: Client) -> str:
    return (
        f"the fleet at {client.service_client.config.target_host}, namespace {client.namespace},"
        " was written by another version of steady: use that one here, or bring its workers to this"
        " version and apply the fleet file again"
    )


async def fleet_state(client: Client) -> FleetState | None:
    """What is in force; none where no fleet was ever applied.

    Raises:
        SetupError: no worker is there to answer.
    """
    handle = client.get_workflow_handle(FLEET_ID)
    try:
        state = await ask(handle, FleetQuery.STATE, FleetState, PATIENCE)
    except RPCError as problem:
        if problem.status is RPCStatusCode.NOT_FOUND:
            return None
        if problem.status in _LATE:
            raise SetupError(NO_WORKER) from problem
        raise
    except WorkflowQueryFailedError as problem:
        raise SetupError(NO_WORKER) from problem
    return state if state.fleet is not None else None


async def applied(client: Client) -> tuple[FleetState, Fleet]:
    """The fleet in force.

    Raises:
        Stop: there is none.
    """
    state = await fleet_state(client)
    if state is None or state.fleet is None:
        raise Stop("no fleet has been applied yet: `steady apply FILE`, or `steady up`")
    return state, state.fleet


def known(name: str, servers: Collection[str]) -> str:
    """The name, if it is a server's.

    Raises:
        Stop: it is not; the message has the nearest one.
    """
    if name in servers:
        return name
    folded = {each.lower(): each for each in servers}
    close = get_close_matches(name.lower(), folded, n=1)
    hint = f"did you mean {folded[close[0]]}?" if close else "`steady status` lists the servers"
    raise Stop(f"there is no server {name!r} in the fleet: {hint}", Exit.WRONG_INPUT)


def whoami() -> str:
    """Who gives an order, for timelines: ``user@machine``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"[:80]


async def update(client: Client, name: str, request: BaseModel) -> Any:
    """Change what the workflow ``fleet`` holds, and return its answer as plain data.

    Raises:
        Stop: it was refused, or nobody waits for it any longer; the message says which.
        SetupError: no worker took it in time.
    """
    try:
        async with asyncio.timeout(2 * PATIENCE.total_seconds()):
            return await client.get_workflow_handle(FLEET_ID).execute_update(name, request)
    except WorkflowUpdateFailedError as refused:
        said = refused.cause.message if isinstance(refused.cause, ApplicationError) else refused
        raise Stop(str(said), Exit.WRONG_INPUT) from refused
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as late:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The SDK makes this error of Ctrl-C too.
            raise Stop("not waited for: `steady status` shows whether it came true") from late
        raise SetupError(NO_WORKER) from late
