"""The job of docker-compose.yml that prepares a Temporal server, run against a real one."""

import asyncio
import os
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from fleet.contracts.names import SearchAttribute

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
SCRIPTS = Path(sysconfig.get_path("scripts"))


@pytest.fixture
async def bare_server() -> AsyncIterator[Client]:
    """A Temporal server that knows nothing of steady."""
    env = await WorkflowEnvironment.start_local(dev_server_existing_path=str(SCRIPTS / "temporal"))
    async with env:
        yield env.client


async def _run_job(address: str, namespace: str) -> tuple[int | None, str]:
    job: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]["namespace"]
    script = job["command"][0].replace("$$", "$")
    process = await asyncio.create_subprocess_exec(
        *job["entrypoint"],
        script,
        env={
            "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "TEMPORAL_ADDRESS": address,
            "TEMPORAL_NAMESPACE": namespace,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.mark.anyio
async def test_the_namespace_job_prepares_a_bare_server_and_can_be_run_again(
    bare_server: Client,
) -> None:
    for _ in range(2):
        code, output = await _run_job(bare_server.service_client.config.target_host, "production")
        assert code == 0, output
    known = await bare_server.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace="production")
    )
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    assert {name: known.custom_attributes.get(name) for name in SearchAttribute} == dict.fromkeys(
        SearchAttribute, keyword
    )
