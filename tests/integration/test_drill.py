"""Drills on real parts: real processes stopped over real SSH, found by sweeps, healed by docker."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment

from activities.drill import DrillActivities
from fleet.actions import CommandRestart, DockerRestart, Drill
from fleet.config import RedisSource, ServerSpec
from fleet.contracts.drill import DrillOutcome, DrillPhase, FreezeOrder, ThawOrder
from fleet.contracts.fleet import PresentPolicy
from fleet.contracts.host import Effect, HostErrorType, HostState, HostStatus
from fleet.contracts.names import drill_id
from fleet.contracts.remediation import Outcome, Phase
from fleet.policy import Policy
from tests.parts.docker import Docker
from tests.parts.rig import STEADY, Rig
from tests.parts.sshd import Sshd
from tests.parts.watched import Plan, Server, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(180),
]

PLANS = {
    "healed": Plan(drill={}),
    "unmarked": Plan(),
    "cancelled": Plan({"persist_hung": "60s"}, drill={}),
    "killed": Plan({"persist_hung": "5s"}, drill={}),
}


@pytest.fixture(scope="module")
async def servers(rig: Rig) -> AsyncIterator[dict[str, Server]]:
    async with rig.fleet(PLANS, sweep="3s") as running:
        yield running


async def drill(rig: Rig, server: Server, *more: str) -> asyncio.subprocess.Process:
    """Begin a drill from a command line of its own."""
    return await asyncio.create_subprocess_exec(
        STEADY,
        *("drill", server.name, "--yes", *more),
        env=rig.variables,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def document(rig: Rig, server: Server) -> dict[str, Any]:
    handle = rig.client.get_workflow_handle(drill_id(server.name))
    found: dict[str, Any] = await handle.query("status")
    return found


async def is_stopped(rig: Rig, server: Server) -> bool:
    """Whether the kernel says that the container's main process is stopped by a signal."""
    shown = await asyncio.to_thread(rig.docker.inspect, server.name)
    return state_of(shown["State"]["Pid"]) == "T"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_one_that_is_not_marked_is_never_touched(
    rig: Rig, servers: dict[str, Server]
) -> None:
    server = servers["unmarked"]
    code, said = await rig.steady("drill", server.name, "--yes")
    assert code == 1
    assert f"it is not marked for drills: [servers.{server.name}.drill]" in said
    assert not await is_stopped(rig, server)
    assert server.told == []


async def test_without_a_terminal_nothing_is_frozen_unless_it_says_yes(
    rig: Rig, servers: dict[str, Server]
) -> None:
    server = servers["healed"]
    code, said = await rig.steady("drill", server.name)
    assert code == 1
    assert said.endswith("nothing was frozen: --yes is needed where nobody can confirm it\n")
    assert not await is_stopped(rig, server)


async def test_a_drill_that_is_cancelled_thaws_and_nothing_is_restarted(
    rig: Rig, servers: dict[str, Server]
) -> None:
    server = servers["cancelled"]
    begun = await drill(rig, server)
    await server.comes_to(Phase.PERSISTING)
    assert await is_stopped(rig, server)
    code, said = await rig.steady("drill", server.name, "--cancel", "--why", "a real load")
    assert code == 0, said
    assert "a real load" in said
    assert await begun.wait() == 1
    assert not await is_stopped(rig, server)
    assert (await server.ends()).outcome is Outcome.RECOVERED
    assert (await server.facts()).starts == 1
    assert (await server.guard()).takes == []
    again = await rig.steady("drill", server.name, "--cancel")
    assert again == (1, f"no drill of {server.name} is under way\n")


async def test_what_is_frozen_is_found_healed_and_told_as_a_drill(
    rig: Rig, servers: dict[str, Server]
) -> None:
    server = servers["healed"]
    code, said = await rig.steady("drill", server.name, "--yes", "--why", "new release")
    assert code == 0, said
    assert f"{server.name}: healed, found, restarted and healthy again" in said
    shown = await document(rig, server)
    times = [shown[f"{step}_at"] for step in ("frozen", "found", "restarted", "healed")]
    assert times == sorted(times)
    assert (shown["outcome"], shown["restarts"], shown["is_frozen"]) == ("healed", 1, False)
    assert (await server.facts()).starts == 2
    assert len((await server.guard()).takes) == 1
    await server.is_told("frozen", "confirmed", "restarting", "resolved", "ended")
    assert server.pages == []
    marked = {alert["cause"]: alert["drill"] for alert in server.told}
    assert {cause for cause, drill in marked.items() if drill} == {
        "confirmed",
        "restarting",
        "resolved",
    }
    [confirmed] = [alert for alert in server.told if alert["cause"] == "confirmed"]
    assert confirmed["text"].startswith(f"Drill: {server.name} is hung")
    assert not await is_stopped(rig, server)


async def test_a_drill_outlives_its_command_line_and_its_worker(
    rig: Rig, servers: dict[str, Server]
) -> None:
    server = servers["killed"]
    begun = await drill(rig, server)

    async def is_frozen() -> bool:
        return await is_stopped(rig, server)

    await until(is_frozen, f"{server.name} is frozen")
    begun.send_signal(signal.SIGKILL)
    await begun.wait()
    await asyncio.to_thread((await rig.only_worker()).kill)
    await rig.only_worker()

    async def has_ended() -> bool:
        """As long as queries wait for the worker that was killed, nobody answers."""
        try:
            shown = await document(rig, server)
        except (RPCError, WorkflowQueryFailedError):
            return False
        return bool(shown["phase"] == DrillPhase.CLOSED)

    await until(has_ended, f"the drill of {server.name} has ended", 90)
    assert (await document(rig, server))["outcome"] == DrillOutcome.HEALED
    assert (await server.facts()).starts == 2
    assert len((await server.guard()).takes) == 1


