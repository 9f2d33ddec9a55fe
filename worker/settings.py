"""Settings of a process, from ``STEADY_*`` environment variables.

Where Temporal is comes from ``TEMPORAL_*`` variables or a Temporal profile, as for every Temporal
program; what is watched comes from the fleet that was applied.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ByteSize, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from fleet.addresses import host_and_port
from fleet.contracts.names import TASK_QUEUE
from fleet.duration_fields import Duration, within
from fleet.durations import parse


class Settings(BaseSettings):
    """One process's settings; each can be given as ``STEADY_<NAME>``, durations as ``"45s"``.

    A variable that is empty counts as not set.
    """

    model_config = SettingsConfigDict(
        env_prefix="STEADY_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    state_dir: Path = Field(
        default=Path(".steady"),
        description=(
            "where `steady up` keeps its servers' data, a worker its evidence, and a gateway what"
            " was set through its admin API"
        ),
    )
    evidence_keep: Annotated[Duration, within("1h", "366d")] = Field(
        default=parse("30d"), description="how long a worker keeps evidence on its disk"
    )
    evidence_size: Annotated[ByteSize, Field(ge=10 * 1024 * 1024)] = Field(
        default=ByteSize(2 * 1024**3),
        description=(
            "how much evidence a worker keeps, like 500MiB or 2GiB; the oldest goes first, and"
            " never the newest of an incident that is open"
        ),
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
    listen: str | None = Field(
        default=None,
        description=(
            "HOST:PORT on which a worker serves /health and /metrics; not set, it serves none."
            " Whoever reaches it reads the names of servers, so it is best a loopback address"
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    @field_validator("listen")
    @classmethod
    def _has_host_and_port(cls, address: str | None) -> str | None:
        if not address:
            return None
        host_and_port(address)
        return address
