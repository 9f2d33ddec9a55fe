"""The time-skipping server: hours of a workflow pass in a blink."""

import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

TEST_SERVER = Path(sysconfig.get_path("scripts")) / "temporal-test-server"


@pytest.fixture(scope="session")
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping(
        data_converter=pydantic_data_converter,
        test_server_existing_path=str(TEST_SERVER),
    ) as env:
        yield env
