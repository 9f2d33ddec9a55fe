"""The connection to Temporal, as every process and command of steady makes it."""

import asyncio
import os
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig

from fleet.addresses import host_and_port
from fleet.durations import brief
from worker.errors import SettingError, SetupError
from worker.settings import Settings
from worker.state import is_left, noted_temporal

DEFAULT_ADDRESS = "127.0.0.1:7233"
DEFAULT_NAMESPACE = "default"
_SHORT = timedelta(seconds=5)
_TRY_EVERY = 0.5


def named_address() -> str | None:
    """The address that ``TEMPORAL_ADDRESS`` or a Temporal profile names, if one does."""
    return _from_environment().get("target_host")


@dataclass(frozen=True)
class Place:
    """Where a command goes, and ``doubt``: why that may not be where its user means."""

    address: str
    namespace: str
    doubt: str


def place(settings: Settings) -> Place:
    """Where ``connect`` goes without an address. ``doubt`` is empty where something named it.

    Raises:
        SettingError: what names it can't be used.
    """
    config = _options(settings.state_dir, None)
    address, namespace = config["target_host"], config["namespace"]
    named = named_address() is not None or noted_temporal(settings.state_dir) is not None
    return Place(address, namespace, "" if named else _doubt(settings.state_dir))


def _doubt(state_dir: Path) -> str:
    if is_left(state_dir):
        return "the `steady up` of this folder is not running, and TEMPORAL_ADDRESS is not set"
    return "the default, since no `steady up` runs in this folder and TEMPORAL_ADDRESS is not set"


async def connect(
    settings: Settings, *, address: str | None = None, within: timedelta = _SHORT
) -> Client:
    """Connect to ``address``; else where the environment says, else to the ``steady up`` of this
    state folder, else to 127.0.0.1:7233.

    Raises:
        SettingError: the address is none.
        SetupError: nothing that speaks Temporal answered in time; address and remedy are named.
    """
    config = _options(settings.state_dir, address)
    left = address is None and named_address() is None and is_left(settings.state_dir)
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
                    f" {brief(within)}{_reason(problem)}:"
                    f"{' the `steady up` of this folder is not running;' if left else ''}"
                    " start one with `steady up`, or name yours with TEMPORAL_ADDRESS"
                ) from problem
        await asyncio.sleep(_TRY_EVERY)


def _from_environment() -> dict[str, Any]:
    try:
        config = dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, ValueError, OSError) as problem:
        raise SetupError(
            f"the Temporal settings of this environment can't be read ({problem}):"
            " see the TEMPORAL_* variables and the file that TEMPORAL_CONFIG_FILE names"
        ) from problem
    try:
        host_and_port(str(config.get("target_host", DEFAULT_ADDRESS)))
    except ValueError:
        where = "TEMPORAL_ADDRESS" if os.environ.get("TEMPORAL_ADDRESS") else "the Temporal profile"
        raise SettingError(
            f"{where}: {config['target_host']!r} is no HOST:PORT, like {DEFAULT_ADDRESS}"
        ) from None
    return config


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
    quoted = re.findall(r'(?:message|error): "([^"]+)"', text) or re.findall(r'"([^"]+)"', text)
    if quoted:
        return f" ({quoted[-1].lower()[:200]})"
    return f" ({text[:200]})" if text and "::" not in text else ""
