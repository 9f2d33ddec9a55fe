"""The benchmarks still run, and no figure of theirs is wrong by an order of magnitude."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


async def measured(*command: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command, "--json"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(90):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    said: dict[str, Any] = json.loads(out)
    return said


async def test_a_sweep_costs_little_cpu_for_each_engine() -> None:
    """5 s for a thousand are 5 ms each, of which the bound here is tenfold."""
    said = await measured("benchmarks.sweep", "--engines", "20")
    assert [sweep["verdicts"] for sweep in said["sweeps"]] == [{"busy": 20}] * 3
    assert said["cpu_ms_an_engine"] < 50


async def test_a_check_takes_little_beyond_the_start_of_python() -> None:
    """0.3 s, of which the bound here is tenfold, and 60 MB."""
    said = await measured("benchmarks.check", "--rounds", "1")
    assert said["least_cpu_beyond"] < 3
    assert said["memory_mib"] < 60
