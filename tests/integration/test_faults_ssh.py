"""The way to the host fails while a server hangs: no answer, no door, a false key, a cut line.

One fleet of five servers, each behind a way of its own, hangs at once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncssh
import pytest

from fleet.contracts.guard import Hold
from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from tests.parts.odd_ssh import SlowLogin, odd_ssh
from tests.parts.ports import free_port
from tests.parts.rig import Rig
from tests.parts.sshd import Sshd
from tests.parts.watched import Plan, Server, until
from tests.parts.wire import Wire, wire_to

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(180),
]


SECOND = timedelta(seconds=1)
#: What comes first after the evidence is the last look before the command.
LAST_LOOK = """#!/bin/sh
[ "$1" = inspect ] && [ -e "$0.evidence" ] && touch "$0.looked"
[ "$1" = logs ] && touch "$0.evidence"
exec DOCKER "$@"
"""


@dataclass
class Hung:
    """The frozen servers by what is wrong with their way, and the wires on it."""

    servers: dict[str, Server]
    sshd: Sshd
    closed_port: int
    dropping: Wire
    last_moment: Wire


@pytest.fixture(scope="module")
async def hung(
    rig: Rig, sshd: Sshd, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Hung]:
    folder, closed_port = tmp_path_factory.mktemp("ways"), free_port()
    async with AsyncExitStack() as stack:
        silent = await stack.enter_async_context(odd_ssh(folder / "silent", SlowLogin))
        dropping = await stack.enter_async_context(wire_to(sshd.port))
        last_moment = await stack.enter_async_context(wire_to(sshd.port))
        watched = rig.script("last-look", LAST_LOOK)
        last_moment.admits = lambda: not Path(f"{watched}.looked").exists()
        plans = {
            "silent": Plan(
                host=silent.model_copy(update={"connect_timeout": timedelta(seconds=1)})
            ),
            "closed": Plan(host=sshd.host_at(closed_port)),
            "changed": Plan(host=sshd.host(known_hosts=_other_key(folder, sshd))),
            "dropping": Plan(host=sshd.host_at(dropping.port), stop="6s"),
            "last-moment": Plan(host=sshd.host_at(last_moment.port), cli=(watched,)),
        }
        servers = await stack.enter_async_context(rig.fleet(plans, sweep="2s"))
        await asyncio.gather(*(server.freeze() for server in servers.values()))
        yield Hung(servers, sshd, closed_port, dropping, last_moment)


def _other_key(folder: Path, sshd: Sshd) -> str:
    """Known hosts in which the host has another key than it shows."""
    shown = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    file = folder / "known_hosts"
    file.write_text(f"[127.0.0.1]:{sshd.port} {shown}")
    return str(file)


async def _first_run(server: Server) -> RemediationStatus:
    """How the first run of the incident ended, once there is another one."""

    async def is_tried_again() -> bool:
        return len(await server.runs()) > 1

    await until(is_tried_again, f"another try at {server.name}", within=60)
    first = (await server.runs())[0]
    status: RemediationStatus = await server.rig.client.get_workflow_handle(
        first.id, run_id=first.run_id, result_type=RemediationStatus
    ).result()
    return status


async def test_a_line_that_drops_in_the_middle_of_the_command_is_settled_by_the_host(
    hung: Hung,
) -> None:
    server = hung.servers["dropping"]
    await server.comes_to(Phase.RESTARTING)
    # A frozen container is stopped for six seconds; this is in their middle.
    await asyncio.sleep(2)
    hung.dropping.cut()
    status = await server.ends()
    said = [moment.text for moment in status.timeline]
    assert status.outcome is Outcome.RESOLVED
    assert any(text.startswith("restart command: unknown") for text in said), said
    assert not any("failed" in text for text in said)
    assert (await server.facts()).starts == 2
    assert len((await server.guard()).takes) == 1
    await server.is_told("resolved")
    assert server.pages == []


async def test_a_line_that_fails_before_the_command_gives_the_take_back_and_is_tried_again(
    hung: Hung,
) -> None:
    server = hung.servers["last-moment"]
    await server.is_told("restart_failed", within=60)
    failed = await _first_run(server)
    assert failed.outcome is Outcome.RESTART_FAILED
    said = [moment.text for moment in failed.timeline]
    assert "budget: given back, nothing was sent: HostUnreachable" in said, said
    assert (await server.guard()).takes == []
    assert (await server.facts()).starts == 1

    hung.last_moment.admits = lambda: True
    await server.is_told("resolved", within=60)
    guard = await server.guard()
    assert [taken.incident for taken in guard.takes] == [failed.incident]
    assert (await server.facts()).starts == 2
    assert "restart_failed" in server.pages


async def test_a_door_that_is_closed_pages_at_once_costs_nothing_and_is_tried_again(
    hung: Hung, rig: Rig
) -> None:
    server = hung.servers["closed"]
    await server.is_told("restart_failed", within=60)
    assert (await server.guard()).takes == []
    async with wire_to(hung.sshd.port, at=hung.closed_port):
        await server.is_told("resolved", within=60)
    failed, healed = await _first_run(server), await server.ends()
    assert (failed.outcome, healed.outcome) == (Outcome.RESTART_FAILED, Outcome.RESOLVED)
    assert healed.incident == failed.incident
    assert (await server.facts()).starts == 2
    assert len((await server.guard()).takes) == 1
    assert server.pages == ["restart_failed"]


async def test_a_changed_host_key_is_never_trusted_and_the_tries_have_an_end(hung: Hung) -> None:
    server = hung.servers["changed"]
    await server.is_told("gave_up", within=60)
    guard = await server.guard()
    assert guard.takes == []
    assert guard.incident is not None
    assert (guard.incident.failed_tries, guard.incident.hold) == (3, Hold.OUT_OF_TRIES)
    assert (await server.facts()).starts == 1
    assert server.pages == ["gave_up", "restart_failed"]
    [page] = [alert for alert in server.told if alert["cause"] == "restart_failed"]
    assert "host key" in page["text"]
    runs = len(await server.runs())
    await asyncio.sleep(5)
    assert len(await server.runs()) == runs == 3


async def test_a_host_that_never_answers_pages_at_once_and_is_tried_again(hung: Hung) -> None:
    server = hung.servers["silent"]
    await server.is_told("restart_failed", within=60)
    failed = await _first_run(server)
    assert failed.outcome is Outcome.RESTART_FAILED
    assert (await server.guard()).takes == []
    assert (await server.facts()).starts == 1
    [page] = [alert for alert in server.told if alert["cause"] == "restart_failed"]
    assert "no answer within 1 s" in page["text"]
