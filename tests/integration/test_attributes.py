"""Search attributes on real servers: with them, without them, and with others of their names."""

import shlex
import subprocess
from pathlib import Path

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from fleet.contracts.names import SearchAttribute
from tests.parts.temporal import TEMPORAL, TIME_SKIPPING_SERVER, dev_server
from worker.attributes import _unavailable, register_search_attributes

pytestmark = pytest.mark.anyio

_CREATE = ("operator", "search-attribute", "create")


async def test_are_added_where_they_are_missing_and_can_be_searched_by(tmp_path: Path) -> None:
    async with dev_server(tmp_path, attributes=("SteadyServer",)) as server:
        client = await server.client()

        first = await register_search_attributes(client)
        again = await register_search_attributes(client)
        found = await client.count_workflows("SteadyOutcome = 'resolved'")

    assert first == again
    assert first.available
    assert found.count == 0


async def test_are_added_where_the_server_keeps_no_list() -> None:
    async with await WorkflowEnvironment.start_time_skipping(
        data_converter=pydantic_data_converter,
        test_server_existing_path=str(TIME_SKIPPING_SERVER),
    ) as env:
        first = await register_search_attributes(env.client)
        again = await register_search_attributes(env.client)

    assert (first.available, again.available) == (True, True)


async def test_of_another_type_are_not_used(tmp_path: Path) -> None:
    async with dev_server(tmp_path, attributes=()) as server:
        _create(server.address, "--name SteadyPhase --type Int")

        result = await register_search_attributes(await server.client())

    assert not result.available
    assert "SteadyPhase must be of the type Keyword" in result.line


async def test_that_steady_may_not_add_are_made_by_the_command_that_it_names(
    tmp_path: Path,
) -> None:
    denied = RPCError("no", RPCStatusCode.PERMISSION_DENIED, b"")
    line = _unavailable(list(SearchAttribute), denied).line
    _, _, arguments = line.partition(" ".join(("temporal", *_CREATE, "")))

    async with dev_server(tmp_path, attributes=()) as server:
        _create(server.address, arguments)
        result = await register_search_attributes(await server.client())

    assert "(PERMISSION_DENIED)" in line
    assert result.available


def _create(address: str, arguments: str) -> None:
    subprocess.run(
        [str(TEMPORAL), *_CREATE, "--address", address, *shlex.split(arguments)],
        check=True,
        capture_output=True,
        timeout=30,
    )