class Marked:
    """Policies in which one server is in force."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec

    async def present(self, server: str) -> PresentPolicy:
        return PresentPolicy(version=1, spec=self.spec)


class TestByHand:
    """The two commands themselves, on processes that nobody else watches."""

    @pytest.fixture
    def process(self) -> Iterator[subprocess.Popen[bytes]]:
        running = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        try:
            yield running
        finally:
            running.kill()
            running.wait()

    def spec(self, sshd: Sshd, pid: int, drill: Drill | None = None) -> ServerSpec:
        own = Drill(freeze=("kill", "-STOP", str(pid)), thaw=("kill", "-CONT", str(pid)))
        return ServerSpec(
            name="gpu-1",
            source=RedisSource(key="worker"),
            store=None,
            restart=CommandRestart(
                kind="command", host="box", argv=("true",), identity=("echo", str(pid))
            ),
            host=sshd.host(),
            policy=Policy(),
            drill=drill or own,
        )

    async def test_a_command_of_the_operators_own_freezes_and_thaws(
        self, sshd: Sshd, rig: Rig, process: subprocess.Popen[bytes]
    ) -> None:
        spec = self.spec(sshd, process.pid)
        hands = DrillActivities(Marked(spec), rig.client)
        shown = HostState(status=HostStatus.RUNNING, identity="command", started=str(process.pid))
        order = FreezeOrder(server="gpu-1", expected=shown)
        done = await ActivityEnvironment().run(hands.freeze_server, order)
        assert done.effect is Effect.DONE
        assert state_of(process.pid) == "T"
        thawed = await ActivityEnvironment().run(
            hands.thaw_server, ThawOrder(spec=spec, frozen=shown)
        )
        assert (thawed.needed, thawed.detail) == (True, "")
        assert state_of(process.pid) != "T"

    async def test_another_process_than_the_expected_is_neither_frozen_nor_thawed(
        self, sshd: Sshd, rig: Rig, process: subprocess.Popen[bytes]
    ) -> None:
        spec = self.spec(sshd, process.pid)
        hands = DrillActivities(Marked(spec), rig.client)
        other = HostState(status=HostStatus.RUNNING, identity="command", started="1")
        with pytest.raises(ApplicationError) as refused:
            await ActivityEnvironment().run(
                hands.freeze_server, FreezeOrder(server="gpu-1", expected=other)
            )
        assert refused.value.type == HostErrorType.SUPERSEDED
        process.send_signal(signal.SIGSTOP)
        await until(lambda: _is(process.pid, "T"), "it is stopped")
        thawed = await ActivityEnvironment().run(
            hands.thaw_server, ThawOrder(spec=spec, frozen=other)
        )
        assert (thawed.needed, state_of(process.pid)) == (False, "T")

    async def test_a_command_that_can_not_freeze_is_no_freeze(
        self, sshd: Sshd, rig: Rig, process: subprocess.Popen[bytes]
    ) -> None:
        spec = self.spec(sshd, process.pid, Drill(freeze=("false",), thaw=("false",)))
        hands = DrillActivities(Marked(spec), rig.client)
        shown = HostState(status=HostStatus.RUNNING, identity="command", started=str(process.pid))
        done = await ActivityEnvironment().run(
            hands.freeze_server, FreezeOrder(server="gpu-1", expected=shown)
        )
        assert done.effect is Effect.FAILED
        with pytest.raises(ApplicationError, match="thaws ended with status 1"):
            await ActivityEnvironment().run(hands.thaw_server, ThawOrder(spec=spec, frozen=shown))

    async def test_one_that_is_not_marked_any_more_is_not_frozen(
        self, sshd: Sshd, rig: Rig, process: subprocess.Popen[bytes]
    ) -> None:
        spec = self.spec(sshd, process.pid).model_copy(update={"drill": None})
        hands = DrillActivities(Marked(spec), rig.client)
        with pytest.raises(ApplicationError, match="not marked for drills"):
            await ActivityEnvironment().run(
                hands.freeze_server,
                FreezeOrder(server="gpu-1", expected=HostState(status=HostStatus.RUNNING)),
            )
        assert state_of(process.pid) != "T"

    async def test_a_container_with_a_restart_policy_is_told_to_have_lost_it(
        self, sshd: Sshd, rig: Rig, docker: Docker
    ) -> None:
        docker.run_container(
            "kept",
            [sys.executable, "-c", "import time; time.sleep(600)"],
            options=["--restart=always"],
        )
        try:
            restart = DockerRestart(kind="docker", host="box", name="kept", cli=docker.cli)
            spec = self.spec(sshd, 1, Drill()).model_copy(update={"restart": restart})
            hands = DrillActivities(Marked(spec), rig.client)
            shown = docker.inspect("kept")
            seen = HostState(
                status=HostStatus.RUNNING,
                identity=shown["Id"],
                started=shown["State"]["StartedAt"],
            )
            order = FreezeOrder(server="gpu-1", expected=seen)
            assert (await ActivityEnvironment().run(hands.freeze_server, order)).effect is (
                Effect.DONE
            )
            assert state_of(shown["State"]["Pid"]) == "T"
            thawed = await ActivityEnvironment().run(
                hands.thaw_server, ThawOrder(spec=spec, frozen=seen)
            )
            assert state_of(shown["State"]["Pid"]) != "T"
            assert 'its own restart policy ("always") may not act' in thawed.detail
        finally:
            docker.rm("kept")


async def _is(pid: int, state: str) -> bool:
    return state_of(pid) == state
