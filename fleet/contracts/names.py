"""Workflow types and IDs, search attributes, and the base of all messages."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

TASK_QUEUE = "steady"
FLEET_ID = "fleet"
STORM_GUARD_ID = "storm-guard"

HEALTH_SWEEP = "HealthSweep"
REMEDIATION = "Remediation"
SERVER_GUARD = "ServerGuard"
HOST_GUARD = "HostGuard"
STORM_GUARD = "StormGuard"
FLEET = "Fleet"
ALERT = "Alert"
DRILL = "Drill"
ASK_ENGINE = "AskEngine"
PROBE_SWEEP = "ProbeSweep"
RECORD = "ReadingRecord"


def remediation_id(server: str) -> str:
    return f"remediate/{server}"


def guard_id(server: str) -> str:
    return f"guard/{server}"


def host_guard_id(machine: str) -> str:
    return f"host-guard/{machine}"


def alert_id(incident: str, cause: str) -> str:
    return f"alert/{incident}/{cause}"


def drill_id(server: str) -> str:
    return f"drill/{server}"


def ask_id(server: str) -> str:
    """Where it runs, the server is being asked: two requests side by side are impossible."""
    return f"ask/{server}"


def probe_id(shard: int) -> str:
    return f"probe/{shard}"


def health_id(shard: int) -> str:
    return f"health/{shard}"


def record_id(shard: int) -> str:
    return f"record/{shard}"


def incident_id(server: str, first_observed: datetime) -> str:
    """The dedupe key of an incident: the server and the first observation, to the millisecond."""
    return f"{server}@{first_observed:%Y%m%dT%H%M%S}.{first_observed.microsecond // 1000:03d}Z"


class SearchAttribute(StrEnum):
    SERVER = "SteadyServer"
    VERDICT = "SteadyVerdict"
    PHASE = "SteadyPhase"
    OUTCOME = "SteadyOutcome"


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ServerRequest(Message):
    server: str
