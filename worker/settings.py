"""Settings of a process, from ``STEADY_*`` environment variables.

Where Temporal is comes from ``TEMPORAL_*`` variables or a Temporal profile, as for every Temporal
program; what is watched comes from the fleet that was applied.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from fleet.contracts import TASK_QUEUE
from fleet.durations import Duration, parse


class Settings(BaseSettings):
    """One process's settings; each can be given as ``STEADY_<NAME>``, durations as ``"45s"``."""

    model_config = SettingsConfigDict(env_prefix="STEADY_", frozen=True, extra="ignore")

    state_dir: Path = Field(
        default=Path(".steady"),
        description="where `steady up` keeps its servers' data, and a worker its evidence",
    )
    embedded_store: str | None = Field(
        default=None,
        description=(
            "Redis URL for heartbeat sources that name no store; not set, it is the Valkey of this"
            " state folder's `steady up`, where one runs"
        ),
    )
    task_queue: str = Field(default=TASK_QUEUE, min_length=1)
    graceful_shutdown: Duration = Field(
        default=parse("90s"),
        description=(
            "how long a worker that was told to stop lets running activities finish; longer than"
            " a restart over SSH may take (the stop time-out and a minute), or a restart"
            " in flight is cut off and has to be settled by looking at the host"
        ),
    )
    connect_within: Duration = Field(
        default=parse("60s"),
        description="how long a worker that starts waits for Temporal before it gives up",
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
