"""The time-skipping server: hours of a workflow pass in a blink."""

import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

_TEST_SERVER = Path(sysconfig.get_path("scripts")) / "temporal-test-server"


@asynccontextmanager
async def _time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping(
        data_converter=pydantic_data_converter, test_server_existing_path=str(_TEST_SERVER)
    ) as env:
        yield env


@pytest.fixture(scope="session")
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with _time_skipping() as env:
        yield env


@pytest.fixture
async def env() -> AsyncIterator[WorkflowEnvironment]:
    """A server for each test, so that nothing of another one's is still running on it."""
    async with _time_skipping() as env:
        yield env
