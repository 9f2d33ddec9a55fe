"""Which Temporal server a command reaches, and what it says where that may be the wrong one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from typer.testing import CliRunner, Result

from fleet.config import Fleet
from fleet.contracts.fleet import ApplyRequest, FleetQuery, FleetUpdate, PauseRequest
from fleet.contracts.names import FLEET, FLEET_ID
from tests.parts.temporal import DevServer, dev_server
from worker.apply import apply_fleet
from worker.cli import app
from worker.client import update
from worker.commands.exits import Exit, Stop
from worker.errors import SetupError
from worker.snapshot import fetch_snapshot
from worker.state import owned

pytestmark = pytest.mark.anyio


@workflow.defn(name=FLEET)
class FleetOfAnotherVersion:
    """Answers in other forms, or, to a pause, never."""

    def __init__(self) -> None:
        self._is_asked = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query(name=FleetQuery.STATE)
    def state(self) -> dict[str, str]:
        return {"version": "seven"}

    @workflow.update(name=FleetUpdate.APPLY)
    async def apply(self, _: dict[str, object]) -> dict[str, str]:
        return {"version": "seven"}

    @workflow.update(name=FleetUpdate.PAUSE)
    async def pause(self, _: dict[str, object]) -> None:
        self._is_asked = True
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def is_asked(self) -> bool:
        return self._is_asked


@pytest.fixture(scope="module")
async def temporal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    async with dev_server(tmp_path_factory.mktemp("temporal")) as server:
        yield server


@pytest.fixture(autouse=True)
def at_the_default_address(
    temporal: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("STEADY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("worker.connection.DEFAULT_ADDRESS", temporal.address)


async def steady(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, arguments)


@pytest.mark.parametrize(
    "command", [("cancel", "a"), ("restart", "a"), ("pause", "--for", "1h"), ("resume",)]
)
async def test_a_word_to_the_default_address_says_where_it_goes(
    temporal: DevServer, command: tuple[str, ...]
) -> None:
    said = (await steady(*command)).stderr.splitlines()
    assert said[0] == (
        f"Temporal at {temporal.address}, namespace default"
        " (the default, since no `steady up` runs in this folder and TEMPORAL_ADDRESS is not set)"
    )


async def test_a_word_says_that_the_up_of_this_folder_is_not_running(tmp_path: Path) -> None:
    with owned(tmp_path / "state"):
        pass
    said = (await steady("cancel", "a")).stderr.splitlines()
    assert "the `steady up` of this folder is not running" in said[0]


async def test_a_word_to_a_named_address_goes_without_saying(
    temporal: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.address)
    assert (await steady("cancel", "a")).stderr.startswith("no fleet has been applied yet")


async def test_who_only_looks_is_told_nothing_more(temporal: DevServer) -> None:
    assert (await steady("status")).stderr.startswith("no fleet has been applied yet")


@pytest.fixture
async def other_version(temporal: DevServer) -> AsyncIterator[Client]:
    client = await temporal.client()
    runner = UnsandboxedWorkflowRunner()
    async with Worker(
        client, task_queue="q", workflows=[FleetOfAnotherVersion], workflow_runner=runner
    ):
        fleet = await client.start_workflow(FLEET, id=FLEET_ID, task_queue="q")
        yield client
        await fleet.terminate()


async def test_a_fleet_of_another_version_is_one_plain_sentence(
    temporal: DevServer, other_version: Client
) -> None:
    ended = await steady("status")
    seen = await fetch_snapshot(other_version)
    assert "the fleet can't be read: another version of steady wrote it" in seen.problems
    assert ended.exit_code == Exit.UNREACHED
    assert ended.stderr.startswith(
        f"the fleet at {temporal.address}, namespace default, was written by another version"
    )
    assert ended.stderr.count("\n") == 1


async def test_a_fleet_that_another_version_took_is_not_called_applied(
    other_version: Client,
) -> None:
    server = {"source": {"kind": "redis", "key": "a"}}
    fleet = Fleet.model_validate({"servers": {"gpu-1": server}})
    with pytest.raises(SetupError, match="another version of steady"):
        await apply_fleet(other_version, ApplyRequest(fleet=fleet, who="ana"), "q")


async def test_a_change_that_is_not_waited_for_says_where_to_look(other_version: Client) -> None:
    asking = asyncio.create_task(update(other_version, FleetUpdate.PAUSE, PauseRequest(who="ana")))
    while not await other_version.get_workflow_handle(FLEET_ID).query("is_asked"):
        await asyncio.sleep(0.1)
    asking.cancel()
    with pytest.raises(Stop, match="steady status"):
        await asking
