"""``steady gateway`` as a child of ``steady up``: it serves the endpoints of the fleet file."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from activities.web import http_url, new_client
from fleet.config import Fleet
from fleet.routed import own_url
from worker.children import Program, end_orphan, running
from worker.embedded import until_ready

_NAME = "the gateway"
_RUN = "from worker.cli import main; main()"
#: Beyond what it gives to what is in flight.
_SPARE = 10.0


@asynccontextmanager
async def embedded_gateway(
    file: Path | None, fleet: Fleet, state_dir: Path
) -> AsyncIterator[str | None]:
    """Run it for the length of the block, and give where it listens; none without endpoints.

    Raises:
        SetupError: it can't be started, is not ready within a minute, or ended.
    """
    if file is None or not fleet.endpoints:
        yield None
        return
    program = _program(file, fleet, state_dir)
    await end_orphan(_NAME, program.pid_file, " ".join(program.argv[3:]))
    async with running(program) as child:
        await until_ready(child, own_url(fleet.gateway.admin), _answers)
        yield own_url(fleet.gateway.listen)


def _program(file: Path, fleet: Fleet, state_dir: Path) -> Program:
    return Program(
        name=_NAME,
        argv=[sys.executable, "-c", _RUN, "gateway", "--file", str(file.resolve())],
        log=state_dir / "logs" / "gateway.log",
        pid_file=state_dir / "gateway.pid",
        variables={"STEADY_STATE_DIR": str(state_dir.resolve())},
        stop_within=fleet.gateway.graceful_shutdown.total_seconds() + _SPARE,
    )


async def _answers(url: str) -> bool:
    try:
        async with new_client(trust_env=False, urls=[url]) as client:
            return (await client.get(f"{http_url(url)}/health", timeout=1)).is_success
    except httpx.HTTPError:
        return False
