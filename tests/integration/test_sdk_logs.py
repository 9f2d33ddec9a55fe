"""What the Temporal SDK's core has to say goes where everything else is logged."""

from pathlib import Path

from tests.parts.processes import command
from tests.parts.temporal import TIME_SKIPPING_SERVER

#: The core warns of the old test server as soon as a worker works for it.
_WARNED = """
import asyncio, sys
from pathlib import Path
from temporalio.testing import WorkflowEnvironment
from worker.logs import set_up_logging
from worker.settings import Settings
from worker.worker import build_worker

async def work(state: Path, server: str) -> None:
    settings = Settings(state_dir=state)
    set_up_logging(settings, to=state / "log")
    skipping = WorkflowEnvironment.start_time_skipping(test_server_existing_path=server)
    async with await skipping as env:
        async with build_worker(env.client, settings):
            await asyncio.sleep(0.5)
    print("worked", flush=True)
    await asyncio.sleep(0.3)

asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))
"""


def test_a_warning_of_the_core_is_in_the_log_and_not_on_the_terminal(tmp_path: Path) -> None:
    with command(_WARNED, tmp_path, str(tmp_path), str(TIME_SKIPPING_SERVER)) as running:
        running.until("worked")
        running.process.wait(timeout=30)
    assert running.lines == ["worked"]
    warned = [line for line in (tmp_path / "log").read_text().splitlines() if "sdk_core" in line]
    assert "warning" in warned[0]
    assert "temporal_log" not in warned[0]
