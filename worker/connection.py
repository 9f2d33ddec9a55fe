"""The connection to Temporal, as every process and command of steady makes it."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig

from fleet.durations import brief
from worker.errors import SetupError
from worker.settings import Settings
from worker.state import noted_temporal

DEFAULT_ADDRESS = "127.0.0.1:7233"
DEFAULT_NAMESPACE = "default"
_SHORT = timedelta(seconds=5)
_TRY_EVERY = 0.5


def named_address() -> str | None:
    """The address that ``TEMPORAL_ADDRESS`` or a Temporal profile names, if one does."""
    return _from_environment().get("target_host")


async def connect(
    settings: Settings, *, address: str | None = None, within: timedelta = _SHORT
) -> Client:
    """Connect to ``address``; else where the environment says, else to the ``steady up`` of this
    state folder, else to 127.0.0.1:7233.

    Raises:
        SetupError: nothing that speaks Temporal answered in time; address and remedy are named.
    """
    config = _options(settings.state_dir, address)
    clock = asyncio.get_running_loop().time
    deadline = clock() + within.total_seconds()
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                return await Client.connect(**config)
        except (RuntimeError, TimeoutError) as problem:
            # A closed port refuses at once, and may belong to a server that is starting.
            if clock() + _TRY_EVERY >= deadline:
                raise SetupError(
                    f"no Temporal server answered at {config['target_host']} within"
                    f" {brief(within)}{_reason(problem)}: start one with `steady up`, or name"
                    " yours with TEMPORAL_ADDRESS"
                ) from problem
        await asyncio.sleep(_TRY_EVERY)


def _from_environment() -> dict[str, Any]:
    try:
        return dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, ValueError, OSError) as problem:
        raise SetupError(
            f"the Temporal settings of this environment can't be read ({problem}):"
            " see the TEMPORAL_* variables and the file that TEMPORAL_CONFIG_FILE names"
        ) from problem


def _options(state_dir: Path, address: str | None) -> dict[str, Any]:
    defaults = {"namespace": DEFAULT_NAMESPACE, "data_converter": pydantic_data_converter}
    if address is not None:
        return {**defaults, "target_host": address}
    embedded = noted_temporal(state_dir)
    default = {"target_host": embedded.address if embedded is not None else DEFAULT_ADDRESS}
    return {**default, **defaults, **_from_environment()}


def _reason(problem: BaseException) -> str:
    """The part of the SDK's message that a person can use."""
    text = str(problem)
    said = re.search(r'message: "([^"]+)"', text)
    if said is not None:
        return f" ({said.group(1).lower()})"
    return f" ({text[:200]})" if text else ""
