"""One server on a host, as the host's activities see it, and the means to run them."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.host import HostActivities
from fleet.actions import Host, Restart
from fleet.config import ServerSpec
from fleet.contracts.fleet import PresentPolicy
from fleet.contracts.host import (
    Evidence,
    EvidenceRequest,
    GpuReport,
    GpuRequest,
    HostErrorType,
    HostRequest,
    HostState,
    RestartOrder,
    RestartResult,
)
from fleet.ladder import Step
from fleet.policy import Policy
from fleet.sources import RedisSource


class Policies:
    """Answers for one server what the workflow ``fleet`` would answer."""

    def __init__(self, spec: ServerSpec | None) -> None:
        self.spec = spec

    async def present(self, server: str) -> PresentPolicy:
        return PresentPolicy(version=1, spec=self.spec)


class NoPolicies:
    async def present(self, server: str) -> PresentPolicy:
        raise ApplicationError("the workflow `fleet` did not answer", type="FleetUnreachable")


def spec(host: Host | None, restart: Restart | None, ladder: tuple[Step, ...] = ()) -> ServerSpec:
    return ServerSpec(
        name="gpu-1",
        source=RedisSource(key="k"),
        store=None,
        restart=restart,
        host=host,
        ladder=ladder,
        policy=Policy(),
    )


@dataclass
class OnHost:
    """Runs the activities as a worker would; ``environment`` can be cancelled or looked into."""

    activities: HostActivities
    environment: ActivityEnvironment

    @classmethod
    def of(
        cls,
        host: Host,
        restart: Restart,
        state_dir: Path = Path("/nonexistent"),
        ladder: tuple[Step, ...] = (),
    ) -> "OnHost":
        policies = Policies(spec(host, restart, ladder))
        return cls(HostActivities(policies, state_dir), ActivityEnvironment())

    def attempt(self, number: int) -> None:
        self.environment.info = replace(self.environment.info, attempt=number)

    def heartbeat_timeout(self, span: timedelta) -> None:
        self.environment.info = replace(self.environment.info, heartbeat_timeout=span)

    async def inspect(self, **asked: Any) -> HostState:
        request = HostRequest(server="gpu-1", **asked)
        return await self.environment.run(self.activities.inspect_host, request)

    async def restart(self, expected: HostState, rung: int = 0) -> RestartResult:
        order = RestartOrder(server="gpu-1", expected=expected, key="k1", rung=rung)
        return await self.environment.run(self.activities.restart_server, order)

    async def stop(self, expected: HostState, *, begun: bool = False) -> RestartResult:
        order = RestartOrder(server="gpu-1", expected=expected, key="k1", begun=begun)
        return await self.environment.run(self.activities.stop_server, order)

    async def start(self, expected: HostState) -> RestartResult:
        order = RestartOrder(server="gpu-1", expected=expected, key="k1")
        return await self.environment.run(self.activities.start_server, order)

    async def gpu(self, pids: list[int]) -> GpuReport:
        request = GpuRequest(server="gpu-1", pids=pids)
        return await self.environment.run(self.activities.gpu_holders, request)

    async def evidence(self, incident: str = "gpu-1@20261130T091227.123Z") -> Evidence:
        request = EvidenceRequest(server="gpu-1", incident=incident)
        return await self.environment.run(self.activities.collect_evidence, request)

    async def refused(self, expected: HostState, rung: int = 0) -> tuple[HostErrorType, str]:
        """The proof that a restart was not sent: its kind and its words."""
        with pytest.raises(ApplicationError) as caught:
            await self.restart(expected, rung)
        assert caught.value.non_retryable
        return HostErrorType(str(caught.value.type)), caught.value.message
